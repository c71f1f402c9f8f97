package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// leaseVersion is what a person was shown.
func (d *database) leaseVersion() string {
	d.api.mu.Lock()
	defer d.api.mu.Unlock()
	return versionOf(d.api.objects[leasePath])
}

// order has a member recover, with the members that are down as lost, by the manager's word.
func (d *database) order(m *memberPod, id string) {
	o := &engine.Recovery{ID: id, LeaseVersion: d.leaseVersion(), Within: time.Minute.Milliseconds()}
	d.change = func(a *engine.Aim) {
		a.Bootstrap = ""
		if a.Member != m.name {
			return
		}
		a.Recovery = o
		o.Lost = nil
		for _, other := range d.members {
			if other.cmd == nil {
				o.Lost = append(o.Lost, other.name)
			}
		}
	}
	d.publish()
}

// answered waits for the member's answer to an order.
func (d *database) answered(m *memberPod, id, state string) engine.Answer {
	var last engine.Answer
	d.until(m.name+" answers "+id, 30*time.Second, func() error {
		r, err := m.report()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(r.Requests, func(a engine.Answer) bool { return a.ID == id })
		if i < 0 {
			return errors.New("no answer")
		}
		if last = r.Requests[i]; last.State != state {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	return last
}

// empties removes what is on a member's volume. Its pod must be down.
func (m *memberPod) empties(t *testing.T) {
	t.Helper()
	for _, e := range must(os.ReadDir(m.pod.Data))(t) {
		if err := os.RemoveAll(filepath.Join(m.pod.Data, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecover loses two of three volumes and recovers from the third, by a person's order and not without one.
func TestRecover(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)
	time.Sleep(time.Second)
	lead, left := d.roles(t)

	d.order(left, "too-early")
	if got := d.answered(left, "too-early", "Failed"); got.Message != lead.name+" leads with epoch 1" {
		t.Errorf("refused with %q while %s leads", got.Message, lead.name)
	}
	acked := w.stop()
	d.keeps(t, acked)

	var gone []*memberPod
	for _, m := range d.members {
		if m != left {
			gone = append(gone, m)
			m.kill()
			m.empties(t)
		}
	}
	time.Sleep(6 * time.Second)
	if r := left.says(t); r.Leading || r.Role == engine.Primary {
		t.Fatalf("%s leads by itself with two of three gone: %+v", left.name, r)
	}
	begin := time.Now()
	d.order(left, "loss-accepted")
	t.Logf("both others gone: %s after %s", d.answered(left, "loss-accepted", "Done").Message, time.Since(begin).Round(time.Millisecond))
	d.until("it serves", 20*time.Second, func() error { _, _, err := d.leader(); return err })
	w = d.write(1_000_000)
	d.until("writes flow", 20*time.Second, w.now)
	for _, m := range gone {
		m.start()
	}
	d.until("the others were copied anew", 90*time.Second, d.whole)
	for id, at := range w.stop() {
		acked[id] = at
	}
	d.keeps(t, acked)
	if now, _ := d.roles(t); now != left {
		t.Errorf("%s leads, want %s", now.name, left.name)
	}

	d.oldLeaderReturns(t)
	d.recordIsLost(t)
}

// recordIsLost loses the leader and the Lease's record at once. Nobody can be elected, though two of three hold data: what the record said
// is not known. The new leadership begins far past all that may have been used, with real timelines.
func (d *database) recordIsLost(t *testing.T) {
	w := d.write(4_000_000)
	d.until("writes flow", 20*time.Second, w.now)
	old, left := d.roles(t)
	acked := w.stop()
	d.keeps(t, acked)
	old.kill()
	d.api.mu.Lock()
	d.api.version++
	d.api.objects[leasePath]["metadata"] = map[string]any{"name": "orders", "resourceVersion": strconv.Itoa(d.api.version)}
	d.api.mu.Unlock()
	time.Sleep(8 * time.Second)
	for _, m := range d.members {
		if r, err := m.report(); m != old && err == nil && r.Role == engine.Primary {
			t.Fatalf("%s leads without a record", m.name)
		}
	}
	for _, m := range d.members { // the one that has got furthest
		if m != old && m.says(t).Position.Bytes > left.says(t).Position.Bytes {
			left = m
		}
	}
	d.order(left, "without-a-record")
	t.Logf("the record lost: %s", d.answered(left, "without-a-record", "Done").Message)
	w = d.write(5_000_000)
	d.until("writes flow", 20*time.Second, w.now)
	old.start()
	d.until("all follow", 90*time.Second, d.whole)
	for id, at := range w.stop() {
		acked[id] = at
	}
	d.keeps(t, acked)
	if r := left.says(t); !r.Leading || r.Epoch < 1024 || r.Position.Timeline < 64 {
		t.Errorf("%s leads %v with epoch %d and timeline %d, which may have been used", left.name, r.Leading, r.Epoch, r.Position.Timeline)
	}
}

// oldLeaderReturns loses one volume, has the leader away with its data and with rows that nobody else has, and recovers without it.
// When it comes back it neither leads nor serves what it has alone.
func (d *database) oldLeaderReturns(t *testing.T) {
	old, left := d.roles(t)
	var third *memberPod
	for _, m := range d.members {
		if m != old && m != left {
			third = m
		}
	}
	third.kill()
	third.empties(t)
	w := d.write(2_000_000)
	d.until("writes flow to two of three", 20*time.Second, w.now)
	acked := w.stop()
	d.until(left.name+" holds them", 10*time.Second, func() error {
		a, b := old.says(t), left.says(t)
		if b.Position.Bytes < a.Position.Bytes {
			return fmt.Errorf("%s and %s", a.Position.Text, b.Position.Text)
		}
		return nil
	})
	left.kill()
	d.alone(t, old)
	old.kill()
	left.start()
	d.until(left.name+" is there", 20*time.Second, func() error {
		if r, err := left.report(); err != nil || r.Role != engine.Replica {
			return fmt.Errorf("%+v, %w", r.Role, err)
		}
		return nil
	})
	d.order(left, "without-the-leader")
	t.Logf("the leader away: %s", d.answered(left, "without-the-leader", "Done").Message)
	w = d.write(3_000_000)
	d.until("writes flow", 20*time.Second, w.now)

	old.start()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r, err := old.report(); err == nil && (r.Leading || r.Role == engine.Primary) {
			t.Fatalf("the old leader %s leads or serves again: %+v", old.name, r)
		}
	}
	third.start()
	d.until("both are back", 90*time.Second, d.whole)
	for id, at := range w.stop() {
		acked[id] = at
	}
	d.keeps(t, acked)
	if now, _ := d.roles(t); now != left {
		t.Errorf("%s leads, want %s", now.name, left.name)
	}
	for _, m := range d.members {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		c := must(d.connect(ctx, m.pod.Address))(t)
		var there bool
		if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM ledger WHERE id = -1)").Scan(&there); err != nil || there {
			t.Errorf("%s has what the old leader had alone: %v, %v", m.name, there, err)
		}
		_ = c.Close(ctx)
		cancel()
	}
}

// alone writes a row that waits for no replica, while no other member runs.
func (d *database) alone(t *testing.T, lead *memberPod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c := must(d.connect(ctx, lead.pod.Address))(t)
	defer func() { _ = c.Close(ctx) }()
	if _, err := c.Exec(ctx, "SET synchronous_commit = local; INSERT INTO ledger (id) VALUES (-1)"); err != nil {
		t.Fatal(err)
	}
}
