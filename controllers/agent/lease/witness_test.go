package lease

import (
	"slices"
	"testing"
	"time"
)

// pair returns a quiet world of two voters that m0 leads, and their witness.
func pair(t *testing.T, ru rules, preferred bool) *world {
	t.Helper()
	w := newPair(3, ru, preferred)
	w.fenced = true
	w.verbose = true
	w.run(8 * time.Second)
	if !w.whole() || w.lease.Record.Leader != "m0" {
		t.Fatalf("not settled: %+v\n%s", w.lease.Record, w.tail(40))
	}
	return w
}

// acks counts what is acknowledged while the world goes on.
func (w *world) acks(d time.Duration) int {
	before := w.counts["acked"]
	w.run(d)
	return w.counts["acked"] - before
}

// TestAReplicaIsNotDroppedForBeingSlow : a silence of less than the patience costs the writes that time and no more; a longer one is the
// replica's end, and writes go on.
func TestAReplicaIsNotDroppedForBeingSlow(t *testing.T) {
	for sentence, row := range map[string]struct {
		silence time.Duration
		dropped bool
	}{
		"silent for a moment":                     {1400 * time.Millisecond, false},
		"silent for longer than one that is slow": {3 * time.Second, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := pair(t, safeRules(), true)
			for _, way := range [][2]string{{"m0", "m1"}, {"m1", "m0"}} {
				w.cut[way] = true
			}
			w.run(row.silence)
			if w.lease.Record.Degraded != row.dropped {
				t.Errorf("after %s: degraded %v\n%s", row.silence, w.lease.Record.Degraded, w.tail(30))
			}
			if row.dropped && w.acks(time.Second) == 0 {
				t.Errorf("writes do not go on %s after the replica fell silent", row.silence)
			}
			clear(w.cut)
			w.run(5 * time.Second)
			if w.lease.Record.Degraded || w.counts["Degraded"] > 1 || w.counts["Degraded"] == 0 == row.dropped || w.violation != "" {
				t.Errorf("at the end: degraded %v, %d times; %s\n%s", w.lease.Record.Degraded, w.counts["Degraded"], w.violation, w.tail(30))
			}
		})
	}
}

