package lease

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// recover gives a member the order, on the Lease as it stands, with the members that are down as lost.
func (w *world) recover(n *node) {
	o := Recovery{ID: w.now.String(), LeaseVersion: w.lease.ResourceVersion}
	for _, other := range w.nodes {
		if other != n && !other.up {
			o.Lost = append(o.Lost, other.name)
		}
	}
	w.order(n, o)
}

func (w *world) order(n *node, o Recovery) {
	w.logf("ORDER %s recovers, lost %v", n.name, o.Lost)
	a := w.aim
	a.Recovery = o
	n.later(w.between(0, 100*time.Millisecond), func() {
		a.Recovery.Expires = n.clock().Add(time.Minute)
		n.step(a)
	})
}

func (w *world) refusal() string {
	for k := range w.counts {
		if why, ok := strings.CutPrefix(k, "Refused: "); ok {
			return why
		}
	}
	return ""
}

// TestRecover: what a person orders after a majority is lost, and when the order is not carried out.
func TestRecover(t *testing.T) {
	wiped := func(w *world, names ...string) {
		for _, name := range names {
			w.byName[name].loseDisk(true)
		}
		w.run(5 * time.Second)
	}
	tests := map[string]struct {
		do      func(t *testing.T, w *world)
		leader  string
		refused string // a part of the words; empty: it is carried out
		voters  string
	}{
		"the leader and a replica have lost their volumes, and are there again without data": {func(_ *testing.T, w *world) {
			wiped(w, "m0", "m2")
			w.byName["m0"].start()
			w.byName["m2"].start()
			w.run(5 * time.Second)
			w.recover(w.byName["m1"])
			w.run(15 * time.Second)
		}, "m1", "", "m0 m1 m2"},
		"both others are gone, and stay away": {func(_ *testing.T, w *world) {
			wiped(w, "m1", "m2")
			w.recover(w.byName["m0"])
			w.run(10 * time.Second)
		}, "m0", "", "m0"},
		"the old leader was only away, and comes back with its data": {func(t *testing.T, w *world) {
			w.byName["m2"].loseDisk(true)
			w.byName["m0"].crash()
			w.run(5 * time.Second)
			w.recover(w.byName["m1"])
			w.run(5 * time.Second)
			w.byName["m0"].start()
			w.run(15 * time.Second)
			if got := w.byName["m0"]; got.server == ServerPrimary || got.upstream != "m1" {
				t.Errorf("m0 is %s and follows %q", got.server, got.upstream)
			}
		}, "m1", "", "m0 m1"},
		"the old leader comes back while it cannot reach the API": {func(t *testing.T, w *world) {
			w.byName["m2"].loseDisk(true)
			w.byName["m0"].crash()
			w.run(5 * time.Second)
			w.recover(w.byName["m1"])
			w.run(5 * time.Second)
			w.byName["m0"].noAPI = true
			w.byName["m0"].start()
			w.run(15 * time.Second)
			if w.byName["m0"].server == ServerPrimary {
				t.Error("it serves as primary")
			}
		}, "m1", "", ""},
		"the record is lost with the leader": {func(t *testing.T, w *world) {
			wiped(w, "m0", "m2")
			w.version, w.lease = 99, Seen{ResourceVersion: "99"}
			w.recover(w.byName["m1"])
			w.run(8 * time.Second)
			w.byName["m0"].start()
			w.byName["m2"].start()
			w.run(15 * time.Second)
			if got := w.lease.Record; got.Epoch < leapEpochs || got.Timeline < leapTimelines {
				t.Errorf("epoch %d and timeline %d may have been used before", got.Epoch, got.Timeline)
			}
		}, "m1", "", "m0 m1 m2"},
		"a leader lives": {func(_ *testing.T, w *world) {
			w.recover(w.byName["m1"])
			w.run(15 * time.Second)
		}, "m0", "m0 leads", "m0 m1 m2"},
		"a leader lives, and the member is cut off from it and from all": {func(_ *testing.T, w *world) {
			for _, o := range []string{"m0", "m2"} {
				w.cut[[2]string{"m1", o}], w.cut[[2]string{o, "m1"}] = true, true
			}
			w.recover(w.byName["m1"])
			w.run(15 * time.Second)
		}, "m0", "does not answer, and is not known to be gone", "m0 m1 m2"},
		"the leader is gone and the two others can elect one of them": {func(_ *testing.T, w *world) {
			w.byName["m0"].crash()
			w.recover(w.byName["m1"])
			w.run(15 * time.Second)
		}, "", "a majority of the voters answers and holds data", "m0 m1 m2"},
		"the member has no data": {func(_ *testing.T, w *world) {
			wiped(w, "m1", "m2")
			w.byName["m0"].crash()
			w.byName["m1"].start()
			w.recover(w.byName["m1"])
			w.run(15 * time.Second)
			w.byName["m0"].start()
			w.byName["m2"].start()
			w.run(20 * time.Second)
		}, "m0", "m1 holds no data", "m0 m1 m2"},
		"the Lease has changed since": {func(_ *testing.T, w *world) {
			wiped(w, "m0", "m2")
			w.order(w.byName["m1"], Recovery{ID: "x", LeaseVersion: "1", Lost: []string{"m0", "m2"}})
			w.run(10 * time.Second)
			w.recover(w.byName["m1"])
			w.run(15 * time.Second)
		}, "m1", "the Lease has changed", "m1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			test.do(t, w)
			before := w.counts["acked"]
			w.run(2 * time.Second)
			rec := w.lease.Record
			if test.leader != "" && rec.Leader != test.leader || test.voters != "" && strings.Join(rec.Voters, " ") != test.voters {
				t.Errorf("leader %s, voters %v, want %s of %s", rec.Leader, rec.Voters, test.leader, test.voters)
			}
			if got := w.refusal(); (test.refused == "") != (got == "") || !strings.Contains(got, test.refused) {
				t.Errorf("refused with %q, want %q", got, test.refused)
			}
			if w.counts["acked"] == before {
				t.Error("nothing is acknowledged")
			}
			if w.violation != "" {
				t.Error(w.violation)
			}
			if t.Failed() {
				t.Log("\n" + w.tail(80))
			}
		})
	}
}

