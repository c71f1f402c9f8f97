package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// fakeDriver runs a shell in place of a database and notes what it is told.
type fakeDriver struct {
	dir    string
	script string

	mu      sync.Mutex
	calls   []string
	kind    engine.Kind
	prepare func(ctx context.Context) error
	become  func(r engine.Role) error
	slow    bool // a look at the server takes longer than anybody waits for it
}

func (f *fakeDriver) slower() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = true
}

func (f *fakeDriver) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeDriver) Prepare(ctx context.Context, r engine.Role) error {
	f.note("prepare %s %s", r.Kind, r.Upstream)
	f.mu.Lock()
	act := f.prepare
	f.mu.Unlock()
	if act != nil {
		return act(ctx)
	}
	return nil
}

func (f *fakeDriver) Command(r engine.Role) engine.Command {
	if r.Kind != "" {
		f.note("start %s", r.Kind)
		f.mu.Lock()
		f.kind = engine.Replica
		f.mu.Unlock()
	}
	return engine.Command{Path: "/bin/sh", Args: []string{"-c", f.script}, Dir: f.dir, Env: []string{"PATH=/usr/bin:/bin"}, FastStop: int(syscall.SIGINT)}
}

func (f *fakeDriver) Become(_ context.Context, r engine.Role) error {
	f.note("become %s %s", r.Kind, r.Upstream)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.become != nil {
		if err := f.become(r); err != nil {
			return err
		}
	}
	f.kind = r.Kind
	return nil
}