func TestTwoMembersAndAWitness(t *testing.T) {
	tests := map[string]struct {
		preferred bool
		do        func(t *testing.T, w *world)
		leader    string
		voters    []string
		degraded  bool
	}{
		"required: the other leads, and its writes wait for the first to come back": {false, func(t *testing.T, w *world) {
			w.nodes[0].crash()
			w.run(5 * time.Second)
			if n := w.acks(10 * time.Second); n != 0 {
				t.Errorf("%d writes acknowledged by one member", n)
			}
			w.nodes[0].start()
			if n := w.acks(5 * time.Second); n == 0 {
				t.Error("no write acknowledged although both members are there")
			}
		}, "m1", []string{"m0", "m1", "w0"}, false},
		"required: without the replica the leader goes on leading, and its writes wait": {false, func(t *testing.T, w *world) {
			w.nodes[1].crash()
			w.run(2 * time.Second)
			if n := w.acks(10 * time.Second); n != 0 || w.nodes[0].server != ServerPrimary {
				t.Errorf("%d writes acknowledged by one member, which is %s", n, w.nodes[0].server)
			}
		}, "m0", []string{"m0", "m1", "w0"}, false},
		"preferred: the other leads, and goes on alone once the Lease says so": {true, func(t *testing.T, w *world) {
			w.nodes[0].crash()
			w.run(5 * time.Second)
			if n := w.acks(5 * time.Second); n < 20 {
				t.Errorf("%d writes acknowledged in 5 s", n)
			}
		}, "m1", []string{"m0", "m1", "w0"}, true},
		"preferred: without the replica the leader goes on, and with it the word is taken back": {true, func(t *testing.T, w *world) {
			w.nodes[1].crash()
			w.run(2 * time.Second)
			if n := w.acks(5 * time.Second); n < 20 || !w.lease.Record.Degraded {
				t.Errorf("%d writes acknowledged in 5 s, degraded %v", n, w.lease.Record.Degraded)
			}
			w.nodes[1].start()
			w.run(5 * time.Second)
		}, "m0", []string{"m0", "m1", "w0"}, false},
		"preferred: who was left behind is not elected, however long the other is away": {true, func(t *testing.T, w *world) {
			w.nodes[1].crash()
			w.run(5 * time.Second)
			w.nodes[0].crash()
			w.nodes[1].start()
			w.run(time.Minute)
			if w.nodes[1].server == ServerPrimary {
				t.Error("m1 leads without what m0 acknowledged alone")
			}
			w.nodes[0].start()
			w.run(8 * time.Second)
		}, "m0", []string{"m0", "m1", "w0"}, false},
		"preferred: alone, its server dies and is started again: to give up would help nobody": {true, func(t *testing.T, w *world) {
			w.nodes[1].crash()
			w.run(5 * time.Second)
			m0 := w.nodes[0]
			m0.kill()
			m0.report()
			m0.later(200*time.Millisecond, m0.serverBack)
			if n := w.acks(2 * time.Second); n < 5 {
				t.Errorf("%d writes acknowledged in 2 s", n)
			}
		}, "m0", []string{"m0", "m1", "w0"}, true},
		"preferred: alone, its agent restarts, and it leads again soon": {true, func(t *testing.T, w *world) {
			w.nodes[1].crash()
			w.run(5 * time.Second)
			w.nodes[0].crash()
			w.nodes[0].start()
			if n := w.acks(5 * time.Second); n < 10 {
				t.Errorf("%d writes acknowledged in 5 s", n)
			}
		}, "m0", []string{"m0", "m1", "w0"}, true},
		"preferred: no Lease, no writes by one": {true, func(t *testing.T, w *world) {
			w.apiDown = true
			w.nodes[1].crash()
			w.run(2 * time.Second)
			if n := w.acks(20 * time.Second); n != 0 {
				t.Errorf("%d writes acknowledged by one member that the Lease does not name as such", n)
			}
			w.apiDown = false
			if n := w.acks(10 * time.Second); n == 0 {
				t.Error("no write acknowledged after the outage")
			}
		}, "m0", []string{"m0", "m1", "w0"}, true},
		"preferred: a leader that is cut off from both, but not from the Lease, does not keep the others from going on": {true, func(t *testing.T, w *world) {
			for _, o := range []string{"m1", "w0"} {
				w.cut[[2]string{"m0", o}], w.cut[[2]string{o, "m0"}] = true, true
			}
			w.run(6 * time.Second)
			if n := w.acks(5 * time.Second); n < 20 {
				t.Errorf("%d writes acknowledged in 5 s", n)
			}
		}, "m1", []string{"m0", "m1", "w0"}, true},
		"the witness is gone and nobody notices; another one takes its place": {false, func(t *testing.T, w *world) {
			w.byName["w0"].crash()
			if n := w.acks(10 * time.Second); n < 40 {
				t.Errorf("%d writes acknowledged in 10 s", n)
			}
			w.want(func(a *Aim) { a.Witness = "w1" })
			w.run(5 * time.Second)
		}, "m0", []string{"m0", "m1", "w1"}, false},
		"a witness that does not answer takes nobody's place": {false, func(_ *testing.T, w *world) {
			w.byName["w1"].crash()
			w.want(func(a *Aim) { a.Witness = "w1" })
			w.run(10 * time.Second)
		}, "m0", []string{"m0", "m1", "w0"}, false},
		"the witness goes once the third member counts": {false, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Members, a.Witness = []string{"m0", "m1", "m2"}, "" })
			w.run(5 * time.Second)
		}, "m0", []string{"m0", "m1", "m2"}, false},
		"it stays while the third member has no data yet": {false, func(_ *testing.T, w *world) {
			w.byName["m2"].crash()
			w.want(func(a *Aim) { a.Members, a.Witness = []string{"m0", "m1", "m2"}, "" })
			w.run(10 * time.Second)
		}, "m0", []string{"m0", "m1", "w0"}, false},
		"three become two: first the member goes, then the witness comes": {false, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Members, a.Witness = []string{"m0", "m1", "m2"}, "" })
			w.run(5 * time.Second)
			w.want(func(a *Aim) { a.Members, a.Witness = []string{"m0", "m1"}, "w0" })
			w.run(5 * time.Second)
		}, "m0", []string{"m0", "m1", "w0"}, false},
		"two become one: the witness goes, too": {false, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Members, a.Witness = []string{"m0"}, "" })
			w.run(5 * time.Second)
		}, "m0", []string{"m0"}, false},
		"a switchover goes to the other member": {true, func(_ *testing.T, w *world) {
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one"} })
			w.run(8 * time.Second)
		}, "m1", []string{"m0", "m1", "w0"}, false},
		"an idle pair asks the API for nothing": {true, func(t *testing.T, w *world) {
			reads := w.counts["read"]
			w.run(5 * time.Minute)
			if got := w.counts["read"] - reads; got != 0 {
				t.Errorf("%d reads in five idle minutes", got)
			}
		}, "m0", []string{"m0", "m1", "w0"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := pair(t, safeRules(), test.preferred)
			test.do(t, w)
			r := w.lease.Record
			if w.violation != "" || r.Leader != test.leader || !slices.Equal(r.Voters, test.voters) || r.Degraded != test.degraded {
				t.Errorf("%s leads, voters %v, degraded %v, want %s, %v, %v; %s\n%s", r.Leader, r.Voters, r.Degraded, test.leader, test.voters, test.degraded, w.violation, w.tail(60))
			}
			if t.Failed() {
				t.Logf("\n%s", w.tail(100))
			}
		})
	}
}

