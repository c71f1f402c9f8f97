// Package agent is PID 1 of a database pod: it owns the server's processes, converges them to what the leadership decides, and reports.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
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
	reporter *reporter
	peers    *peers
	client   *client.Client
	runner   *lease.Runner
	certs    *certificates
	logs     *logs
	pump     func(ctx context.Context, from io.Reader, emit func(Entry)) error

	taking sync.Mutex // one aim at a time
	aim    engine.Aim
	hasAim bool
	rev    string
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
	a.client = client.New(cfg.UID, a.certs.current, client.WithPort(cfg.AgentPort))
	a.peers = &peers{client: a.client, address: map[string]string{}}
	a.keeper = &keeper{
		cfg: cfg, engine: p.Engine, table: p.Table, clock: p.Clock, log: p.Log, wake: make(chan struct{}, 1),
		tail: a.logs.tail, memory: remembered, active: -1, server: server{Life: down}, secrets: a.certs.hash(),
	}
	a.keeper.forward = a.forward
	a.reporter = newReporter(cfg, p.Clock, a.certs, a.keeper.restartDone)
	if err := a.lead(p); err != nil {
		return nil, err
	}
	a.sampler = &sampler{
		engine: p.Engine, keeper: a.keeper, clock: p.Clock, log: p.Log, certs: a.certs,
		facts: a.runner.Report, report: a.reporter.look, wake: make(chan struct{}, 1),
	}
	a.keeper.changed = a.sampler.changed
	return a, a.recall()
}

// lead makes the member's part of the leadership.
func (a *Agent) lead(p Parts) error {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("number this run: %w", err)
	}
	runner, err := lease.NewRunner(lease.Parts{
		// Half of the range, so that the numbers do not run over.
		Config: lease.Default(a.cfg.Instance, a.cfg.UID, binary.NativeEndian.Uint64(seed[:])>>12),
		Clock:  p.Clock, Transport: a.peers, Store: p.Store, Promises: lease.PromiseFile{Path: a.cfg.promisePath()},
		Server: a.keeper, Log: p.Log, OnEvent: a.reporter.event,
	})
	a.runner = runner
	return err
}

// recall takes the aim that the volume holds. One that cannot be read is not fatal: the manager sends it again.
func (a *Agent) recall() error {
	aim, found, err := loadAim(a.cfg)
	if err != nil {
		a.log.Warn("the aim on the volume cannot be used; waiting for the manager", "error", err.Error())
		return nil
	}
	if !found {
		return nil
	}
	rev, err := aim.Revision()
	if err != nil {
		return err
	}
	a.spread(aim, rev)
	return nil
}

// take an aim of the manager: remember it, then follow it.
func (a *Agent) take(aim engine.Aim) error {
	a.taking.Lock()
	defer a.taking.Unlock()
	seen := int64(a.runner.Status().Decision.Record.Epoch)
	if a.hasAim {
		seen = max(seen, a.aim.Epoch)
	}
	if aim.Epoch < seen {
		return &staleError{aim: aim.Epoch, seen: seen}
	}
	rev, err := aim.Revision()
	if err != nil {
		return err
	}
	if a.hasAim && rev == a.rev {
		return nil
	}
	if err := save(a.cfg.aimPath(), aim); err != nil {
		return err
	}
	a.log.Info("aim taken", "revision", rev, "epoch", aim.Epoch)
	a.spread(aim, rev)
	return nil
}

// spread tells everybody inside the agent about the aim.
func (a *Agent) spread(aim engine.Aim, rev string) {
	a.aim, a.hasAim, a.rev = aim, true, rev
	a.peers.want(aim)
	a.keeper.want(aim)
	a.reporter.want(aim, rev)
	a.runner.Want(leaseAim(aim, a.clock.Now(), time.Now()))
}

// leaseAim is the part of the aim that decides about the leadership.
func leaseAim(aim engine.Aim, now lease.Time, at time.Time) lease.Aim {
	out := lease.Aim{Fenced: aim.Stop}
	for _, m := range aim.Members {
		out.Members = append(out.Members, m.Name)
	}
	if s := aim.Switchover; s != nil {
		out.Switchover = lease.Switchover{ID: s.ID, Target: s.Target, Expires: boot(s.Expires, now, at)}
	}
	return out
}

