package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestASliceThatSomebodyElseWroteIsLookedAtOnce: by the manager's word, and without a word of it in the time line of the change of hands.
func TestASliceThatSomebodyElseWroteIsLookedAtOnce(t *testing.T) {
	w := settled(t, 3)
	routes := func() (n int) {
		for range 40 {
			w.run(50 * time.Millisecond)
		}
		return w.counts["routes"]
	}
	before := routes()
	if again := routes(); again != before {
		t.Fatalf("an idle leader looks at the EndpointSlice: %d times", again-before)
	}
	line := w.nodes[0].m.line
	for _, version := range []string{"7", "9"} {
		w.want(func(a *Aim) { a.SliceVersion = version })
		if now := routes(); now != before+1 {
			t.Errorf("version %s is looked at %d times, want once", version, now-before)
		} else {
			before = now
		}
	}
	if diff := cmp.Diff(line, w.nodes[0].m.line); diff != "" {
		t.Errorf("the time line (-was +is):\n%s", diff)
	}
}

// TestALeaderThatLeavesLooksAtTheLeaseFirst: etcd came back from a backup, and before anybody told the leader, its pod has to go: the
// backup knows it under an older UID. Nobody could take over by the Lease of the backup; by one that the leader repaired, the heir can.
func TestALeaderThatLeavesLooksAtTheLeaseFirst(t *testing.T) {
	leave := func(_ *testing.T, w *world) { w.nodes[0].leaving = true; w.nodes[0].step(Leaving{}) }
	tests := map[string]struct {
		hurt   func(t *testing.T, w *world)
		within time.Duration
	}{
		"it hands over": {leave, 4 * time.Second},
		"it is killed a second later": {func(t *testing.T, w *world) {
			leave(t, w)
			w.run(time.Second)
			w.nodes[0].crash()
		}, 8 * time.Second},
		"an API server that is away holds it up for a moment only": {func(t *testing.T, w *world) {
			w.apiDown = true
			leave(t, w)
			w.run(3 * time.Second)
			w.apiDown = false
			if w.nodes[0].m.stage == leading {
				t.Error("it waits for the API server, which may be away for long")
			}
			w.lease = Seen{ResourceVersion: "98", Record: w.nodes[0].m.store.seen.Record, HasRecord: true} // not restored after all
		}, 8 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			old := w.lease.Record
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m1"} })
			if !w.runUntil(8*time.Second, func() bool { return w.lease.Record.Leader == "m1" }) {
				t.Fatal(w.tail(40))
			}
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "two", Target: "m0"} })
			if !w.runUntil(20*time.Second, func() bool { return w.lease.Record.Leader == "m0" }) {
				t.Fatal(w.tail(40))
			}
			w.run(5 * time.Second)
			epoch := w.lease.Record.Epoch
			w.version = 99
			w.lease = Seen{ResourceVersion: "99", Record: old, HasRecord: true}
			test.hurt(t, w)
			if !w.runUntil(test.within, func() bool { return w.lease.Record.Leader != "m0" && w.lease.Record.Epoch > epoch }) {
				t.Errorf("nobody took over from the leader of epoch %d: %+v\n%s", epoch, w.lease.Record, w.tail(40))
			}
			w.run(5 * time.Second)
			if w.violation != "" {
				t.Errorf("%s\n%s", w.violation, w.tail(40))
			}
		})
	}
}

// TestASwitchoverWithoutTheAPIServerIsCalledOff: nobody could be elected, so a leader that need not go leads on.
func TestASwitchoverWithoutTheAPIServerIsCalledOff(t *testing.T) {
	w := settled(t, 3)
	w.apiDown = true
	w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m1"} })
	lead, before := w.nodes[0].m, w.counts["acked"]
	for range 150 {
		w.run(100 * time.Millisecond)
		if p := lead.lead.hand.phase; lead.stage != leading || p != PhaseNone && p != PhasePreparing {
			t.Fatalf("it is %s, and hands over: %s\n%s", lead.stage, p, w.tail(40))
		}
	}
	if got := lead.lead.hand; got.phase != PhaseNone || got.aborted != "one" || w.counts["acked"] == before {
		t.Errorf("the hand-over: %+v, %d writes acknowledged", got, w.counts["acked"]-before)
	}
	w.apiDown = false
	w.want(func(a *Aim) { a.Switchover = Switchover{ID: "two", Target: "m1"} })
	if !w.runUntil(12*time.Second, func() bool { return w.lease.Record.Leader == "m1" }) {
		t.Errorf("%s leads\n%s", w.lease.Record.Leader, w.tail(40))
	}
	if w.violation != "" {
		t.Error(w.violation)
	}
}

// TestASwitchoverWaitsForTheRepairOfTheLease: the leader is asked to hand over when its Lease is gone, or older. By what stands there nobody
// could be elected, and only a leader can mend it, so it goes on leading until that is done.
func TestASwitchoverWaitsForTheRepairOfTheLease(t *testing.T) {
	tests := map[string]struct {
		hurt, moment, mend func(w *world)
	}{
		"it was deleted, and the manager makes the object anew": {
			hurt:   func(w *world) { w.lease = Seen{} },
			moment: func(*world) {},
			mend:   func(w *world) { w.version++; w.lease = Seen{ResourceVersion: fmt.Sprint(w.version)} },
		},
		"it is older, and the grants are late when that is seen": {
			hurt: func(w *world) { w.version = 99; w.lease.ResourceVersion = "99"; w.lease.Record.Epoch-- },
			moment: func(w *world) {
				m := w.nodes[0].m
				for name := range m.lead.grants {
					m.lead.grants[name] = m.now.Add(-m.cfg.Grant * 6 / 10)
				}
			},
			mend: func(*world) {},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			lead, began := w.nodes[0].m, w.now
			test.hurt(w)
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m1"} })
			for range 200 { // of which the first half second is the moment
				if w.now-began < 500*time.Millisecond {
					test.moment(w)
				}
				w.run(5 * time.Millisecond)
				p := lead.lead.hand.phase
				if usable := w.lease.HasRecord && w.lease.Record.Epoch >= lead.lead.epoch; !usable && (lead.stage != leading || p != PhaseNone && p != PhasePreparing) {
					t.Fatalf("it is %s, in phase %q of the hand-over, with the Lease %+v\n%s", lead.stage, p, w.lease, w.tail(40))
				}
			}
			test.mend(w)
			if !w.runUntil(20*time.Second, func() bool { return w.lease.Record.Leader == "m1" }) {
				w.want(func(a *Aim) { a.Switchover = Switchover{ID: "two", Target: "m1"} })
				if !w.runUntil(20*time.Second, func() bool { return w.lease.Record.Leader == "m1" }) {
					t.Errorf("%+v\n%s", w.lease, w.tail(40))
				}
			}
			if w.violation != "" {
				t.Errorf("%s\n%s", w.violation, w.tail(40))
			}
		})
	}
}
