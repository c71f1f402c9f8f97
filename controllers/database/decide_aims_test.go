package database

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Nobody else may tell: a steady leader never reads the Lease by itself.
func TestALeaseThatTheLeaderDidNotWriteIsToldToItAlone(t *testing.T) {
	s := settled(3)
	s.Lease.ResourceVersion = "99" // made again, or from a backup
	told := map[string]string{}
	for _, p := range decide(s.Seen, surroundings(), noon()).Aims {
		told[p.To.Instance] = p.Aim.LeaseVersion
	}
	if diff := cmp.Diff(map[string]string{"orders-1": "99"}, told); diff != "" {
		t.Error(diff)
	}
}
