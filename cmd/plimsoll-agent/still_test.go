package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestStandsStill hurts a replica in ways that leave its server up and its connection whole, and looks whether its bytes give it away.
func TestStandsStill(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.pod.Agent.Still, m.pod.Agent.Turn = stillFor, 5*time.Second
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	t.Run("nobody writes", func(t *testing.T) { d.t = t; d.rests(t) })
	d.t = t
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)

	t.Run("its startup process hangs", func(t *testing.T) {
		d.t = t
		_, follower := d.roles(t)
		before := must(follower.server())(t)
		if err := syscall.Kill(follower.child(t, "startup"), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		stop := d.load(t)
		d.until("it is not ready any more", 30*time.Second, func() error { return standing(follower) })
		t.Logf("not ready after %s", time.Since(begin).Round(time.Second))
		stop()
		d.until("its server is another one", 3*time.Minute, func() error {
			if now, err := follower.server(); err != nil || now == before {
				return errors.Join(err, fmt.Errorf("it is still %d", before))
			}
			return nil
		})
		took := time.Since(begin)
		t.Logf("started again after %s", took.Round(time.Second))
		if took < stillFor-2*time.Second {
			t.Errorf("its patience is %s", stillFor)
		}
		d.until("all three are whole", time.Minute, d.whole)
		t.Logf("whole after %s", time.Since(begin).Round(time.Second))
	})
	t.Run("its data is damaged where its log goes on", func(t *testing.T) { d.t = t; d.damaged(t) })
	d.t = t
	d.until("writes flow", 10*time.Second, w.now)
	d.keeps(t, w.stop())
}

// rests reads a little, which writes log without commits, and otherwise leaves the Database alone: nobody may be blamed for that.
func (d *database) rests(t *testing.T) {
	lead, _ := d.roles(t)
	c := must(d.connect(t.Context(), lead.pod.Address))(t)
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := c.Exec(t.Context(), "SELECT pg_logical_emit_message(false, 'rest', repeat('x', 300000))"); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < behindAndMore; time.Sleep(200 * time.Millisecond) {
		for _, m := range d.members {
			if r := m.says(t); !r.Ready || r.Reason != "" {
				t.Fatalf("after %s %s is ready: %v, %s %s", time.Since(begin), m.name, r.Ready, r.Reason, r.Problem)
			}
		}
	}
}

const (
	// stillFor is the patience of these agents with a standstill. The usual one is a minute, which controllers/agent tests by a clock of its
	// own; this one is longer than what makes a replica not ready.
	stillFor = 20 * time.Second
	// behindAndMore is longer than that, and than a log may end in the middle of a record that no replica can apply, which is for half a
	// minute: after it only the patience with the last few bytes is left, which is five minutes.
	behindAndMore = 40 * time.Second
)

// damaged makes a file of a replica unreadable: its server ends whenever it comes to it. Starting it again does not help, copying does.
func (d *database) damaged(t *testing.T) {
	lead, follower := d.roles(t)
	c := must(d.connect(t.Context(), lead.pod.Address))(t)
	var path string
	if err := c.QueryRow(t.Context(), "SELECT pg_relation_filepath('ledger')").Scan(&path); err != nil {
		t.Fatal(err)
	}
	_ = c.Close(t.Context())
	_, before, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(follower.pod.Data, "pgdata", path), 0); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(must(follower.server())(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	d.until("it is copied anew, as no voter", 5*time.Minute, func() error {
		r, err := follower.report()
		if err != nil {
			return err
		}
		if r.Ready && time.Since(begin) > 3*time.Second {
			t.Fatalf("it is ready: %+v", r)
		}
		_, told, err := d.leader()
		if err != nil {
			return err
		}
		if r.State != "cloning" {
			return fmt.Errorf("it is %s: %s %s", r.State, r.Reason, r.Problem)
		}
		if slices.Contains(told.Voters, follower.name) {
			t.Fatalf("it is copied as one of the voters %q", told.Voters)
		}
		t.Logf("%s: %s", r.Reason, r.Problem)
		return nil
	})
	t.Logf("copied anew after %s", time.Since(begin).Round(time.Second))
	d.until("all three are whole", time.Minute, d.whole)
	t.Logf("whole after %s", time.Since(begin).Round(time.Second))
	if _, after, err := d.leader(); err != nil || after.Epoch != before.Epoch {
		t.Errorf("the leader changed: epoch %d after %d (%v)", after.Epoch, before.Epoch, err)
	}
}

// standing says whether the member says that it stands still, and is not ready.
func standing(m *memberPod) error {
	r, err := m.report()
	if err != nil {
		return err
	}
	if r.Ready || r.Reason != "StandsStill" || !strings.Contains(r.Problem, "stands still") || r.Role != engine.Replica {
		return fmt.Errorf("it is a %s, ready %v: %s %s", r.Role, r.Ready, r.Reason, r.Problem)
	}
	return nil
}

// child is the host's number of the server's process whose title holds the word.
func (m *memberPod) child(t *testing.T, word string) int {
	t.Helper()
	pid := must(m.server())(t)
	children := must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))(t)
	for field := range strings.FieldsSeq(string(children)) {
		line, _ := os.ReadFile(filepath.Join("/proc", field, "cmdline"))
		if strings.Contains(string(line), word) {
			var n int
			_, err := fmt.Sscan(field, &n)
			return must(n, err)(t)
		}
	}
	t.Fatalf("the server of %s has no process %q", m.name, word)
	return 0
}