// TestRecoverFromALearner: the only voter has lost its volume, and a member without a vote holds the data.
func TestRecoverFromALearner(t *testing.T) {
	w := settled(t, 3)
	w.want(func(a *Aim) { a.Members = []string{"m0"} })
	if !w.runUntil(20*time.Second, func() bool { return slices.Equal(w.lease.Record.Voters, []string{"m0"}) }) {
		t.Fatal(w.tail(40))
	}
	w.byName["m2"].crash()
	w.byName["m0"].loseDisk(true)
	w.byName["m0"].start()
	w.want(func(a *Aim) { a.Members = []string{"m0", "m1"} })
	w.run(10 * time.Second)
	w.recover(w.byName["m1"])
	before := w.counts["acked"]
	if !w.runUntil(20*time.Second, func() bool { return slices.Equal(w.lease.Record.Voters, []string{"m0", "m1"}) }) || w.counts["acked"] == before || w.violation != "" {
		t.Errorf("%+v %s\n%s", w.lease.Record, w.violation, w.tail(60))
	}
}

// TestRecoverOutrunsNobody: while the order is under way, the majority comes back and elects. The Lease moves, and the swap fails.
func TestRecoverOutrunsNobody(t *testing.T) {
	w := settled(t, 3)
	m0, m1, m2 := w.nodes[0], w.nodes[1], w.nodes[2]
	m0.crash()
	m2.crash()
	w.run(5 * time.Second)
	held := false
	w.onSwap = func(n *node, apply func() LeaseSwapped) bool {
		if n != m1 || held {
			return false
		}
		held = true
		// Slow, while the others come back behind its back: they are bound to nobody, and do not hear of it.
		for _, o := range []string{"m0", "m2"} {
			w.cut[[2]string{"m1", o}], w.cut[[2]string{o, "m1"}] = true, true
		}
		m0.start()
		m2.start()
		run := n.run
		w.after(20*time.Second, func() {
			in := apply()
			n.arrive(func() {
				if run == n.run {
					n.step(in)
				}
			})
			clear(w.cut)
		})
		return true
	}
	w.recover(m1)
	w.run(19 * time.Second)
	if !held || w.lease.Record.Leader == "m1" || w.lease.Record.Epoch < 2 {
		t.Fatalf("held %v, %+v\n%s", held, w.lease.Record, w.tail(60))
	}
	w.run(20 * time.Second)
	if w.lease.Record.Leader == "m1" || len(w.lease.Record.Voters) != 3 || w.violation != "" || w.refusal() == "" {
		t.Errorf("%+v, violation %q, refused %q\n%s", w.lease.Record, w.violation, w.refusal(), w.tail(60))
	}
}

