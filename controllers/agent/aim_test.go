package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestLeaseAimLeavesOutNothing(t *testing.T) {
	at := time.UnixMilli(1_000_000)
	got := leaseAim(engine.Aim{
		Stop: true, LeaseVersion: "99", Members: []engine.Peer{{Name: "a"}, {Name: "b"}},
		Switchover: &engine.Switchover{ID: "one", Target: "b", Expires: at.Add(2 * time.Second).UnixMilli()},
	}, lease.Time(time.Second), at)
	want := lease.Aim{
		Fenced: true, LeaseVersion: "99", Members: []string{"a", "b"},
		Switchover: lease.Switchover{ID: "one", Target: "b", Expires: lease.Time(3 * time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
