package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// TestWithoutTheAPIServer : a primary that leads does not notice; a failover waits for the API server, says so while it does, and the
// winner tells afterwards for how long.
func TestWithoutTheAPIServer(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.start()
	}
	w := d.writing()
	for _, row := range []struct {
		what string
		hurt func(lead *memberPod)
		step string
	}{
		{"the server is killed: the leader says that it has ended", func(lead *memberPod) {
			if err := syscall.Kill(must(lead.server())(t), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, "released"},
		{"the pod is gone: its time runs out", func(lead *memberPod) { lead.kill() }, "expired"},
	} {
		d.until("all are whole", time.Minute, d.whole)
		d.until("writes flow", 10*time.Second, w.now)
		lead, before, err := d.leader()
		if err != nil {
			t.Fatal(err)
		}
		d.api.leave(true)
		time.Sleep(2 * lease.Default("", "", 0).Grant)
		d.until("writes flow without the API server", 10*time.Second, w.now)
		if r := lead.says(t); !r.Leading || !r.Ready || r.Epoch != before.Epoch || r.Waits != nil {
			t.Errorf("%s: without the API server %s leads %v, ready %v, at epoch %d, waits %+v", row.what, lead.name, r.Leading, r.Ready, r.Epoch, r.Waits)
		}
		hurtAt := time.Now()
		row.hurt(lead)
		d.until("the others say what they wait for", 15*time.Second, func() error {
			for _, m := range d.members {
				if m == lead {
					continue
				}
				r, err := m.report()
				if err != nil || r.Waits == nil || r.Waits.For != string(lease.WaitAPIServer) || r.Waits.Text != "the API server does not answer, and nobody is elected without it" {
					return fmt.Errorf("%s waits for %+v, %w", m.name, r.Waits, err)
				}
			}
			return nil
		})
		time.Sleep(time.Until(hurtAt.Add(8 * time.Second)))
		d.api.leave(false)
		d.until("another leads", 20*time.Second, func() error {
			next, r, err := d.leader()
			if err == nil && (next == lead && row.step == "expired" || r.Epoch == before.Epoch || r.HandOver == nil || r.HandOver.Routed == 0) {
				return errors.New("nothing has changed yet")
			}
			return err
		})
		_, r, _ := d.leader()
		h := r.HandOver
		t.Logf("%s: %s", row.what, steps(h))
		if got := map[bool]string{h.Released > 0: "released", h.Expired > 0: "expired"}[true]; got != row.step || h.Released > 0 && h.Expired > 0 {
			t.Errorf("%s: it %s, want %s: %s", row.what, got, row.step, steps(h))
		}
		if !strings.Contains(h.Waited, " s for the API server") {
			t.Errorf("%s: it tells of %q", row.what, h.Waited)
		}
		if lead.cmd == nil {
			lead.start()
		}
		d.until("nobody waits any more", 30*time.Second, func() error {
			for _, m := range d.members {
				if r, err := m.report(); err != nil || r.Waits != nil {
					return fmt.Errorf("%s waits for %+v, %w", m.name, r.Waits, err)
				}
			}
			return nil
		})
	}
	d.keeps(t, w.stop())
}
