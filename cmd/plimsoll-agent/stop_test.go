package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestOneStopsInItsTime holds up the stop of a Database's only member for longer than a grant: nobody else can lead, so the
// server gets to write its last checkpoint, and starts without a recovery.
func TestOneStopsInItsTime(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 1)
	one := d.members[0]
	one.start()
	d.until("it leads", 30*time.Second, d.whole)
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)
	const held = 5 * time.Second

	t.Run("SIGTERM", func(t *testing.T) {
		d.t = t
		release := one.holdUp(t, "checkpointer", held)
		begin := time.Now()
		if err := one.terminate(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		release()
		if took := time.Since(begin); took < held {
			t.Errorf("the pod ended after %s, before its server could", took)
		}
		one.start()
		d.until("it leads again", 30*time.Second, d.whole)
		one.endedWell(t)
	})
	t.Run("fenced", func(t *testing.T) {
		d.t = t
		d.until("writes flow", 10*time.Second, w.now)
		release := one.holdUp(t, "checkpointer", held)
		begin := time.Now()
		d.change = func(a *engine.Aim) { a.Stop = true }
		d.until("it is fenced", 20*time.Second, func() error { return one.is("fenced") })
		release()
		if took := time.Since(begin); took < held {
			t.Errorf("the server was gone after %s, before it could stop", took)
		}
		d.change = nil
		d.until("it leads again", 30*time.Second, d.whole)
		one.endedWell(t)
	})
	d.t = t
	d.until("writes flow", 10*time.Second, w.now)
	d.keeps(t, w.stop())
}

// is says whether the member reports the state with its server stopped.
func (m *memberPod) is(state string) error {
	r, err := m.report()
	if err != nil {
		return err
	}
	if r.State != state || r.Role != engine.Stopped || r.Ready || !r.Converged {
		return fmt.Errorf("%s is %s %s, converged %v: %s", m.name, r.State, r.Role, r.Converged, r.Problem)
	}
	return nil
}

// holdUp freezes one of the server's processes for a time, as a slow disk does. The returned function waits for its end.
func (m *memberPod) holdUp(t *testing.T, title string, held time.Duration) func() {
	t.Helper()
	postmaster := must(m.server())(t)
	children := must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster)))(t)
	for _, field := range strings.Fields(string(children)) {
		line, _ := os.ReadFile(filepath.Join("/proc", field, "cmdline"))
		if !strings.Contains(string(line), title) {
			continue
		}
		pid := must(strconv.Atoi(field))(t)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		time.AfterFunc(held, func() { _ = syscall.Kill(pid, syscall.SIGCONT); close(done) })
		return func() { <-done }
	}
	t.Fatalf("the server has no process %q", title)
	return nil
}

// endedWell says that the server found its data as an orderly stop leaves it, at each start that the log tells of.
func (m *memberPod) endedWell(t *testing.T) {
	t.Helper()
	log := m.lastLog(1 << 20)
	if strings.Contains(log, "was not properly shut down") || strings.Contains(log, "was interrupted") {
		t.Error("the server recovered as after a crash")
	}
	if !strings.Contains(log, "database system was shut down at") {
		t.Error("the server does not tell of an orderly stop")
	}
}
