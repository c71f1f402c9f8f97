package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Run serves until the context ends, or until leave is closed and the member has handed over and stopped. The server is dead when
// it returns.
func (a *Agent) Run(ctx context.Context, leave <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 8)
	if err := a.listen(func(err error) {
		select {
		case failed <- fmt.Errorf("serve: %w", err):
		default: // the first is enough
		}
	}); err != nil {
		return err
	}
	a.exchange.leave = leave
	var group sync.WaitGroup
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
	goes("watch the vital signs", func() error { a.vitals.run(ctx); return nil })
	goes("show what the probe sees", func() error { newHub(a.cfg.ViewSocket, a.log).run(ctx); return nil })
	goes("take part in the leadership", func() error { defer enough(); return a.runner.Run(ctx) })
	a.firstLook(ctx)
	for _, d := range a.doors {
		if err := d.open(); err != nil {
			d.fail(err)
		}
	}
	var exchanging sync.WaitGroup // apart: it opens and shuts the doors
	exchanging.Go(func() { a.exchange.run(ctx) })
	a.log.Info("agent runs", "instance", a.cfg.Instance, "database", a.cfg.Namespace+"/"+a.cfg.Database, "version", a.cfg.Version)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-leave:
		a.leave(ctx)
	}
	cancel()
	exchanging.Wait()
	for _, d := range a.doors {
		d.leave()
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

// listen on the ports, or take over those of the program before.
func (a *Agent) listen(fail func(error)) error {
	s := &service{
		cfg: a.cfg, log: a.log, certs: a.certs, reporter: a.reporter, take: a.take, program: a.exchange.take,
		lease: lease.Handler(fresher{a}, callerOf(a.cfg.UID)), relay: newRelay(func() []engine.Peer { return a.peers.others(a.cfg.Instance) }, a.client.WatchReports),
	}
	h := &health{clock: a.clock, pulse: a.keeper.beat, reporter: a.reporter}
	made, err := s.doors(a.taken, h.handler(), fail)
	a.doors = made
	return err
}

// firstLook gives an agent that took over a running server a moment to look at it before it answers anybody: who is asked meanwhile is
// not told that the server is not ready.
func (a *Agent) firstLook(ctx context.Context) {
	if a.kept == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstLookPatience)
	defer cancel()
	a.sampler.now(ctx)
}

// firstLookPatience is short beside a grant: the leader asks this member for one, too.
const firstLookPatience = 500 * time.Millisecond
