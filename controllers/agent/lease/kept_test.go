package lease

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKeptSurvives takes members of each kind through the exchange of their programs: what the next one would keep is what it was given.
func TestKeptSurvives(t *testing.T) {
	tests := map[string]func(t *testing.T) *Machine{
		"a replica that is bound to its leader": func(t *testing.T) *Machine {
			b := newBench(t, Promise{Epoch: 5, Candidate: "b", Lease: 5, Version: 9, Run: 3}, true)
			if why := b.ask(KindGrant, "b", 5); why != "" {
				t.Fatal(why)
			}
			return b.m
		},
		"a leader": func(t *testing.T) *Machine {
			w := newWorld(11, 3, safeRules())
			w.run(9 * time.Second)
			for _, n := range w.nodes {
				if n.m.stage == leading {
					n.m.Step(n.clock(), Tick{})
					return n.m
				}
			}
			t.Fatal("nobody leads")
			return nil
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			m := build(t)
			if why := m.unquiet(); why != "" {
				t.Fatalf("it is not quiet: %s", why)
			}
			want := m.keep()
			raw, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var read Kept
			if err := decodeStrict(raw, &read); err != nil {
				t.Fatal(err)
			}
			next, err := RestoreMachine(m.cfg, m.now, read)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, next.keep()); diff != "" {
				t.Errorf("kept and restored differ (-want +got):\n%s", diff)
			}
			if next.deadline() != m.deadline() && m.stage == leading {
				t.Errorf("the deadline was %d and is %d", m.deadline(), next.deadline())
			}
			// It goes on, and says nothing that the one before did not say.
			for _, o := range next.Step(m.now, Tick{}) {
				if d, ok := o.(Decide); ok && d.Decision.Serial != want.Decided.Serial {
					t.Errorf("another decision after the exchange: %+v", d)
				}
			}
		})
	}
}

func TestKeptIsRefused(t *testing.T) {
	b := newBench(t, Promise{Epoch: 5, Candidate: "b", Lease: 5}, true)
	if why := b.ask(KindGrant, "b", 5); why != "" {
		t.Fatal(why)
	}
	tests := map[string]struct {
		change func(*Kept)
		now    Time
		want   string
	}{
		"of another member":               {func(k *Kept) { k.Self = "c" }, b.now, "of c of Database"},
		"of another Database":             {func(k *Kept) { k.Database = "other" }, b.now, "Database other"},
		"of the future":                   {func(*Kept) {}, b.now.Add(-time.Second), "was written at"},
		"of long ago":                     {func(*Kept) {}, b.now.Add(time.Hour), "was written at"},
		"of a stage that is never kept":   {func(k *Kept) { k.Stage = "Claiming" }, b.now, `stage "Claiming"`},
		"a leader without its leadership": {func(k *Kept) { k.Stage = "Leading" }, b.now, "does not fit"},
		"a leadership of somebody else": {func(k *Kept) {
			k.Stage, k.Lead = "Leading", &KeptLead{Epoch: 5, Record: goodRecord()}
		}, b.now, "by a record of b"},
		"a promise that cannot be": {func(k *Kept) { k.Voter.Promise.Candidate = "NOBODY" }, b.now, "bad candidate"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := b.m.keep()
			test.change(&k)
			_, err := RestoreMachine(b.m.cfg, test.now, k)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
}

// TestReleaseOfAnEarlierRun: a leader that came back and was granted anew is not ended by a release that its earlier run sent.
func TestReleaseOfAnEarlierRun(t *testing.T) {
	toB := Promise{Epoch: 5, Candidate: "b", Lease: 5}
	walk := func(plant func(*rules)) (voids bool) {
		b := newBench(t, toB, true)
		plant(&b.m.rules)
		ask := func(k Kind, seq uint64) {
			b.step(Received{Token: seq, Request: Request{Kind: k, Database: "uid", From: "b", Seq: seq, Epoch: 5, Leading: k == KindGrant}})
		}
		ask(KindGrant, firstSeq(2, 7))
		ask(KindRelease, firstSeq(1, 900))
		if b.m.voter.boundUntil == 0 {
			voids = true
		}
		ask(KindRelease, firstSeq(2, 8)) // its own ends it
		if b.m.voter.boundUntil != 0 {
			t.Error("a release of this run did not end the leadership")
		}
		return voids
	}
	if walk(func(*rules) {}) {
		t.Error("a release of an earlier run ended the grant of a later one")
	}
	if !walk(func(r *rules) { r.outrun = func(Request, leaderSeen) bool { return false } }) {
		t.Error("without the rule, too, the grant holds: the test shows nothing")
	}
}

// TestComesBack: a leader that claims its epoch again, or releases it, first makes its numbers newer than any of before, on disk.
func TestComesBack(t *testing.T) {
	rec := goodRecord()
	rec.Leader = "a"
	for name, back := range map[string]bool{"claims": true, "releases": false} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMachine(Default("a", "uid", 5), start, Promise{Epoch: rec.Epoch, Candidate: "a", Lease: rec.Epoch, Run: 4}, true)
			if err != nil {
				t.Fatal(err)
			}
			f := replicaFacts()
			f.Server, f.BackAtOnce = ServerStopped, back
			m.Step(start, f)
			var kept []Persist
			for _, o := range m.Step(start, LeaseRead{Outcome: Done, Seen: Seen{ResourceVersion: "1", Record: rec, HasRecord: true}}) {
				switch o := o.(type) {
				case Send:
					t.Errorf("it spoke before its run was on disk: %+v", o)
				case Persist:
					kept = append(kept, o)
				}
			}
			if len(kept) != 1 || kept[0].Promise.Run != 5 {
				t.Fatalf("it keeps %+v, want run 5", kept)
			}
			sent := 0
			for _, o := range m.Step(start, Persisted{ID: kept[0].ID, OK: true}) {
				if s, ok := o.(Send); ok {
					sent++
					if s.Request.Seq>>runBits != 5 {
						t.Errorf("request %+v is not of run 5", s.Request)
					}
				}
			}
			if sent == 0 {
				t.Error("it said nothing")
			}
		})
	}
}
