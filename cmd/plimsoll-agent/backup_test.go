package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// backup is what etcd held at a time.
type backup struct {
	raw     []byte
	version int
}

func (a *api) save(t *testing.T) backup {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	return backup{must(json.Marshal(a.objects))(t), a.version}
}

// restore puts it back; versions begin anew from there.
func (a *api) restore(t *testing.T, b backup) {
	t.Helper()
	var objects map[string]map[string]any
	if err := json.Unmarshal(b.raw, &objects); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects, a.version = objects, b.version
}

// remake is what the manager does when the EndpointSlice is gone: a shell.
func (a *api) remake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.objects[slicePath] = map[string]any{"metadata": map[string]any{"name": "orders-rw", "resourceVersion": fmt.Sprint(a.version)}, "addressType": "IPv4"}
}

// tellVersions is the manager's part: who leads hears which versions its watches saw.
func (d *database) tellVersions() {
	d.change = func(a *engine.Aim) {
		a.Bootstrap = ""
		lead, _, err := d.leader()
		if err != nil || a.Member != lead.name {
			return
		}
		d.api.mu.Lock()
		defer d.api.mu.Unlock()
		a.LeaseVersion, a.SliceVersion = versionOf(d.api.objects[leasePath]), versionOf(d.api.objects[slicePath])
	}
}

// leads is who leads by the Lease, and by which epoch.
func (d *database) leads(t *testing.T) (string, int64) {
	t.Helper()
	r := must(lease.DecodeRecord([]byte(d.record())))(t)
	return r.Leader, int64(r.Epoch)
}

// changesHands kills the leader's pod, and starts it again once another one leads.
func (d *database) changesHands(t *testing.T) (now *memberPod, epoch int64) {
	t.Helper()
	old, _ := d.roles(t)
	old.kill()
	d.until("another one leads", 20*time.Second, func() error {
		lead, r, err := d.leader()
		if err == nil && lead == old {
			return errors.New("the old one leads")
		}
		now, epoch = lead, r.Epoch
		return err
	})
	old.start()
	d.until("all are whole", 90*time.Second, d.whole)
	return now, epoch
}

// TestEtcdIsRestored from a backup of before a change of hands: Lease and EndpointSlice name the old leader.
func TestEtcdIsRestored(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	d.tellVersions()
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)
	saved := d.api.save(t)
	lead, epoch := d.changesHands(t)
	d.until("writes flow", 10*time.Second, w.now)
	d.api.restore(t, saved)
	if name, _ := d.leads(t); name == lead.name || d.api.routed() == lead.pod.Address {
		t.Fatalf("the backup knows %s already", lead.name)
	}
	took := d.until("the leader has repaired both", 10*time.Second, func() error {
		name, now := d.leads(t)
		if name != lead.name || now != epoch+1 || d.api.routed() != lead.pod.Address {
			return fmt.Errorf("the Lease names %s with epoch %d, the EndpointSlice %s", name, now, d.api.routed())
		}
		return nil
	})
	t.Logf("repaired in %s", took.Round(time.Millisecond))
	d.until("the leader tells of both changes", 5*time.Second, func() error {
		r, err := lead.report()
		switch {
		case err != nil:
			return err
		case r.HandOver == nil || r.HandOver.Epoch != epoch || r.HandOver.Cause != "failover":
			return fmt.Errorf("change of hands %+v", r.HandOver)
		case r.Raised == nil || r.Raised.Epoch != epoch+1 || r.Raised.Why != "the Lease was deleted or restored" || r.Raised.At == 0:
			return fmt.Errorf("raised %+v", r.Raised)
		}
		return nil
	})
	d.until("writes flow", 10*time.Second, w.now)

	d.api.remake()
	d.until("clients are sent to the leader by an EndpointSlice that was made anew", 10*time.Second, func() error {
		if at := d.api.routed(); at != lead.pod.Address {
			return fmt.Errorf("they are sent to %q", at)
		}
		return nil
	})
	if now, r, err := d.leader(); err != nil || now != lead || r.Epoch != epoch+1 {
		t.Errorf("%+v leads with epoch %d (%v), want %s with %d", now, r.Epoch, err, lead.name, epoch+1)
	}
	// Its pod has to go before anybody told it of the next backup that comes back.
	d.change = func(a *engine.Aim) { a.Bootstrap = "" }
	d.api.restore(t, saved)
	if err := lead.terminate(); err != nil {
		t.Error(err)
	}
	took = d.until("another one leads", 15*time.Second, func() error {
		now, _, err := d.leader()
		if err == nil && now == lead {
			return errors.New("the old one leads")
		}
		return err
	})
	t.Logf("handed over by a leader that repaired its Lease first, in %s", took.Round(time.Millisecond))
	lead.start()
	d.tellVersions()
	d.until("all are whole", 90*time.Second, d.whole)
	acked := w.stop()
	d.keeps(t, acked)
	d.restoredWithoutLeader(t, acked)
}

// restoredWithoutLeader loses the leader in the moment in which etcd is restored. Nobody else may lead, and all say why; a person's word
// helps, and the instance that has got furthest has all that was acknowledged.
func (d *database) restoredWithoutLeader(t *testing.T, acked map[int64]time.Time) {
	saved := d.api.save(t)
	_, epoch := d.changesHands(t)
	w := d.write(1_000_000)
	d.until("writes flow", 10*time.Second, w.now)
	gone, best := d.roles(t)
	gone.kill()
	d.api.restore(t, saved)
	for id, at := range w.stop() {
		acked[id] = at
	}
	d.until("the others say that the Lease is older than what they saw", 30*time.Second, func() error {
		for _, m := range d.members {
			if m == gone {
				continue
			}
			if r, err := m.report(); err != nil || r.Reason != "LeaseOlder" || r.Leading {
				return fmt.Errorf("%s: %s %q (%w)", m.name, r.Reason, r.Problem, err)
			}
		}
		return nil
	})
	gone.start() // nor may who led by the newer one
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if lead, _, err := d.leader(); err == nil {
			t.Fatalf("%s leads by itself, by a Lease of before", lead.name)
		}
	}
	for _, m := range d.members {
		if m.says(t).Position.Bytes > best.says(t).Position.Bytes {
			best = m
		}
	}
	d.order(best, "etcd-restored")
	t.Logf("recovered: %s", d.answered(best, "etcd-restored", "Done").Message)
	w = d.write(2_000_000)
	d.until("writes flow", 20*time.Second, w.now)
	d.until("all follow", 90*time.Second, d.whole)
	for id, at := range w.stop() {
		acked[id] = at
	}
	d.keeps(t, acked)
	if _, now := d.leads(t); now <= epoch {
		t.Errorf("the new epoch is %d, and %d was used", now, epoch)
	}
}
