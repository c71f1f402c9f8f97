package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Witness votes beside two members and holds no data: with it the loss of either leaves a majority. It asks nobody for anything, so it
// needs no aim; all that it keeps is its promise.
type Witness struct {
	cfg    Config
	log    *slog.Logger
	clock  lease.Clock
	certs  *certificates
	runner *lease.Runner
	asked  atomic.Int64 // boot clock when a leader last asked for a grant

	mu      sync.Mutex
	changed chan struct{}
}

// NewWitness makes a witness from what its directory remembers. It starts nothing.
func NewWitness(cfg Config, store lease.Store, clock lease.Clock, log *slog.Logger) (*Witness, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the witness's directory: %w", err)
	}
	// Its member's certificate is its only one: no client ever comes here, so nothing is mounted where a server's would be.
	w := &Witness{cfg: cfg, log: log, clock: clock, certs: newCertificates(cfg.MemberTLSDir, cfg.ServerTLSDir), changed: make(chan struct{})}
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("number this run: %w", err)
	}
	config := lease.Default(cfg.Instance, cfg.UID, binary.NativeEndian.Uint64(seed[:])>>12)
	config.Witness, config.Address = true, cfg.Address // where it is, the leader tells the others
	runner, err := lease.NewRunner(lease.Parts{
		Config: config, Clock: clock, Transport: nobody{}, Store: store, Promises: lease.PromiseFile{Path: cfg.promisePath()}, Server: noServer{w}, Log: log,
	})
	w.runner = runner
	return w, err
}

// nobody is whom a witness may ask: it never stands for election, and so has nothing to ask.
type nobody struct{}

func (nobody) Send(_ context.Context, to string, _ lease.Request) (lease.Answer, error) {
	return lease.Answer{}, fmt.Errorf("a witness asks nobody, not %s either", to)
}

// noServer carries out every decision by saying that there is nothing to carry out.
type noServer struct{ w *Witness }

func (n noServer) Apply(d lease.Decision) {
	n.w.runner.Report(lease.Facts{Obeys: d.Serial, Server: lease.ServerStopped})
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	close(n.w.changed)
	n.w.changed = make(chan struct{})
}

func (noServer) HardStop(string) {}

// Ask hands in a member's request.
func (w *Witness) Ask(ctx context.Context, r lease.Request) (lease.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	a, err := w.runner.Ask(ctx, r)
	if err == nil && a.OK && r.Kind == lease.KindGrant {
		w.asked.Store(int64(w.clock.Now()))
	}
	return a, err
}

// get is the witness's report: whom it votes for, and with which certificates.
func (w *Witness) get() (engine.Report, time.Time, <-chan struct{}) {
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	d := w.runner.Status().Decision
	return engine.Report{
		Instance: w.cfg.Instance, UID: w.cfg.UID, AgentVersion: w.cfg.Version, Converged: true, Role: engine.Witness, State: "running", Ready: w.ready() == nil,
		Epoch: int64(max(d.Epoch, d.Record.Epoch)), Leader: d.Leader, Voters: d.Record.Voters, LagBytes: -1, SecretsHash: w.certs.hash(),
	}, time.Now(), changed
}

// ready says that a leader counts on this witness, or could.
func (w *Witness) ready() error {
	if s := w.runner.Status(); s.Decision.Serial == 0 || s.Decision.Record.Epoch == 0 && s.Promise.Epoch == 0 {
		return errors.New("it has not read the Lease yet")
	}
	return nil
}

// alive says that the loop which keeps the promise turns.
func (w *Witness) alive() error {
	at := w.runner.Status().At
	if still := w.clock.Now().Sub(at); at != 0 && still > starved {
		return fmt.Errorf("the witness's loop stands still since %s", still.Round(time.Second))
	}
	return nil
}

// Run votes until the context ends, or until leave is closed and no leader asks any more: it is replaced then, or was not needed.
func (w *Witness) Run(ctx context.Context, leave <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // the first is enough
		}
	}
	doors, err := w.listen(fail)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.runner.Run(ctx); err != nil {
			fail(fmt.Errorf("vote: %w", err))
		}
	})
	for _, d := range doors {
		if err := d.open(); err != nil {
			d.fail(err)
		}
	}
	w.log.Info("witness runs", "instance", w.cfg.Instance, "database", w.cfg.Namespace+"/"+w.cfg.Database, "version", w.cfg.Version)
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-leave:
		w.leave(ctx)
	}
	cancel()
	for _, d := range doors {
		d.leave()
	}
	group.Wait()
	return err
}

// unasked is for how long no leader must have asked before the witness believes that none counts on it.
const unasked = 2 * time.Second

// leave goes on voting until another witness has taken the place: without this one, and with one member down, the other may not lead.
func (w *Witness) leave(ctx context.Context) {
	w.log.Info("leaving")
	ctx, cancel := context.WithTimeout(ctx, engine.WitnessGrace-engine.WitnessReserve)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for w.clock.Now().Sub(lease.Time(w.asked.Load())) < unasked {
		select {
		case <-ctx.Done():
			w.log.Warn("a leader still counts on this witness; it ends all the same")
			return
		case <-look.C:
		}
	}
}

func (w *Witness) listen(fail func(error)) ([]*door, error) {
	s := &service{
		cfg: w.cfg, log: w.log, certs: w.certs, reporter: w, take: func(engine.Aim, []byte) error { return nil }, lease: lease.Handler(w, callerOf(w.cfg.UID)),
	}
	return s.doors(nil, probeHandler(w.alive, w.alive, w.ready), fail)
}
