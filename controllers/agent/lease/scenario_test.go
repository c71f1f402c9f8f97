package lease

import (
	"slices"
	"testing"
	"time"
)

// settled returns a quiet world of three voters that m0 leads.
func settled(t *testing.T, members int) *world {
	t.Helper()
	w := newWorld(3, members, safeRules())
	w.verbose = true
	w.run(8 * time.Second)
	if got := w.lease.Record; got.Leader != "m0" || len(got.Voters) != min(3, members) {
		t.Fatalf("not settled: %+v\n%s", got, w.tail(40))
	}
	return w
}

func TestScenarios(t *testing.T) {
	tests := map[string]struct {
		members int
		do      func(t *testing.T, w *world)
		leader  string // empty: any
		epoch   uint64
	}{
		"an idle Database asks the API for nothing": {3, func(t *testing.T, w *world) {
			reads := w.counts["read"]
			w.run(5 * time.Minute)
			if got := w.counts["read"] - reads; got != 0 {
				t.Errorf("%d reads in five idle minutes", got)
			}
		}, "m0", 1},
		"an outage of the API changes nothing while the leader lives": {3, func(_ *testing.T, w *world) {
			w.apiDown = true
			w.run(time.Minute)
		}, "m0", 1},
		"during an outage of the API nobody is promoted, and after it somebody is": {3, func(t *testing.T, w *world) {
			w.apiDown = true
			w.nodes[0].crash()
			w.run(time.Minute)
			if w.counts["promoted"] != 1 {
				t.Errorf("%d promotions", w.counts["promoted"])
			}
			w.apiDown = false
			w.run(7 * time.Second)
		}, "", 2},
		"a replica that merely lost the leader unseats nobody": {3, func(_ *testing.T, w *world) {
			w.cut[[2]string{"m0", "m1"}], w.cut[[2]string{"m1", "m0"}] = true, true
			w.run(time.Minute)
		}, "m0", 1},
		"a switchover goes to its target, once": {3, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
			w.run(8 * time.Second)
		}, "m2", 2},
		"a switchover to nobody in particular goes to the best": {3, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one"} })
			w.run(8 * time.Second)
		}, "", 2},
		"a switchover to a member that lags too much is called off and writes go on": {3, func(t *testing.T, w *world) {
			m2 := w.byName["m2"]
			w.byName["m2"].upstream = "m2" // it receives nothing, and seems fine
			m2.serverRun++
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
			w.run(8 * time.Second)
			if w.counts["Aborted"] != 1 {
				t.Errorf("called off %d times", w.counts["Aborted"])
			}
		}, "m0", 1},
		"a switchover to somebody who is no voter is left alone": {4, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m3"} })
			w.run(15 * time.Second)
		}, "m0", 1},
		"a switchover that could not begin in time is not begun later": {3, func(_ *testing.T, w *world) {
			w.byName["m2"].crash()
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
			w.run(12 * time.Second)
			w.byName["m2"].start()
			w.run(10 * time.Second)
		}, "m0", 1},
		"a fenced leader hands over and stays stopped, also when it restarts": {3, func(t *testing.T, w *world) {
			m0 := w.byName["m0"]
			a := w.aim
			a.Fenced = true
			m0.step(a)
			w.run(3 * time.Second)
			m0.crash()
			m0.run++
			m, err := NewMachine(Default("m0", "uid", 1<<50), m0.clock(), m0.promise, m0.hasPromise)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range m.Step(m0.clock(), m0.facts()) {
				if d, ok := o.(Decide); ok && d.Decision.Role != RoleStop {
					t.Errorf("decided %s after a restart, before any aim", d.Decision.Role)
				}
			}
		}, "", 2},
		"while paused nobody takes over, and afterwards somebody does": {3, func(t *testing.T, w *world) {
			w.want(func(a *Aim) { a.Paused = true })
			w.run(2 * time.Second)
			w.byName["m0"].crash()
			w.run(20 * time.Second)
			if w.counts["promoted"] != 1 {
				t.Errorf("%d promotions", w.counts["promoted"])
			}
			w.want(func(a *Aim) { a.Paused = false })
			w.run(6 * time.Second)
		}, "", 2},
		"the only member restarts and leads on by its own grant": {1, func(_ *testing.T, w *world) {
			w.nodes[0].crash()
			w.nodes[0].start()
			w.run(2 * time.Second)
		}, "m0", 1},
		"the only member is frozen for longer than its deadline and leads on": {1, func(_ *testing.T, w *world) {
			w.nodes[0].frozen = true
			w.run(20 * time.Second)
			w.nodes[0].thaw()
			w.run(time.Second)
		}, "m0", 1},
		"a leader that restarts and can serve at once resumes at its epoch": {3, func(_ *testing.T, w *world) {
			w.nodes[0].back = true
			w.nodes[0].crash()
			w.nodes[0].start()
			w.run(time.Second)
		}, "m0", 1},
		"a leader that restarts and cannot serve at once releases": {3, func(_ *testing.T, w *world) {
			w.nodes[0].crash()
			w.nodes[0].start()
			w.run(time.Second)
		}, "", 2},
		"a leader with grants rewrites a deleted record above all that was": {3, func(_ *testing.T, w *world) {
			w.version++
			w.lease = Seen{ResourceVersion: "99"}
			w.want(func(a *Aim) { a.LeaseVersion = "99" })
			w.run(3 * time.Second)
		}, "m0", 2},
		"a leader with grants rewrites a record from a backup above all that was": {3, func(_ *testing.T, w *world) {
			old := w.lease.Record
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
			w.run(5 * time.Second)
			w.lease = Seen{ResourceVersion: "99", Record: old, HasRecord: true}
			w.version = 99
			w.want(func(a *Aim) { a.LeaseVersion = "99" })
			w.run(3 * time.Second)
		}, "m2", 3},
		"two cut-off failures in turn still leave a leader": {3, func(_ *testing.T, w *world) {
			w.nodes[0].crash()
			w.run(6 * time.Second)
			w.nodes[0].start()
			w.run(6 * time.Second)
			w.byName[w.lease.Record.Leader].crash()
			w.run(8 * time.Second)
		}, "", 3},
		"members are swapped for others one by one, the leader last": {5, func(t *testing.T, w *world) {
			w.want(func(a *Aim) { a.Members = []string{"m2", "m3", "m4"} })
			w.run(20 * time.Second)
			if got := w.lease.Record.Voters; !slices.Equal(got, []string{"m2", "m3", "m4"}) {
				t.Errorf("voters %v", got)
			}
		}, "m2", 2},
		"a leader whose volume hangs hands over at once, and stays out of it while it hangs": {3, func(t *testing.T, w *world) {
			w.byName["m0"].hang(time.Millisecond, time.Minute)
			w.run(time.Second)
			if got := w.lease.Record.Leader; got == "m0" {
				t.Error("m0 still leads after a second")
			}
			w.byName[w.lease.Record.Leader].kill()
			w.byName[w.lease.Record.Leader].report()
			w.run(10 * time.Second)
			if got := w.lease.Record.Leader; got == "m0" {
				t.Error("m0 leads again with a volume that hangs")
			}
		}, "", 3},
		"the only member leads on with a volume that hangs": {1, func(_ *testing.T, w *world) {
			w.nodes[0].hang(time.Millisecond, 20*time.Second)
			w.run(30 * time.Second)
		}, "m0", 1},
		"one of two leads on with a volume that hangs, for the other could not be elected": {2, func(_ *testing.T, w *world) {
			w.byName["m0"].hang(time.Millisecond, 20*time.Second)
			w.run(30 * time.Second)
		}, "m0", 1},
		"a leader whose volume is full waits for room, however long that takes": {3, func(t *testing.T, w *world) {
			w.byName["m0"].fill(5 * time.Minute)
			w.run(4 * time.Minute)
			if w.counts["promoted"] != 1 {
				t.Errorf("%d promotions", w.counts["promoted"])
			}
			w.run(2 * time.Minute)
		}, "m0", 1},
		"a member that must discard its data is no voter when it wipes": {3, func(t *testing.T, w *world) {
			w.byName["m2"].discard = true
			w.run(5 * time.Second)
			if w.counts["wiped"] != 1 || w.counts["Members: removed m2"] != 1 || w.counts["Members: added m2"] != 2 {
				t.Errorf("%v", w.counts)
			}
		}, "m0", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, test.members)
			test.do(t, w)
			before := w.counts["acked"]
			w.run(time.Second)
			rec := w.lease.Record
			if test.leader != "" && rec.Leader != test.leader || rec.Epoch != test.epoch {
				t.Errorf("leader %s at epoch %d, want %s at %d", rec.Leader, rec.Epoch, test.leader, test.epoch)
			}
			if w.counts["acked"] == before {
				t.Error("nothing is acknowledged")
			}
			if w.violation != "" {
				t.Error(w.violation)
			}
			if t.Failed() {
				t.Log("\n" + w.tail(60))
			}
		})
	}
}

