package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

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
	goes("watch the vital signs", func() error { a.vitals.run(ctx); return nil })
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
		_ = agents.Close() // the port that is taken is what counts
		return nil, err
	}
	s := &service{
		cfg: a.cfg, log: a.log, certs: a.certs, reporter: a.reporter, take: a.take,
		lease: lease.Handler(fresher{a}, callerOf(a.cfg.UID)),
	}
	h := &health{clock: a.clock, pulse: a.keeper.beat, reporter: a.reporter}
	return []serving{
		serve(s.server(), agents, func(v *http.Server, l net.Listener) error { return v.ServeTLS(l, "", "") }),
		serve(probeServer(h.handler(), a.log), probes, (*http.Server).Serve),
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
