package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// newPair is a Database of two members that both run, and their witness.
func newPair(t *testing.T, mode string) *database {
	d := newDatabase(t, 2)
	d.watch(1)
	d.change = func(a *engine.Aim) { a.Synchronous = mode }
	for _, m := range append(slices.Clone(d.members), d.witness) {
		m.start()
	}
	d.until("two members and their witness vote", 60*time.Second, d.whole)
	return d
}

// record is the Lease's, as the API server holds it.
func (d *database) record() string {
	d.api.mu.Lock()
	defer d.api.mu.Unlock()
	meta, _ := d.api.objects[leasePath]["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	text, _ := notes["plimsoll.dev/leadership"].(string)
	return text
}

// TestPairPreferred runs two servers and a witness, in the mode that goes on with one: the loss of either is survived, and nothing that
// was acknowledged is lost. The gaps in writes are printed.
func TestPairPreferred(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newPair(t, "preferred")
	w := d.write(0)
	for name, hurt := range map[string]func(t *testing.T, lead *memberPod){
		"server killed": func(t *testing.T, lead *memberPod) {
			if err := syscall.Kill(must(lead.server())(t), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		"pod killed": func(_ *testing.T, lead *memberPod) { lead.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			d.until("both are in step", 60*time.Second, d.inStep)
			d.disturb(t, w, func(lead *memberPod) { hurt(t, lead) })
		})
	}
	t.Run("switchover", func(t *testing.T) {
		d.t = t
		d.until("both are in step", 60*time.Second, d.inStep)
		old, before, err := d.leader()
		if err != nil {
			t.Fatal(err)
		}
		w.reset()
		mode := d.change
		d.change = func(a *engine.Aim) {
			mode(a)
			a.Switchover = &engine.Switchover{ID: "planned", Target: d.other(old).name, Within: time.Hour.Milliseconds()}
		}
		d.until("the other leads", 40*time.Second, func() error {
			_, r, err := d.leader()
			if err == nil && r.Epoch <= before.Epoch {
				return errors.New("nothing has changed yet")
			}
			return err
		})
		d.change = mode
		d.until("writes flow again", 10*time.Second, func() error { return w.flows(time.Now().Add(-50 * time.Millisecond)) })
		gap, _ := w.longest()
		t.Logf("gap in writes %s", gap.Round(time.Millisecond))
	})
	t.Run("replica killed", func(t *testing.T) {
		d.t = t
		d.replicaLost(t, w)
	})
	t.Run("who was left behind does not lead", func(t *testing.T) {
		d.t = t
		d.leftBehind(t, w)
	})
	d.t = t
	d.keeps(t, w.stop())
	t.Logf("the Lease says %s", d.record())
}

// replicaLost takes the replica away: writes go on once the Lease says that the leader alone holds all.
func (d *database) replicaLost(t *testing.T, w *writer) {
	d.until("both are whole", 60*time.Second, d.whole)
	lead, _, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	d.until("writes flow", 10*time.Second, func() error { return w.flows(time.Now().Add(-50 * time.Millisecond)) })
	w.reset()
	other := d.other(lead)
	other.kill()
	at := time.Now()
	d.until("writes go on without it", 20*time.Second, func() error { return w.flows(at.Add(2 * time.Second)) })
	gap, _ := w.longest()
	t.Logf("gap in writes %s; the Lease says %s", gap.Round(time.Millisecond), d.record())
	if !degraded(d.record()) {
		t.Error("writes were acknowledged by one member that the Lease does not name as the only one")
	}
	other.start()
	d.until("both again, and the Lease says so", 60*time.Second, d.inStep)
}

// leftBehind takes the replica away, then the leader, and brings the replica back alone.
func (d *database) leftBehind(t *testing.T, w *writer) {
	lead, _, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	other := d.other(lead)
	other.kill()
	d.until("writes go on without the replica", 20*time.Second, func() error {
		if !degraded(d.record()) {
			return errors.New("the Lease names no only holder")
		}
		return w.flows(time.Now().Add(-50 * time.Millisecond))
	})
	lead.kill()
	other.start()
	begin := time.Now()
	for time.Since(begin) < 10*time.Second {
		if r, err := other.report(); err == nil && r.Leading {
			t.Fatal("it leads without what the other acknowledged alone")
		}
		d.publish()
		time.Sleep(200 * time.Millisecond)
	}
	lead.start()
	d.until("both again, and the Lease says so", 60*time.Second, d.inStep)
}

// TestPairRequired runs the mode in which each write is on both: after the loss of one, the other leads and its writes wait.
func TestPairRequired(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newPair(t, "required")
	w := d.write(0)
	d.until("writes flow", 10*time.Second, func() error { return w.flows(time.Now().Add(-50 * time.Millisecond)) })
	lead, before, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	lead.kill()
	took := d.until("the other leads", 20*time.Second, func() error {
		_, r, err := d.leader()
		if err == nil && r.Epoch <= before.Epoch {
			return errors.New("nothing has changed yet")
		}
		return err
	})
	if time.Sleep(5 * time.Second); w.flows(begin.Add(time.Second)) == nil {
		t.Error("a write was acknowledged by one member, although each was to be on both")
	}
	lead.start()
	d.until("writes flow again", 30*time.Second, func() error { return w.flows(time.Now().Add(-50 * time.Millisecond)) })
	gap, _ := w.longest()
	t.Logf("the other led after %s; the gap in writes, with the first away for 5 s more, was %s", took.Round(time.Millisecond), gap.Round(time.Millisecond))
	d.until("both are whole", 60*time.Second, d.whole)

	// Another witness takes the place of the first, which is lost.
	d.witness.kill()
	d.watch(2)
	d.witness.start()
	took = d.until("another witness votes", 20*time.Second, func() error {
		_, r, err := d.leader()
		if err == nil && !slices.Contains(r.Voters, "orders-w2") {
			return fmt.Errorf("voters are %v", r.Voters)
		}
		return err
	})
	t.Logf("another witness voted after %s", took.Round(time.Millisecond))
	asked := time.Now()
	if err := d.witness.terminate(); err != nil {
		t.Errorf("the witness ended with %v", err)
	}
	if went := time.Since(asked); went < engine.WitnessGrace-engine.WitnessReserve {
		t.Errorf("it ended after %s, though the leader counted on it and no other was there", went.Round(time.Millisecond))
	}
	d.keeps(t, w.stop())
}

func (d *database) other(than *memberPod) *memberPod {
	if d.members[0] == than {
		return d.members[1]
	}
	return d.members[0]
}

func (d *database) inStep() error {
	if err := d.whole(); err != nil {
		return err
	}
	if degraded(d.record()) {
		return errors.New("the Lease says that one alone holds all")
	}
	return nil
}

func degraded(record string) bool { return strings.Contains(record, `"degraded":true`) }