// TestLeaderAndVoterWithoutData: of two voters one has lost its volume, and before it is cloned again the leader's server dies. The
// leader has every commit, and the other may support it and nobody else.
func TestLeaderAndVoterWithoutData(t *testing.T) {
	walk := func(blind func(bool) bool) *world {
		ru := safeRules()
		ru.blind = blind
		w := newWorld(3, 2, ru)
		w.verbose = true
		w.run(8 * time.Second)
		m0, m1 := w.nodes[0], w.nodes[1]
		if got := w.lease.Record; got.Leader != "m0" || len(got.Voters) != 2 {
			t.Fatalf("not settled: %+v", got)
		}
		m1.loseDisk(true)
		m0.kill()
		m0.report()
		w.run(time.Second)
		m1.restart()
		w.run(15 * time.Second)
		return w
	}
	w := walk(safeRules().blind)
	before := w.counts["acked"]
	w.run(2 * time.Second)
	if r := w.lease.Record; r.Leader != "m0" || r.Epoch != 2 || w.counts["acked"] == before || w.violation != "" {
		t.Errorf("leader %s at epoch %d, %d writes in two seconds, violation %q\n%s", r.Leader, r.Epoch, w.counts["acked"]-before, w.violation, w.tail(60))
	}
	if w := walk(func(bool) bool { return false }); w.lease.Record.Epoch != 1 || w.counts["supported without data"] != 0 {
		t.Errorf("without the rule: epoch %d", w.lease.Record.Epoch)
	}
}