// forward reads the server's output to its end.
func (a *Agent) forward(from *os.File) {
	defer func() { _ = from.Close() }()
	// Until the last writer is gone: the keeper kills what holds it.
	if err := a.pump(context.Background(), from, a.logs.emit); err != nil {
		a.log.Warn("the server's log is not read any more", "error", err.Error())
	}
	_, _ = io.Copy(io.Discard, from) // a server whose pipe is full stands still
}

// Run serves until the context ends, or until leave is closed and the member has handed over and stopped. The server is dead when
// it returns.
func (a *Agent) Run(ctx context.Context, leave <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, err := a.listen()
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	failed := make(chan error, 4)
	goes := func(what string, f func() error) {
		group.Go(func() {
			if err := f(); err != nil {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	// The keeper outlives the leadership, which stops its server at its end.
	keeping, enough := context.WithCancel(context.WithoutCancel(ctx))
	defer enough()
	goes("keep the server", func() error { a.keeper.run(keeping); return nil })
	goes("sample the server", func() error { a.sampler.run(ctx); return nil })
	goes("take part in the leadership", func() error { defer enough(); return a.runner.Run(ctx) })
	for _, s := range serving {
		goes("serve", s.run)
	}
	a.log.Info("agent runs", "instance", a.cfg.Instance, "database", a.cfg.Namespace+"/"+a.cfg.Database, "version", a.cfg.Version)
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-leave:
		a.leave(ctx)
	}
	cancel()
	for _, s := range serving {
		s.stop()
	}
	group.Wait()
	a.client.Close()
	return err
}

// leave hands over, waits until the server has stopped, and gives the others a moment to hear of it.
func (a *Agent) leave(ctx context.Context) {
	a.log.Info("leaving")
	led := a.keeper.told().Decision.Role == lease.RolePrimary
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Leave)
	defer cancel()
	a.runner.Leave()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		w := a.keeper.told()
		if w.Server.Life == down && w.Settled && w.Decision.Role == lease.RoleStop && a.runner.Status().Stage == idleStage {
			if led {
				time.Sleep(releaseTime)
			}
			return
		}
		select {
		case <-ctx.Done():
			a.log.Warn("leaving took too long; killing the server", "state", w.Server.Life, "role", w.Decision.Role)
			return
		case <-look.C:
		}
	}
}

const (
	// idleStage of the leadership: it has released what it held.
	idleStage = "Idle"
	// releaseTime is for the release to reach the voters; one that it does not reach waits until its grant runs out.
	releaseTime = 300 * time.Millisecond
)

// serving is one server on its listener.
type serving struct {
	run  func() error
	stop func()
}

func (a *Agent) listen() ([]serving, error) {
	agents, err := listen(a.cfg.Host, a.cfg.AgentPort)
	if err != nil {
		return nil, err
	}
	probes, err := listen(a.cfg.Host, a.cfg.HealthPort)
	if err != nil {
		_ = agents.Close()
		return nil, err
	}
	s := &service{
		cfg: a.cfg, log: a.log, certs: a.certs, reporter: a.reporter, take: a.take,
		lease: lease.Handler(fresher{a}, callerOf(a.cfg.UID)),
	}
	h := &health{clock: a.clock, pulse: a.keeper.beat, reporter: a.reporter}
	return []serving{
		serve(s.server(), agents, func(v *http.Server, l net.Listener) error { return v.ServeTLS(l, "", "") }),
		serve(h.server(a.log), probes, (*http.Server).Serve),
	}, nil
}

func serve(v *http.Server, l net.Listener, run func(*http.Server, net.Listener) error) serving {
	return serving{
		run: func() error {
			if err := run(v, l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
		stop: func() { _ = v.Close() }, // those who watch dial another member or again
	}
}

// fresher hands messages to the leadership, with a new look at the server before those whose answer's position decides.
type fresher struct{ a *Agent }

// Ask hands in a peer's request and waits for this member's answer.
func (f fresher) Ask(ctx context.Context, r lease.Request) (lease.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if wantsFresh(r, f.a.cfg.Instance) {
		f.a.sampler.now(ctx)
	}
	return f.a.runner.Ask(ctx, r)
}

// callerOf reads who calls from a request's certificate. The manager may ask for the status, no more.
func callerOf(uid string) lease.Identify {
	return func(r *http.Request) (lease.Caller, error) {
		who, err := client.Identify(r.TLS.PeerCertificates[0], uid)
		if err != nil {
			return lease.Caller{}, err
		}
		if who.Manager {
			return lease.Caller{Name: client.ManagerName}, nil
		}
		return lease.Caller{Name: who.Member, Member: true}, nil
	}
}
