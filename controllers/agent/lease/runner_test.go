package lease

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is the protocol with all times a tenth of what ships.
func quick(self string) Config {
	c := Default(self, "uid", 0)
	for _, d := range []*time.Duration{
		&c.Heartbeat, &c.Grant, &c.Epsilon, &c.Hold, &c.Ask, &c.Aside, &c.Handicap, &c.Start, &c.HandOver, &c.MaxRetry,
	} {
		*d /= 10
	}
	return c
}

// memory is a Store that all members of a test share.
type memory struct {
	mu      sync.Mutex
	seen    Seen
	version int
	routed  string
	epoch   uint64
}

type memoryOf struct {
	*memory
	self string
}

func (m memoryOf) Read(context.Context) (Seen, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen, nil
}

func (m memoryOf) Swap(_ context.Context, version string, r Record) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version != m.seen.ResourceVersion {
		return "", ErrConflict
	}
	m.version++
	m.seen = Seen{ResourceVersion: fmt.Sprint(m.version), Record: r, HasRecord: true}
	return m.seen.ResourceVersion, nil
}

func (m memoryOf) Route(_ context.Context, epoch uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch < m.epoch {
		return ErrConflict
	}
	m.routed, m.epoch = m.self, epoch
	return nil
}

func (m *memory) route() (string, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.routed, m.epoch
}

// team is a Transport between runners of one process.
type team struct {
	mu      sync.Mutex
	members map[string]*Runner
}

func (t *team) Send(ctx context.Context, to string, r Request) (Answer, error) {
	t.mu.Lock()
	peer := t.members[to]
	t.mu.Unlock()
	if peer == nil {
		return Answer{}, errors.New("gone")
	}
	return peer.Ask(ctx, r)
}

func (t *team) set(name string, r *Runner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.members[name] = r
}

// puppet is a Server that obeys at once.
type puppet struct {
	mu      sync.Mutex
	runner  *Runner
	facts   Facts
	decided Decision
	stops   atomic.Int64
	deaf    atomic.Bool
}

func (p *puppet) Apply(d Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf.Load() || p.runner == nil {
		return
	}
	old := p.decided.Serial
	p.decided = d
	if old == d.Serial {
		return
	}
	f := &p.facts
	f.Obeys, f.Receiving, f.Prepared, f.Quiesced = d.Serial, d.Upstream != "", d.Phase == PhasePreparing, d.Phase == PhaseQuiescing
	switch d.Role {
	case RoleStop:
		f.Server = ServerStopped
	case RoleReplica:
		f.Server = ServerReplica
		f.HasData = f.HasData || d.Upstream != ""
	case RolePrimary:
		f.Server, f.HasData = ServerPrimary, true
	case RoleNone:
	}
	f.Position = Position{Known: f.HasData, Rank: 1, At: 1}
	p.runner.Report(*f)
}

func (p *puppet) HardStop(string) { p.stops.Add(1) }

func (p *puppet) role() Role {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decided.Role
}

type actor struct {
	runner *Runner
	server *puppet
	cancel context.CancelFunc
	done   chan error
}

func launch(t *testing.T, name, dir string, tm *team, store *memory, hasData bool) *actor {
	t.Helper()
	facts := Facts{
		Server: ServerStopped, StopBudget: 10 * time.Millisecond,
		HasData: hasData, Position: Position{Known: hasData, Rank: 1, At: 1},
	}
	a := begin(t, name, dir, tm, store, &puppet{facts: facts}, nil)
	a.runner.Report(facts)
	a.runner.Want(Aim{Members: []string{"a", "b", "c"}})
	return a
}

