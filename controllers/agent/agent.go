// Package agent is PID 1 of a database pod: it owns the server's processes, converges them to what the leadership decides, and reports.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/names"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Parts are what an agent is made of.
type Parts struct {
	Config Config
	Engine Engine
	Table  *process.Table
	Store  lease.Store
	Clock  lease.Clock
	// Names finds the addresses of members.
	Names *names.Book
	// Kept is what an earlier program of this process left; nil for a start.
	Kept *Kept
	// Out takes the server's log, one JSON object a line.
	Out io.Writer
	Log *slog.Logger
}

// Agent serves one member of one Database.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	clock    lease.Clock
	keeper   *keeper
	sampler  *sampler
	vitals   *vitals
	ailment  string // what the vital signs say of the volumes; theirs alone
	reporter *reporter
	peers    *peers
	client   *client.Client
	runner   *lease.Runner
	certs    *certificates
	logs     *logs
	pump     func(ctx context.Context, from io.Reader, emit func(Entry)) error
	exchange *exchange
	kept     *Kept // until it was taken up
	doors    []*door
	taken    []*net.TCPListener // from the program before

	taking  sync.Mutex // one aim at a time
	aim     engine.Aim
	hasAim  bool
	rev     string
	asked   patience
	ordered patience // the recovery
}

// New makes an agent from its parts and from what the volume remembers. It starts nothing.
func New(p Parts) (*Agent, error) {
	cfg := p.Config.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's directory: %w", err)
	}
	a := &Agent{
		cfg: cfg, log: p.Log, clock: p.Clock, certs: newCertificates(cfg.MemberTLSDir, cfg.ServerTLSDir),
		logs: &logs{out: p.Out, name: "server"}, pump: p.Engine.Pump,
	}
	if a.pump == nil {
		a.pump = plain
	}
	var remembered memory
	if _, err := load(cfg.memoryPath(), &remembered); err != nil {
		return nil, fmt.Errorf("load what the volume remembers: %w", err)
	}
	a.client = client.New(cfg.UID, a.certs.current, client.WithPort(cfg.AgentPort), client.WithLookup(p.Names.Lookup))
	a.peers = &peers{client: a.client, names: p.Names, address: map[string]string{}}
	a.keeper = &keeper{
		cfg: cfg, engine: p.Engine, table: p.Table, clock: p.Clock, log: p.Log, wake: make(chan struct{}, 1), holds: make(chan holdKeeper),
		tail: a.logs.tail, memory: remembered, observed: observed{Connected: -1, Secrets: a.certs.hash()}, server: server{Life: down},
	}
	a.keeper.forward = a.forward
	marked, err := a.keeper.mark().take()
	if err != nil {
		p.Log.Warn("whether the volume was full before is not known", "error", err.Error())
	}
	if marked {
		a.keeper.server.Full, a.keeper.server.Restarting, a.keeper.trouble = true, true, trouble{volumeFull, cfg.fullWords()}
	}
	if p.Kept != nil {
		if err := a.keeper.adopt(p.Kept.Keeper, p.Kept.Lease.Decided); err != nil {
			return nil, err
		}
	}
	a.reporter = newReporter(cfg, p.Clock, a.certs, a.keeper.restartDone)
	if err := a.lead(p); err != nil {
		return nil, err
	}
	a.sampler = &sampler{
		engine: p.Engine, keeper: a.keeper, clock: p.Clock, log: p.Log, certs: a.certs,
		facts: a.runner.Report, report: a.reporter.look, status: a.runner.Status, wake: make(chan struct{}, 1),
		moves: progress{bounds: cfg.bounds()},
	}
	a.keeper.changed = a.sampler.changed
	a.vitals = a.signs(p.Engine)
	a.exchange = newExchange(a, p.Engine, p.Table)
	a.reporter.exchange = a.exchange.told
	if a.kept = p.Kept; a.kept != nil {
		if err := a.takeUp(p.Engine); err != nil {
			return nil, err
		}
	}
	a.recall()
	return a, nil
}

// lead makes the member's part of the leadership.
func (a *Agent) lead(p Parts) error {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("number this run: %w", err)
	}
	// Half of the range, so that the numbers do not run over.
	config := lease.Default(a.cfg.Instance, a.cfg.UID, binary.NativeEndian.Uint64(seed[:])>>12)
	config.Address = a.cfg.Address
	runner, err := lease.NewRunner(lease.Parts{
		Config: config,
		Clock:  p.Clock, Transport: a.peers, Store: p.Store, Promises: lease.PromiseFile{Path: a.cfg.promisePath()},
		Server: a.keeper, Kept: p.Kept.lease(), Log: p.Log, OnEvent: a.reporter.event,
	})
	a.runner = runner
	return err
}

// recall takes the aim that the volume holds. One that cannot be read is not fatal: the manager sends it again.
func (a *Agent) recall() {
	aim, rev, found, err := recalled(a.cfg)
	if err != nil {
		a.log.Warn("the aim on the volume cannot be used; waiting for the manager", "error", err.Error())
		return
	}
	if found {
		a.spread(aim, rev)
	}
}

// take an aim of the manager, and as what it came: remember it, then follow it. What this program does not know of it is kept, for one
// that does.
func (a *Agent) take(aim engine.Aim, raw []byte) error {
	a.taking.Lock()
	defer a.taking.Unlock()
	seen := int64(a.runner.Status().Decision.Record.Epoch)
	if a.hasAim {
		seen = max(seen, a.aim.Epoch)
	}
	if aim.Epoch < seen {
		return &staleError{aim: aim.Epoch, seen: seen}
	}
	rev := engine.RevisionOf(raw)
	if a.hasAim && rev == a.rev {
		return nil
	}
	if err := replace(a.cfg.aimPath(), raw); err != nil {
		return fmt.Errorf("save %s: %w", a.cfg.aimPath(), err)
	}
	a.log.Info("aim taken", "revision", rev, "epoch", aim.Epoch)
	a.spread(aim, rev)
	return nil
}

// spread tells everybody inside the agent about the aim.
func (a *Agent) spread(aim engine.Aim, rev string) {
	a.aim, a.hasAim, a.rev = aim, true, rev
	a.asked = a.asked.with(aim.Switchover, a.clock.Now())
	a.ordered = a.ordered.withRecovery(aim.Recovery, a.clock.Now())
	a.peers.want(aim)
	a.keeper.want(aim)
	a.reporter.want(aim, rev, a.asked.until, a.ordered.until)
	a.runner.Want(leaseAim(aim, a.asked.until, a.ordered.until))
}

// leaseAim is the part of the aim that decides about the leadership. A switchover and a recovery may begin until the given times.
func leaseAim(aim engine.Aim, until, recoverUntil lease.Time) lease.Aim {
	out := lease.Aim{Fenced: aim.Stop, LeaseVersion: aim.LeaseVersion, SliceVersion: aim.SliceVersion, Preferred: aim.Synchronous == synchronousPreferred}
	for _, m := range aim.Members {
		out.Members = append(out.Members, m.Name)
	}
	if aim.Witness != nil {
		out.Witness = aim.Witness.Name
	}
	if s := aim.Switchover; s != nil {
		out.Switchover = lease.Switchover{ID: s.ID, Target: s.Target, Expires: until}
	}
	if o := aim.Recovery; o != nil {
		out.Recovery = lease.Recovery{ID: o.ID, LeaseVersion: o.LeaseVersion, Lost: o.Lost, Expires: recoverUntil}
	}
	return out
}