// TestVoterWithoutDataSupportsOnlyTheLastLeader: two of three voters have a commit; one loses its volume, the other, which leads,
// goes away. The third lacks the commit and is not elected; with the rule planted wrong it is.
func TestVoterWithoutDataSupportsOnlyTheLastLeader(t *testing.T) {
	walk := func(blind func(bool) bool) *world {
		ru := safeRules()
		ru.blind = blind
		w := newWorld(3, 3, ru)
		w.verbose = true
		w.run(8 * time.Second)
		m0, m1, m2 := w.nodes[0], w.nodes[1], w.nodes[2]
		if m0.server != ServerPrimary {
			t.Fatalf("m0 is %s", m0.server)
		}
		m2.upstream = "m2" // it receives nothing more
		m2.serverRun++
		w.run(2 * time.Second) // m0 and m1 have what is acknowledged
		m1.loseDisk(true)
		m0.crash()
		w.run(time.Second)
		m1.restart()
		w.run(10 * time.Second)
		return w
	}
	w := walk(safeRules().blind)
	if w.violation != "" || w.lease.Record.Leader != "m0" {
		t.Errorf("leader %s, violation %q\n%s", w.lease.Record.Leader, w.violation, w.tail(40))
	}
	w.nodes[0].start()
	before := w.counts["acked"]
	if !w.runUntil(20*time.Second, func() bool { return w.counts["acked"] > before+5 }) || w.violation != "" {
		t.Errorf("after the last leader is back: %d writes, violation %q\n%s", w.counts["acked"]-before, w.violation, w.tail(60))
	}
	if w := walk(func(bool) bool { return true }); w.violation == "" {
		t.Errorf("a voter without data that supports anybody was not noticed\n%s", w.tail(60))
	}
}

func TestLostRecordWithoutLeaderStaysLost(t *testing.T) {
	w := settled(t, 3)
	w.nodes[0].crash()
	w.lease = Seen{ResourceVersion: "99"}
	w.version = 99
	reads := w.counts["read"]
	w.run(time.Minute)
	if got := w.counts["read"] - reads; got > 60 {
		t.Errorf("%d reads in a minute that could not help", got)
	}
	if w.lease.HasRecord || w.counts["promoted"] != 1 {
		t.Errorf("somebody without grants wrote %+v", w.lease.Record)
	}
	if w.counts["Broken"] == 0 {
		t.Error("nobody said so")
	}
}

func TestBootstrapThroughAFlakyAPI(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed, 3, safeRules())
		w.verbose, w.loss = true, 0.45
		for range 6 {
			w.apiDown = !w.apiDown
			w.run(w.between(100*time.Millisecond, 4*time.Second))
			if w.rnd.IntN(3) == 0 {
				w.nodes[0].crash()
				w.nodes[0].start()
			}
		}
		w.apiDown, w.loss = false, 0
		if !w.runUntil(20*time.Second, func() bool { return len(w.lease.Record.Voters) == 3 }) {
			t.Fatalf("seed %d: %+v\n%s", seed, w.lease, w.tail(60))
		}
	}
}
