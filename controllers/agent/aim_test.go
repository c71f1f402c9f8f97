package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestLeaseAimLeavesOutNothing(t *testing.T) {
	got := leaseAim(engine.Aim{
		Stop: true, LeaseVersion: "99", Members: []engine.Peer{{Name: "a"}, {Name: "b"}}, Witness: &engine.Peer{Name: "w"}, Synchronous: "preferred",
		Switchover: &engine.Switchover{ID: "one", Target: "b"},
		Recovery:   &engine.Recovery{ID: "two", LeaseVersion: "98", Lost: []string{"b"}},
	}, lease.Time(3*time.Second), lease.Time(5*time.Second))
	want := lease.Aim{
		Fenced: true, LeaseVersion: "99", Members: []string{"a", "b"}, Witness: "w", Preferred: true,
		Switchover: lease.Switchover{ID: "one", Target: "b", Expires: lease.Time(3 * time.Second)},
		Recovery:   lease.Recovery{ID: "two", LeaseVersion: "98", Lost: []string{"b"}, Expires: lease.Time(5 * time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
