package lease

import (
	"testing"
	"time"
)

// TestLeaseRestoredWithinAnEpoch: etcd comes back from a backup of before a change of members. The epoch is the same, so only the
// record's version tells. Three voters became five, and what is acknowledged now may be held by the leader and the two new ones alone.
func TestLeaseRestoredWithinAnEpoch(t *testing.T) {
	tests := map[string]struct {
		told bool // the leader hears of it while it has grants
	}{
		"a leader with grants repairs it":                       {true},
		"without a leader, who saw the later list stands aside": {false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 5)
			old := w.lease.Record
			w.want(func(a *Aim) { a.Members = []string{"m0", "m1", "m2", "m3", "m4"} })
			if !w.runUntil(20*time.Second, func() bool { return len(w.lease.Record.Voters) == 5 }) {
				t.Fatalf("voters %v\n%s", w.lease.Record.Voters, w.tail(60))
			}
			w.run(2 * time.Second)
			for _, name := range []string{"m1", "m2"} { // they grant, and receive nothing more
				n := w.byName[name]
				n.upstream = name
				n.serverRun++
			}
			before := w.counts["acked"]
			w.run(2 * time.Second)
			if w.counts["acked"] == before {
				t.Fatal("nothing is acknowledged")
			}
			w.version = 99
			w.lease = Seen{ResourceVersion: "99", Record: old, HasRecord: true}
			if test.told {
				w.want(func(a *Aim) { a.LeaseVersion = "99" })
				w.run(3 * time.Second)
				if got := w.lease.Record; len(got.Voters) != 5 || got.Epoch <= old.Epoch || got.Leader != "m0" {
					t.Errorf("after three seconds the Lease holds %+v", got)
				}
			}
			w.nodes[0].crash()
			w.run(15 * time.Second)
			if w.violation != "" {
				t.Errorf("%s\n%s", w.violation, w.tail(40))
			}
		})
	}
}
