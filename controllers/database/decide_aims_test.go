package database

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Nobody else may tell: a steady leader never reads the Lease, nor its EndpointSlice, by itself.
func TestAnObjectThatTheLeaderDidNotWriteIsToldToItAlone(t *testing.T) {
	s := settled(3)
	s.Lease.ResourceVersion, s.SliceVersion = "99", "98" // made again, or from a backup
	told := map[string]string{}
	for _, p := range decide(s.Seen, surroundings(), noon()).Aims {
		told[p.To.Instance] = p.Aim.LeaseVersion + p.Aim.SliceVersion
	}
	if diff := cmp.Diff(map[string]string{"orders-1": "9998"}, told); diff != "" {
		t.Error(diff)
	}
}