func begin(t *testing.T, name, dir string, tm *team, store *memory, server *puppet, kept *Kept) *actor {
	t.Helper()
	r, err := NewRunner(Parts{
		Config: quick(name), Clock: BootClock{}, Transport: tm, Store: memoryOf{store, name},
		Promises: PromiseFile{Path: filepath.Join(dir, name)}, Server: server, Kept: kept,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	server.runner = r
	server.mu.Unlock()
	tm.set(name, r)
	ctx, cancel := context.WithCancel(t.Context())
	a := &actor{r, server, cancel, make(chan error, 1)}
	go func() { a.done <- r.Run(ctx) }()
	t.Cleanup(func() { a.end(t, tm, name) })
	return a
}

func (a *actor) end(t *testing.T, tm *team, name string) {
	tm.set(name, nil)
	a.cancel()
	select {
	case err := <-a.done:
		if err != nil {
			t.Error(err)
		}
		a.done <- nil
	case <-time.After(time.Minute):
		t.Error("the runner of " + name + " does not end")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// three members of whom a leads.
func three(t *testing.T) (dir string, tm *team, store *memory, actors map[string]*actor) {
	t.Helper()
	dir = t.TempDir()
	tm = &team{members: map[string]*Runner{}}
	store = &memory{seen: Seen{ResourceVersion: "0", Bootstrap: "a"}}
	actors = map[string]*actor{}
	for _, name := range []string{"a", "b", "c"} {
		actors[name] = launch(t, name, dir, tm, store, false)
	}
	eventually(t, "three voters, and a route to a", func() bool {
		seen, _ := memoryOf{store, ""}.Read(t.Context())
		to, _ := store.route()
		return len(seen.Record.Voters) == 3 && to == "a"
	})
	return dir, tm, store, actors
}

func TestRunners(t *testing.T) {
	dir, tm, store, actors := three(t)

	actors["a"].runner.Leave()
	eventually(t, "a route to another after a has left", func() bool { to, _ := store.route(); return to != "a" })
	if got := actors["a"].server.role(); got != RoleStop {
		t.Errorf("a has left and is %s", got)
	}

	first, _ := store.route()
	actors[first].end(t, tm, first)
	if actors[first].server.stops.Load() == 0 {
		t.Error("a runner ended and left its server running")
	}
	actors["a"].end(t, tm, "a")
	actors["a"] = launch(t, "a", dir, tm, store, true)
	eventually(t, "a route to a survivor of a lost leader", func() bool { to, _ := store.route(); return to != first })
	to, epoch := store.route()
	if got := actors[to].runner.Status().Decision; got.Role != RolePrimary || got.Epoch != epoch {
		t.Errorf("routed to %s at %d, which decides %+v", to, epoch, got)
	}
}

// stuckStore never answers, so that a test can fill queues.
type stuckStore struct{ memoryOf }

func TestAskIsBounded(t *testing.T) {
	r, err := NewRunner(Parts{
		Config: quick("a"), Clock: BootClock{}, Transport: &team{}, Store: stuckStore{}, Server: &puppet{},
		Promises: PromiseFile{Path: filepath.Join(t.TempDir(), "p")},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits; Run is never called, so nothing is taken out
	for range inboxSize + 10 {
		if _, err := r.Ask(ctx, Request{Kind: KindStatus, From: "b"}); err == nil {
			t.Fatal("an answer from a runner that does not run")
		}
	}
	if got := r.Drops()["ask: inbox full"]; got != 10 {
		t.Errorf("%d drops counted, want 10: %v", got, r.Drops())
	}
}

func TestWatchdog(t *testing.T) {
	var now atomic.Int64
	clock := clockFunc(func() Time { return Time(now.Load()) })
	server := &puppet{}
	w := &watchdog{changed: make(chan struct{}, 1), nudge: func() {}}
	w.budget.Store(int64(20 * time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx, clock, server) }()
	defer func() { cancel(); <-done }()

	now.Store(int64(time.Hour))
	w.set(Decision{Role: RolePrimary, Deadline: Time(time.Hour + 30*time.Millisecond)})
	time.Sleep(60 * time.Millisecond) // the test's clock stands still
	if server.stops.Load() != 0 {
		t.Fatal("stopped a leader in its time")
	}
	w.set(Decision{Role: RoleReplica})
	w.set(Decision{Role: RolePrimary, Deadline: Time(time.Hour + 5*time.Millisecond)})
	eventually(t, "a stop when half a budget is left", func() bool { return server.stops.Load() == 1 })
	time.Sleep(30 * time.Millisecond)
	if got := server.stops.Load(); got != 1 {
		t.Errorf("%d stops for one deadline", got)
	}
}

type clockFunc func() Time

func (f clockFunc) Now() Time { return f() }

func TestBootClockGoesOn(t *testing.T) {
	a := BootClock{}.Now()
	time.Sleep(time.Millisecond)
	if b := (BootClock{}).Now(); b.Sub(a) < time.Millisecond {
		t.Errorf("%d then %d", a, b)
	}
}
