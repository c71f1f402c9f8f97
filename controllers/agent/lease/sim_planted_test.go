package lease

import (
	"testing"
	"time"
)

// TestSimulationFindsPlantedBugs proves that the simulation would notice: each
// row breaks one rule, and some schedule must then break a promise.
func TestSimulationFindsPlantedBugs(t *testing.T) {
	const most = 3000
	tests := map[string]struct {
		from  uint64 // near a seed that shows it, to be quick; after a change of the code the search goes on from there
		plant func(*rules)
		pair  bool // two members and a witness
	}{
		"a voter forgets that its grant binds it": {from: 1, plant: func(r *rules) {
			r.bound = func(Time, Time) bool { return false }
		}},
		"a leader goes on after its deadline": {from: 1, plant: func(r *rules) {
			r.stopLead = func(Facts) Time { return -Time(time.Hour) }
		}},
		"a majority of the three replicas of the spec instead of the voters": {from: 10, plant: func(r *rules) {
			r.majority = func(voters int) int { return min(voters, 2) }
		}},
		"the candidate's position does not matter": {from: 1, plant: func(r *rules) {
			r.covers = func(Position, Position) bool { return true }
		}},
		"the swap alone entitles": {from: 120, plant: func(r *rules) {
			r.entitled = func(m *Machine) bool {
				for _, v := range m.lead.record.Voters {
					m.lead.grants[v] = m.now
				}
				return true
			}
		}},
		"a voter answers with its position while it still receives": {from: 850, plant: func(r *rules) {
			r.finalOnly = false
		}},
		"a voter without data supports anybody": {from: 600, plant: func(r *rules) {
			r.blind = func(bool) bool { return true }
		}},
		"an exchanged program forgets whom it is bound to": {from: 340, plant: func(r *rules) {
			r.exchanged = func(m *Machine) { m.voter.bound, m.voter.boundUntil = "", 0 }
		}},
		"an exchanged program forgets its deadline": {from: 1, plant: func(r *rules) {
			r.exchanged = func(m *Machine) {
				for v := range m.lead.grants {
					m.lead.grants[v] = m.now.Add(time.Hour)
				}
			}
		}},
		"an exchanged program forgets what it promised": {from: 70, plant: func(r *rules) {
			r.exchanged = func(m *Machine) {
				m.voter.promise, m.voter.disk, m.voter.found = Promise{}, Promise{}, false
				m.voter.bound, m.voter.boundUntil = "", 0
			}
		}},
		"whom a degraded Lease does not name is elected": {pair: true, from: 1, plant: func(r *rules) {
			r.electable = func(Record, string) bool { return true }
		}},
		"a commit is acknowledged by fewer before the Lease says so": {pair: true, from: 1, plant: func(r *rules) {
			r.fewer = func(m *Machine) bool { return m.aim.Preferred }
		}},
		"a restarted voter does not wait": {from: 65, plant: func(r *rules) { r.waitT = false }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ru := safeRules()
			test.plant(&ru)
			run := simulate
			if test.pair {
				run = simulatePair
			}
			bad, ran, _ := search(run, ru, test.from, most, time.Minute, func(w *world) string { return w.violation })
			if bad == nil && ran < most {
				t.Skipf("only %d schedules in a minute: this machine is too busy to tell", ran)
			}
			if bad == nil {
				t.Fatalf("%d schedules did not notice", ran)
			}
			t.Logf("%s: after %d schedules, seed %d: %s", name, ran, bad.seed, bad.violation)
		})
	}
}

// TestSupportThatExpiresBack walks the one way in which a voter that goes back
// to its old leader loses a write: the old leader restarts and resumes with that
// voter, a frozen candidate's swap lands after it has died again, and the voter
// helps the candidate that it had once supported. Random schedules hardly ever
// line this up, so it is written down.
func TestSupportThatExpiresBack(t *testing.T) {
	walk := func(ru rules) (acked int, violation string) {
		w := newWorld(7, 3, ru)
		w.verbose = true
		m0 := w.nodes[0]
		var candidate *node
		w.run(8 * time.Second)
		m0.crash()
		var late func()
		w.onSwap = func(n *node, apply func() LeaseSwapped) bool {
			if n == m0 || late != nil {
				return false
			}
			candidate = n
			run := n.run
			late = func() {
				res := apply()
				n.arrive(func() {
					if n.run == run {
						n.step(res)
					}
				})
			}
			n.frozen = true
			return true
		}
		for range 100 {
			if w.run(100 * time.Millisecond); late != nil {
				break
			}
		}
		if late == nil {
			t.Fatalf("nobody stood:\n%s", w.tail(100))
		}
		for _, n := range w.nodes {
			n.noAPI = n != m0 && n != candidate // the supporter cannot stand itself
		}
		w.run(time.Second)
		m0.back = true
		m0.start()
		before := w.counts["acked"]
		w.run(5 * time.Second)
		acked = w.counts["acked"] - before
		m0.crash()
		w.run(2900 * time.Millisecond)
		late()
		candidate.thaw()
		w.run(3 * time.Second)
		t.Logf("%s", w.tail(40))
		return acked, w.violation
	}
	if _, bad := walk(safeRules()); bad != "" {
		t.Errorf("with the rules as they are: %s", bad)
	}
	planted := safeRules()
	planted.refuses = func(uint64, uint64) bool { return false }
	if acked, bad := walk(planted); acked == 0 || bad == "" {
		t.Errorf("with support that expires back: %d writes acknowledged, violation %q", acked, bad)
	}
}
