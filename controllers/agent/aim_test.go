package agent

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestLeaseAimLeavesOutNothing(t *testing.T) {
	got := leaseAim(engine.Aim{
		Stop: true, LeaseVersion: "99", SliceVersion: "97", Members: []engine.Peer{{Name: "a"}, {Name: "b"}}, Witness: &engine.Peer{Name: "w"}, Synchronous: "preferred",
		Switchover: &engine.Switchover{ID: "one", Target: "b"},
		Recovery:   &engine.Recovery{ID: "two", LeaseVersion: "98", Lost: []string{"b"}},
	}, lease.Time(3*time.Second), lease.Time(5*time.Second))
	want := lease.Aim{
		Fenced: true, LeaseVersion: "99", SliceVersion: "97", Members: []string{"a", "b"}, Witness: "w", Preferred: true,
		Switchover: lease.Switchover{ID: "one", Target: "b", Expires: lease.Time(3 * time.Second)},
		Recovery:   lease.Recovery{ID: "two", LeaseVersion: "98", Lost: []string{"b"}, Expires: lease.Time(5 * time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAnAimOfALaterReleaseKeepsItsRevision : an agent that does not know all of it tells the revision that it was given, also after a
// restart, and leaves what it does not know to its successor.
func TestAnAimOfALaterReleaseKeepsItsRevision(t *testing.T) {
	cfg := Config{Namespace: "shop", Database: "orders", UID: testUID, Instance: "orders-1", StateDir: t.TempDir()}
	raw, _, err := aimFor(nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	later := []byte(`{"novel":{"b":1,"a":2},` + string(raw[1:]))
	if err := replace(cfg.aimPath(), later); err != nil {
		t.Fatal(err)
	}
	got, revision, found, err := recalled(cfg)
	if err != nil || !found || revision != engine.RevisionOf(later) || cmp.Diff(aimFor(nil), got) != "" {
		t.Errorf("revision %q of %+v, want %q: %v", revision, got, engine.RevisionOf(later), err)
	}
	if kept, err := os.ReadFile(cfg.aimPath()); err != nil || string(kept) != string(later) {
		t.Errorf("kept is %s, %v", kept, err)
	}
}

// TestBothSidesNumberAnAimAlike : the manager by what it sends, the agent by what came.
func TestBothSidesNumberAnAimAlike(t *testing.T) {
	d := newDesk(t)
	aim := aimFor(func(a *engine.Aim) { a.Files = map[string]string{"b": "<&>", "a": "\u2028"} })
	if err := d.client(t, d.ca.Leaf(t, testUID, client.ManagerName)).SetAim(t.Context(), here.Address, aim); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	want, err := aim.Revision()
	if err != nil || len(d.raws) != 1 || engine.RevisionOf(d.raws[0]) != want {
		t.Errorf("it came as %s, want revision %s, %v", d.raws, want, err)
	}
}