// TestWordIsTakenBackOnlyOnceCommitsWait walks the way in which a write would be lost otherwise: the replica is back in step, falls out
// again while the swap that says so is under way, and the leader dies right after it landed.
func TestWordIsTakenBackOnlyOnceCommitsWait(t *testing.T) {
	walk := func(ru rules) (acked int, violation string) {
		w := pair(t, ru, true)
		m0, m1 := w.nodes[0], w.nodes[1]
		m1.crash()
		w.run(5 * time.Second)
		var late func()
		w.onSwap = func(n *node, apply func() LeaseSwapped) bool {
			if late != nil || n != m0 {
				return false
			}
			late = func() { n.step(apply()) }
			return true
		}
		m1.start()
		for range 100 {
			if w.run(50 * time.Millisecond); late != nil {
				break
			}
		}
		if late == nil {
			t.Fatalf("the word was not taken back:\n%s", w.tail(60))
		}
		m1.serverRun++ // it receives nothing any more
		acked = w.acks(time.Second)
		late()
		m0.crash()
		w.run(6 * time.Second)
		t.Logf("%s", w.tail(30))
		return acked, w.violation
	}
	if acked, bad := walk(safeRules()); acked > 1 || bad != "" {
		t.Errorf("with the rules as they are: %d writes acknowledged, violation %q", acked, bad)
	}
	planted := safeRules()
	planted.fewer = func(m *Machine) bool {
		s := m.lead.step
		return m.lead.record.Degraded && m.aim.Preferred && !(s.strict && !s.at.Known) // waits for the mark only
	}
	if acked, bad := walk(planted); acked == 0 || bad == "" {
		t.Errorf("with commits that do not wait: %d writes acknowledged, violation %q", acked, bad)
	}
}

func TestWitnessInTheRecord(t *testing.T) {
	good := goodRecord()
	tests := map[string]struct {
		change func(*Record)
		ok     bool
	}{
		"a voter that does not lead":           {func(r *Record) { r.Witness = "c" }, true},
		"somebody who does not vote":           {func(r *Record) { r.Witness = "d" }, false},
		"the leader, which would hold no data": {func(r *Record) { r.Witness = r.Leader }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := good
			test.change(&r)
			if err := r.Validate(); (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
