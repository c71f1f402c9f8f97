package database

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestInstancesAreShownByTheirRoles : an alert wakes somebody where none is primary, and nobody for a Database that sleeps.
func TestInstancesAreShownByTheirRoles(t *testing.T) {
	all := []v1.InstanceStatus{{Role: v1.RolePrimary}, {Role: v1.RoleReplica}, {Role: v1.RoleReplica}, {Role: v1.RoleUnknown}}
	for phase, want := range map[v1.Phase][3]int{v1.PhaseRunning: {1, 2, 1}, v1.PhaseDown: {1, 2, 1}, v1.PhaseHibernated: {}} {
		got := shownOf(v1.DatabaseStatus{Phase: phase, Instances: all})
		if d := cmp.Diff(want, [3]int{got.primaries, got.replicas, got.unknown}); d != "" {
			t.Errorf("%s: %s", phase, d)
		}
	}
}