func (f *fakeDriver) Report(ctx context.Context) (engine.Report, error) {
	f.mu.Lock()
	slow := f.slow
	f.mu.Unlock()
	if slow {
		<-ctx.Done()
		return engine.Report{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return engine.Report{Role: f.kind, State: "running", Ready: true, Position: engine.Position{Timeline: 1, Bytes: 100}}, nil
}

func (f *fakeDriver) Quiesce(context.Context) (engine.Position, error) {
	f.note("quiesce")
	return engine.Position{Timeline: 1, Bytes: 100}, nil
}

func (f *fakeDriver) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// bench is a keeper that runs, with a fake driver and real processes.
type bench struct {
	t      *testing.T
	k      *keeper
	driver *fakeDriver
	log    *syncBuffer
	serial uint64
	report *reporter
	facts  atomic.Pointer[lease.Facts]
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const politeServer = `trap 'exit 0' INT; echo up; while :; do sleep 0.02; done`

func newBench(t *testing.T, script string) *bench {
	t.Helper()
	b := &bench{t: t, driver: &fakeDriver{dir: t.TempDir(), script: script}, log: &syncBuffer{}}
	cfg := Config{StateDir: t.TempDir(), StopFast: 500 * time.Millisecond, StopLong: 800 * time.Millisecond}
	table := must(process.NewTable())(t)
	out := &logs{out: io.Discard, name: "server"}
	read := make(chan struct{}, 100) // one for each output that was read to its end
	b.k = &keeper{
		cfg: cfg, engine: Engine{Driver: b.driver}, table: table, clock: lease.BootClock{}, log: slog.New(slog.NewTextHandler(b.log, nil)),
		wake: make(chan struct{}, 1), tail: out.tail, observed: observed{Connected: -1}, server: server{Life: down},
	}
	b.k.forward = func(o *output) {
		_ = plain(context.Background(), o, out.emit)
		_ = o.from.Close()
		read <- struct{}{}
	}
	b.report = newReporter(cfg, b.k.clock, newCertificates(cfg.StateDir, cfg.StateDir), b.k.restartDone)
	s := &sampler{
		engine: b.k.engine, keeper: b.k, clock: b.k.clock, log: b.k.log, certs: newCertificates(cfg.StateDir, cfg.StateDir),
		facts: func(f lease.Facts) { b.facts.Store(&f) }, report: b.report.look, wake: make(chan struct{}, 1),
	}
	b.k.changed, b.k.observed.Secrets = s.changed, s.certs.hash()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { b.k.run(ctx) })
	group.Go(func() { s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
		for _, call := range b.driver.told() {
			if strings.HasPrefix(call, "start ") {
				<-read
			}
		}
		if t.Failed() {
			t.Logf("calls: %q\nlog:\n%s", b.driver.told(), b.log)
		}
	})
	b.k.want(testAim())
	return b
}

func (b *bench) decide(d lease.Decision) {
	b.serial++
	d.Serial = b.serial
	b.k.Apply(d)
}

func (b *bench) until(what string, check func(w word, f lease.Facts) bool) time.Duration {
	b.t.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		f := b.facts.Load()
		if f != nil && check(b.k.told(), *f) {
			return time.Since(begin)
		}
		time.Sleep(2 * time.Millisecond)
	}
	b.t.Fatalf("waiting until %s: %+v, facts %+v", what, b.k.told(), b.facts.Load())
	return 0
}

func obeys(serial uint64, state lease.ServerState) func(word, lease.Facts) bool {
	return func(_ word, f lease.Facts) bool { return f.Obeys == serial && f.Server == state }
}

func following2() lease.Decision {
	return lease.Decision{Role: lease.RoleReplica, Epoch: 7, Leader: "orders-2", Upstream: "orders-2"}
}

func leading8() lease.Decision {
	return lease.Decision{
		Role: lease.RolePrimary, Epoch: 8, Leader: "orders-1", Timeline: 2, Deadline: lease.BootClock{}.Now().Add(time.Hour),
		Record: lease.Record{Version: 9, Voters: []string{"orders-1", "orders-2"}},
	}
}

func TestKeeperWalksThroughALife(t *testing.T) {
	b := newBench(t, politeServer)
	b.decide(following2())
	b.until("it follows", obeys(1, lease.ServerReplica))
	b.decide(leading8())
	b.until("it leads", obeys(2, lease.ServerPrimary))
	d := leading8()
	d.Phase = lease.PhasePreparing
	b.decide(d)
	b.until("it has prepared", func(w word, f lease.Facts) bool { return f.Obeys == 3 && f.Prepared })
	d.Phase = lease.PhaseQuiescing
	b.decide(d)
	b.until("it is quiet", func(w word, f lease.Facts) bool { return f.Obeys == 4 && f.Quiesced })
	b.decide(lease.Decision{Role: lease.RoleStop, Phase: lease.PhaseStopping, Deadline: lease.BootClock{}.Now().Add(2 * time.Second)})
	b.until("it has stopped", obeys(5, lease.ServerStopped))
	b.decide(lease.Decision{Role: lease.RoleReplica, Epoch: 9, Leader: "orders-3", Upstream: "orders-3"})
	b.until("it follows again", obeys(6, lease.ServerReplica))
	want := []string{
		"prepare replica two", "start replica", "become replica two", "become primary ", "quiesce", "prepare replica three", "start replica", "become replica three",
	}
	if diff := cmp.Diff(want, b.driver.told()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if strings.Contains(b.log.String(), "did not stop in time") {
		t.Error("a polite server was killed")
	}
}

func TestKeeperSeesAFallAtOnce(t *testing.T) {
	b := newBench(t, `setsid sh -c 'trap "" INT TERM; sleep 300' & `+politeServer)
	b.decide(leading8())
	b.until("it leads", obeys(1, lease.ServerPrimary))
	pid := b.k.told().PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := b.until("the fall is told", func(w word, f lease.Facts) bool { return f.Server == lease.ServerStopped })
	t.Logf("fall, hard stop of what was left and report took %s", took)
	b.until("it starts again, for the decision stands", func(w word, f lease.Facts) bool { return f.Server == lease.ServerPrimary && w.PID != pid })
}

// TestAFallIsToldWithoutALook: how far the log of a stopped server goes may take seconds to find out.
func TestAFallIsToldWithoutALook(t *testing.T) {
	b := newBench(t, politeServer)
	b.driver.become = func(engine.Role) error {
		if b.driver.slow {
			return errors.New("it has a recovery before it")
		}
		return nil
	}
	b.decide(leading8())
	b.until("it leads", obeys(1, lease.ServerPrimary))
	b.driver.slower()
	pid := b.k.told().PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := b.until("the fall is told", func(_ word, f lease.Facts) bool { return f.Server == lease.ServerStopped && f.Fell })
	if took >= sampleTimeout {
		t.Errorf("the fall was told after %s, want at once", took)
	}
	b.until("it starts again", func(w word, _ lease.Facts) bool { return w.PID != 0 && w.PID != pid })
	if now := b.k.told().Server; !now.Fell {
		t.Errorf("a server that recovers makes its fall forgotten: %+v", now)
	}
}

func TestKeeperKillsAServerThatResists(t *testing.T) {
	b := newBench(t, `trap '' INT TERM; : > deaf; while :; do sleep 0.02; done`)
	b.decide(following2())
	b.until("it is deaf", func(_ word, f lease.Facts) bool {
		_, err := os.Stat(filepath.Join(b.driver.dir, "deaf"))
		return err == nil && f.Obeys == 1
	})
	b.decide(lease.Decision{Role: lease.RoleStop, Epoch: 7})
	took := b.until("it is dead", obeys(2, lease.ServerStopped))
	if took < 700*time.Millisecond {
		t.Errorf("it was dead after %s, want after the long stop's 800ms", took)
	}
}

func TestKeeperCallsOffALongPreparation(t *testing.T) {
	b := newBench(t, politeServer)
	began, ended := make(chan struct{}), make(chan error, 1)
	b.driver.mu.Lock()
	b.driver.prepare = func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	b.driver.mu.Unlock()
	b.decide(following2())
	<-began
	b.driver.mu.Lock()
	b.driver.prepare = nil
	b.driver.mu.Unlock()
	b.decide(lease.Decision{Role: lease.RoleReplica, Epoch: 8, Leader: "orders-3", Upstream: "orders-3"})
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	b.until("it follows another", obeys(2, lease.ServerReplica))
	if text := b.k.told().Trouble; text != (trouble{}) {
		t.Errorf("a step that was called off is no trouble: %+v", text)
	}
}

func TestHardStopFromOutsideKeepsTheServerDown(t *testing.T) {
	b := newBench(t, politeServer)
	b.decide(leading8())
	b.until("it leads", obeys(1, lease.ServerPrimary))
	b.k.HardStop("the deadline")
	b.until("it is down", func(w word, f lease.Facts) bool { return w.Server.Life == down && f.Server == lease.ServerStopped })
	time.Sleep(3 * fallPause)
	if w := b.k.told(); w.Server.Life != down {
		t.Fatalf("a server started under the decision that was ended: %+v", w.Server)
	}
	b.decide(following2())
	b.until("the next decision starts it", obeys(2, lease.ServerReplica))
}

func TestServerThatFailsIsTriedAgainAndTold(t *testing.T) {
	b := newBench(t, `echo "no space left on device" >&2; exit 3`)
	b.decide(following2())
	b.until("the failure is told", func(w word, _ lease.Facts) bool {
		return w.Trouble.Reason == "ServerFailed" && strings.Contains(w.Trouble.Text, "exit code 3") && strings.Contains(w.Trouble.Text, "no space left on device")
	})
	starts := func() (n int) {
		for _, c := range b.driver.told() {
			if c == "start replica" {
				n++
			}
		}
		return n
	}
	time.Sleep(1500 * time.Millisecond)
	if n := starts(); n > 5 {
		t.Errorf("it was started %d times in 1.5 s, want a few, further and further apart", n)
	}
	b.until("it was started again", func(word, lease.Facts) bool { return starts() > 1 })
}

func TestRestartTokenWorksOnce(t *testing.T) {
	b := newBench(t, politeServer)
	b.decide(following2())
	b.until("it follows", obeys(1, lease.ServerReplica))
	first := b.k.told().PID
	a := testAim()
	a.Restart = "r1"
	b.k.want(a)
	b.until("it has restarted", func(w word, f lease.Facts) bool {
		return w.PID != 0 && w.PID != first && f.Obeys == 1 && f.Server == lease.ServerReplica
	})
	second := b.k.told().PID
	b.k.want(a)
	time.Sleep(300 * time.Millisecond)
	if pid := b.k.told().PID; pid != second {
		t.Errorf("it restarted again, to process %d", pid)
	}
	a.Restart = ""
	b.k.want(a)
	b.k.HardStop("the node is gone")
	b.decide(following2())
	b.until("it is back under an aim without a token", obeys(2, lease.ServerReplica))
	third := b.k.told().PID
	a.Restart = "r1"
	b.k.want(a)
	time.Sleep(300 * time.Millisecond)
	if pid := b.k.told().PID; pid != third {
		t.Errorf("a token that was gone for a while restarted it again, to process %d", pid)
	}
	var m memory
	if found, err := load(filepath.Join(b.k.cfg.StateDir, "agent.json"), &m); err != nil || !found || m.RestartDone != "r1" {
		t.Errorf("the volume remembers %+v (%v, %v), want r1", m, found, err)
	}
}