// TestALeaderThatIsAskedForALaterEpochLooks: one that was believed to be gone and is not stops as soon as it hears of the recovery.
func TestALeaderThatIsAskedForALaterEpochLooks(t *testing.T) {
	w := settled(t, 3)
	m0 := w.nodes[0]
	later := w.lease.Record.next(9, "m1", Position{Known: true, Rank: 1, At: 1})
	later.Voters = []string{"m1"}
	w.version, w.lease = 99, Seen{ResourceVersion: "99", Record: later, HasRecord: true}
	reads := w.counts["read"]
	w.run(time.Second)
	if m0.decision.Role != RolePrimary || w.counts["read"] != reads {
		t.Fatalf("m0 is %s after %d reads before it heard of anything", m0.decision.Role, w.counts["read"]-reads)
	}
	m0.step(Received{Token: 1 << 40, Request: Request{Kind: KindGrant, Database: "uid", From: "m1", Seq: 1, Epoch: 9}})
	w.run(time.Second)
	if m0.server == ServerPrimary || w.counts["Superseded"] != 1 {
		t.Errorf("m0 goes on\n%s", w.tail(30))
	}
}

// recoverAtRandom loses a majority of three in some way, with a bad network and API, and orders one to recover that has data.
func recoverAtRandom(seed uint64, ru rules) *world {
	w := newWorld(seed, 3, ru)
	w.verbose = true
	w.runUntil(8*time.Second, func() bool { return len(w.lease.Record.Voters) == 3 })
	if w.rnd.IntN(3) == 0 {
		w.want(func(a *Aim) { a.Switchover = Switchover{ID: "s", Target: w.nodes[w.rnd.IntN(3)].name} })
	}
	w.run(w.between(0, 3*time.Second))
	n := w.nodes[w.rnd.IntN(3)]
	for _, other := range w.nodes {
		if other == n {
			continue
		}
		w.run(w.between(0, time.Second))
		if w.rnd.IntN(3) == 0 {
			other.crash() // only away
		} else {
			other.loseDisk(true)
		}
		if w.rnd.IntN(2) == 0 {
			w.after(w.between(0, 20*time.Second), other.restart)
		}
	}
	w.loss, w.slow = w.rnd.Float64()*0.3, w.between(time.Millisecond, 200*time.Millisecond)
	for range 1 + w.rnd.IntN(3) {
		w.recover(n) // asked again, the Lease read anew
		if w.rnd.IntN(4) == 0 {
			n.crash()
			w.after(w.between(0, 3*time.Second), n.restart)
		}
		w.run(w.between(0, 8*time.Second))
	}
	w.heal()
	w.run(1100 * time.Millisecond) // the aims of the peace, which name no recovery, are there
	w.recover(n)
	before := w.counts["acked"]
	good := w.runUntil(40*time.Second, func() bool {
		return w.counts["acked"] >= before+20 && len(w.lease.Record.Voters) == 3
	})
	w.run(time.Second)
	if w.violation == "" && !good {
		w.stuck = "no progress with three voters after all are back"
	}
	return w
}

func TestRecoverAtRandom(t *testing.T) {
	counts := map[string]int{}
	end := time.Now().Add(10 * time.Second)
	ran := 0
	for seed := uint64(1); seed <= 4000 && time.Now().Before(end); seed++ {
		w := recoverAtRandom(seed, safeRules())
		ran++
		for k, v := range w.counts {
			counts[k] += v
		}
		if w.violation+w.stuck != "" {
			t.Fatalf("seed %d: %s%s\n%s", seed, w.violation, w.stuck, w.tail(200))
		}
	}
	t.Logf("%d schedules, recovered %d, lost as accepted %d, refused %d", ran, counts["Elected: recover"], counts["lost as accepted"], counts["Refused"])
	if ran > 100 && (counts["Elected: recover"] == 0 || counts["lost as accepted"] == 0 || counts["Refused"] == 0 || counts["wiped"]+counts["rewound"] == 0) {
		t.Errorf("the schedules do not reach what they are for: %v", counts)
	}
}

// TestRecoverThatAsksNobodyIsNoticed plants the bug that suggests itself: to trust the order.
func TestRecoverThatAsksNobodyIsNoticed(t *testing.T) {
	ru := safeRules()
	ru.asksAll = false
	w := newWorld(3, 3, ru)
	w.run(8 * time.Second)
	for _, o := range []string{"m0", "m2"} {
		w.cut[[2]string{"m1", o}], w.cut[[2]string{o, "m1"}] = true, true
	}
	w.run(4 * time.Second)
	w.recover(w.byName["m1"])
	w.run(10 * time.Second)
	if w.violation == "" {
		t.Errorf("two leaders were not noticed: %+v", w.lease.Record)
	}
}
