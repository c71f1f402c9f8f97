package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bench drives one machine by hand; the clock stands still unless told.
type bench struct {
	t      *testing.T
	m      *Machine
	now    Time
	out    []Output
	seq    uint64
	answer Answer
	last   Decision
}

const start = Time(1000 * time.Hour)

// newBench returns member a of voters a, b and c, with data, whose Lease names
// b at epoch 5, and whose disk is instant.
func newBench(t *testing.T, p Promise, found bool) *bench {
	return newBenchOf(t, p, found, goodRecord(), replicaFacts())
}

func newBenchOf(t *testing.T, p Promise, found bool, rec Record, f Facts) *bench {
	t.Helper()
	m, err := NewMachine(Default("a", "uid", 0), start, p, found)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, m: m, now: start}
	b.step(f)
	b.step(LeaseRead{Outcome: Done, Seen: Seen{ResourceVersion: "1", Record: rec, HasRecord: true}})
	b.obey()
	return b
}

func replicaFacts() Facts {
	return Facts{
		Obeys: 1 << 40, Server: ServerReplica, HasData: true, StopBudget: 100 * time.Millisecond,
		Position: Position{Known: true, Rank: 4, At: 100},
	}
}

func (b *bench) step(in Input) {
	from := len(b.out)
	b.out = append(b.out, b.m.Step(b.now, in)...)
	for i := from; i < len(b.out); i++ {
		switch o := b.out[i].(type) {
		case Persist:
			b.out = slices.Delete(b.out, i, i+1)
			i--
			b.out = append(b.out, b.m.Step(b.now, Persisted{ID: o.ID, OK: true})...)
		case Reply:
			b.answer = o.Answer
		case Decide:
			b.last = o.Decision
		}
	}
}

func (b *bench) obey() {
	f := b.m.facts
	f.Receiving = b.last.Upstream != ""
	b.step(f)
}

func (b *bench) after(d time.Duration) *bench {
	b.now = b.now.Add(d)
	b.step(Tick{})
	return b
}

// ask sends a request and returns why it was refused; empty means OK.
func (b *bench) ask(k Kind, from string, epoch uint64) string {
	b.seq++
	b.answer = Answer{Why: "no answer yet"}
	b.step(Received{Token: b.seq, Request: Request{Kind: k, Database: "uid", From: from, Seq: b.seq, Epoch: epoch, Leading: k == KindGrant}})
	if b.answer.OK {
		return ""
	}
	return b.answer.Why
}

func TestVoter(t *testing.T) {
	toB := Promise{Epoch: 5, Candidate: "b", Lease: 5}
	tests := map[string]struct {
		promise Promise
		found   bool
		do      func(b *bench) string
		want    string
	}{
		"grants to the leader that it promised to, right after a restart": {
			toB, true,
			func(b *bench) string { return b.ask(KindGrant, "b", 5) },
			"",
		},
		"grants nothing below its promise, also after a restart": {
			Promise{Epoch: 6, Candidate: "c"},
			true,
			func(b *bench) string { return b.after(time.Minute).ask(KindGrant, "b", 5) },
			"promised to a higher epoch",
		},
		"supports nobody while a grant binds it": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindGrant, "b", 5)
				return b.after(2999*time.Millisecond).ask(KindSupport, "c", 6)
			},
			"bound by a grant",
		},
		"would not even say yes while a grant binds it": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindGrant, "b", 5)
				return b.after(2999*time.Millisecond).ask(KindPreVote, "c", 6)
			},
			"bound by a grant",
		},
		"supports when the grant has run out": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindGrant, "b", 5)
				b.obey()
				b.m.aim.Paused = true // it does not stand itself
				b.after(3001*time.Millisecond).ask(KindSupport, "c", 6)
				b.obey()
				return b.answer.Why
			},
			"",
		},
		"does not answer support before it has stopped receiving": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindGrant, "b", 5)
				b.obey()
				b.m.aim.Paused = true
				return b.after(3001*time.Millisecond).ask(KindSupport, "c", 6)
			},
			"no answer yet",
		},
		"supports at once when the leader has released": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindGrant, "b", 5)
				b.m.aim.Paused = true
				b.ask(KindRelease, "b", 5)
				b.ask(KindSupport, "c", 6)
				b.obey()
				return b.answer.Why
			},
			"",
		},
		"takes no grant request that was under way when the leader released": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindRelease, "b", 5)
				return b.ask(KindGrant, "b", 5)
			},
			"that leadership was released",
		},
		"does not take a release from somebody else": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute).ask(KindGrant, "b", 5)
				b.ask(KindRelease, "c", 5)
				return b.ask(KindSupport, "c", 6)
			},
			"bound by a grant",
		},
		"supports one candidate per epoch": {
			toB, true,
			func(b *bench) string {
				b.m.aim.Paused = true
				b.after(time.Minute).ask(KindSupport, "c", 6)
				return b.after(time.Minute).ask(KindSupport, "b", 6)
			},
			"promised to another at this epoch",
		},
		"moves on to a higher epoch when the supported candidate has had its time": {
			toB, true,
			func(b *bench) string {
				b.m.aim.Paused = true
				b.after(time.Minute).ask(KindSupport, "c", 6)
				if why := b.after(time.Second).ask(KindSupport, "b", 7); why != "supports another" {
					return "too early: " + why
				}
				return b.after(1001*time.Millisecond).ask(KindSupport, "b", 7)
			},
			"",
		},
		"waits T after a restart, for the file does not tell when it granted": {
			toB, true,
			func(b *bench) string { return b.after(2999*time.Millisecond).ask(KindSupport, "c", 6) },
			"restarted less than a grant ago",
		},
		"waits T after a restart without a promise": {
			Promise{},
			false,
			func(b *bench) string { return b.after(2999*time.Millisecond).ask(KindSupport, "c", 6) },
			"restarted less than a grant ago",
		},
		"need not wait when the promised leader has released": {
			toB, true,
			func(b *bench) string {
				b.m.aim.Paused = true
				b.ask(KindRelease, "b", 5)
				return b.ask(KindSupport, "c", 6)
			},
			"",
		},
		"grants nothing below what the Lease says when it has no promise": {
			Promise{},
			false,
			func(b *bench) string { return b.after(time.Minute).ask(KindGrant, "c", 4) },
			"the Lease names a higher epoch",
		},
		"refuses to support without data": {
			toB, true,
			func(b *bench) string {
				f := replicaFacts()
				f.HasData, f.Position = false, Position{}
				b.step(f)
				return b.after(time.Minute).ask(KindSupport, "c", 6)
			},
			"holds no data",
		},
		"steps aside for the heir that a release names": {
			toB, true,
			func(b *bench) string {
				b.after(time.Minute)
				b.step(Received{Token: 99, Request: Request{Kind: KindRelease, Database: "uid", From: "b", Epoch: 5, Heir: "c"}})
				return b.ask(KindSupport, "b", 6)
			},
			"another goes first",
		},
		"refuses a request of another Database": {
			toB, true,
			func(b *bench) string {
				b.step(Received{Token: 99, Request: Request{Kind: KindGrant, Database: "other", From: "b", Epoch: 5}})
				return b.answer.Why
			},
			"wrong database",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.do(newBench(t, test.promise, test.found)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestFollowerReceivesOnlyFromWhomItPromised(t *testing.T) {
	b := newBench(t, Promise{Epoch: 5, Candidate: "b", Lease: 5}, true)
	b.after(time.Minute)
	b.m.aim.Paused = true
	b.ask(KindGrant, "b", 5)
	if b.last.Upstream != "b" {
		t.Fatalf("upstream %q, want b", b.last.Upstream)
	}
	b.after(4*time.Second).ask(KindSupport, "c", 6)
	if b.last.Upstream != "" || b.last.Role != RoleReplica {
		t.Fatalf("after support: %+v, want a replica that receives from nobody", b.last)
	}
	if why := b.ask(KindGrant, "b", 5); why == "" {
		t.Fatal("granted to the old leader again")
	}
	b.ask(KindGrant, "c", 6)
	want := Decision{Serial: b.last.Serial, Role: RoleReplica, Epoch: 6, Leader: "c", Upstream: "c", Voter: true, Record: goodRecord(), Reason: "follows"}
	if d := cmp.Diff(want, b.last); d != "" {
		t.Error(d)
	}
}

// TestFollowerGoesWhereItsLeaderIs: names are asked of a DNS server that may have died with the last leader.
func TestFollowerGoesWhereItsLeaderIs(t *testing.T) {
	b := newBench(t, Promise{Epoch: 5, Candidate: "b", Lease: 5}, true)
	b.after(time.Minute)
	for _, address := range []string{"10.0.0.2", "10.0.0.7", ""} { // an older agent tells none
		b.step(Received{Token: 9, Request: Request{Kind: KindGrant, Database: "uid", From: "b", Seq: b.m.voter.leader.seq + 1, Epoch: 5, Leading: true, Address: address}})
		if b.last.Upstream != "b" || b.last.UpstreamIP != address {
			t.Errorf("told %q, it follows %s at %q", address, b.last.Upstream, b.last.UpstreamIP)
		}
	}
	for _, bad := range []string{"orders-1", "10.0.0.2' host='elsewhere"} {
		if err := (Request{Kind: KindGrant, Database: "uid", From: "b", Address: bad}).Validate(); err == nil {
			t.Errorf("the address %q was taken", bad)
		}
	}
}

// TestAnHeirOpensItsConnectionsBeforeItIsElected: a handshake with each voter would be most of a switchover's time.
func TestAnHeirOpensItsConnectionsBeforeItIsElected(t *testing.T) {
	b := newBench(t, Promise{Epoch: 5, Candidate: "b", Lease: 5}, true)
	b.after(time.Minute)
	var got [][]string
	for seq, heir := range []string{"", "c", "a", "a", "", "a"} {
		from := len(b.out)
		b.step(Received{Request: Request{Kind: KindGrant, Database: "uid", From: "b", Seq: uint64(seq + 1), Epoch: 5, Leading: true, Heir: heir}})
		var greeted []string
		for _, o := range b.out[from:] {
			if s, ok := o.(Send); ok && s.Request.Kind == KindStatus {
				greeted = append(greeted, s.To)
			}
		}
		got = append(got, greeted)
	}
	if d := cmp.Diff([][]string{nil, nil, {"b", "c"}, nil, nil, {"b", "c"}}, got); d != "" {
		t.Error(d)
	}
}

func TestLeaseBackFromABackup(t *testing.T) {
	b := newBench(t, Promise{Epoch: 8, Candidate: "c", Lease: 8}, true) // the Lease says 5
	for range 100 {
		b.after(time.Second)
		for _, o := range b.out {
			if _, ok := o.(ReadLease); ok {
				b.step(LeaseRead{Outcome: Done, Seen: Seen{ResourceVersion: "1", Record: goodRecord(), HasRecord: true}})
			}
			if s, ok := o.(Send); ok {
				t.Fatalf("asked %s for %s although its Lease is older than what it saw", s.To, s.Request.Kind)
			}
		}
		b.out = nil
	}
}

func TestOnlyTheNamedMemberMayInitialise(t *testing.T) {
	stopped := Facts{Server: ServerStopped, Obeys: 1}
	withData := stopped
	withData.HasData = true
	tests := map[string]struct {
		promise Promise
		facts   Facts
		seen    Seen
		want    bool
	}{
		"named, empty, new":                     {Promise{}, stopped, Seen{ResourceVersion: "1", Bootstrap: "a"}, true},
		"an interrupted first attempt":          {Promise{Epoch: 1, Candidate: "a"}, stopped, Seen{ResourceVersion: "1", Bootstrap: "a"}, true},
		"another is named":                      {Promise{}, stopped, Seen{ResourceVersion: "1", Bootstrap: "b"}, false},
		"nobody is named: the Lease was lost":   {Promise{}, stopped, Seen{ResourceVersion: "1"}, false},
		"the object is missing":                 {Promise{}, stopped, Seen{}, false},
		"there is data":                         {Promise{}, withData, Seen{ResourceVersion: "1", Bootstrap: "a"}, false},
		"it has promised before":                {Promise{Epoch: 4, Candidate: "b"}, stopped, Seen{ResourceVersion: "1", Bootstrap: "a"}, false},
		"it has seen the Lease with an epoch":   {Promise{Epoch: 1, Candidate: "a", Lease: 1}, stopped, Seen{ResourceVersion: "1", Bootstrap: "a"}, false},
		"nothing is known about its own server": {Promise{}, Facts{}, Seen{ResourceVersion: "1", Bootstrap: "a"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := NewMachine(Default("a", "uid", 0), start, test.promise, test.promise.Epoch > 0)
			if err != nil {
				t.Fatal(err)
			}
			b := &bench{t: t, m: m, now: start}
			b.step(test.facts)
			b.step(LeaseRead{Outcome: Done, Seen: test.seen})
			b.after(time.Second)
			b.after(10 * time.Second)
			got := false
			for _, o := range b.out {
				if s, ok := o.(SwapLease); ok {
					got = true
					if d := cmp.Diff([]string{"a"}, s.Record.Voters); d != "" || s.Record.Epoch != 1 {
						t.Errorf("swapped %+v", s.Record)
					}
				}
			}
			if got != test.want {
				t.Errorf("initialises: %v, want %v", got, test.want)
			}
		})
	}
}

// granted answers for b what a asks it as the leader of epoch 5.
func (b *bench) granted() {
	out := b.out
	b.out = nil
	for _, o := range out {
		if s, ok := o.(Send); ok && s.Request.Kind == KindGrant && s.To == "b" {
			b.step(Answered{Answer{Database: "uid", From: "b", Seq: s.Request.Seq, OK: true, Promise: 5, To: "a"}})
		}
	}
}

func TestLeaderStopsABudgetBeforeItsDeadline(t *testing.T) {
	rec, f := goodRecord(), replicaFacts()
	rec.Leader = "a"
	f.Server, f.BackAtOnce = ServerStopped, true
	b := newBenchOf(t, Promise{Epoch: 5, Candidate: "a", Lease: 5}, true, rec, f)
	sentAt := b.now
	b.now = b.now.Add(80 * time.Millisecond)
	b.granted()
	if b.last.Role != RolePrimary {
		t.Fatalf("with a majority of fresh grants at its own epoch: %+v", b.last)
	}
	if want := sentAt.Add(2900 * time.Millisecond); b.last.Deadline != want {
		t.Errorf("deadline %s after the request was sent, want T - epsilon", b.last.Deadline.Sub(sentAt))
	}
	f.Server = ServerPrimary
	b.step(f)
	deadline := b.last.Deadline
	b.now = deadline.Add(-f.StopBudget - 1)
	b.step(Tick{})
	if b.last.Role != RolePrimary {
		t.Errorf("stopped before its time: %+v", b.last)
	}
	b.now = deadline.Add(-f.StopBudget)
	b.granted() // grants that come now are too late: the first thing that is looked at is the clock
	if b.last.Role != RoleStop || b.last.Deadline != deadline {
		t.Errorf("a budget before the deadline: %+v", b.last)
	}
}

// TestALeaderIsNotReplacedByItsOwnRecovery: a server that fell and is being started again may have minutes of log to go through. That it
// was down for a moment need not have been seen.
func TestALeaderIsNotReplacedByItsOwnRecovery(t *testing.T) {
	for name, test := range map[string]struct {
		facts func(*Facts)
		want  Role
	}{
		"it fell and starts again":             {func(f *Facts) { f.Server, f.Fell = ServerUnknown, true }, RoleStop},
		"it fell":                              {func(f *Facts) { f.Server, f.Fell = ServerStopped, true }, RoleStop},
		"it is restarted on purpose":           {func(f *Facts) { f.Server, f.BackAtOnce = ServerStopped, true }, RolePrimary},
		"it is not known how the server is":    {func(f *Facts) { f.Server = ServerUnknown }, RolePrimary},
		"it fell, for its volume has no room":  {func(f *Facts) { f.Server, f.Full, f.BackAtOnce = ServerStopped, true, true }, RolePrimary},
		"another one has come up to that role": {func(*Facts) {}, RolePrimary},
	} {
		t.Run(name, func(t *testing.T) {
			rec, f := goodRecord(), replicaFacts()
			rec.Leader = "a"
			f.Server, f.BackAtOnce = ServerStopped, true
			b := newBenchOf(t, Promise{Epoch: 5, Candidate: "a", Lease: 5}, true, rec, f)
			b.now = b.now.Add(80 * time.Millisecond)
			b.granted()
			f.Server, f.BackAtOnce, f.Obeys = ServerPrimary, false, b.last.Serial
			b.step(f)
			if !b.m.lead.promoted {
				t.Fatalf("it does not lead: %+v", b.last)
			}
			test.facts(&f)
			b.step(f)
			if b.last.Role != test.want {
				t.Errorf("it is told %+v, want %s", b.last, test.want)
			}
		})
	}
}

// TestALeaderTellsWhereTheMembersAre: whoever stands for election after it must find the others, and DNS may be gone with its node.
func TestALeaderTellsWhereTheMembersAre(t *testing.T) {
	rec, f := goodRecord(), replicaFacts()
	rec.Leader = "a"
	f.Server = ServerPrimary
	b := newBenchOf(t, Promise{Epoch: 5, Candidate: "a", Lease: 5}, true, rec, f)
	grants := func() map[string]Request {
		sent := map[string]Request{}
		for _, o := range b.out {
			if s, ok := o.(Send); ok && s.Request.Kind == KindGrant {
				sent[s.To] = s.Request
			}
		}
		b.out = nil
		return sent
	}
	at := map[string]string{"b": "10.0.0.2", "c": ""} // an agent of another version tells nothing
	for to, r := range grants() {
		if len(r.Members) > 0 {
			t.Errorf("before anybody answered, %s is told %v", to, r.Members)
		}
		b.step(Answered{Answer{Database: "uid", From: to, Seq: r.Seq, OK: true, Promise: 5, To: "a", Address: at[to]}})
	}
	b.after(time.Second)
	want := Places{"b": "10.0.0.2"}
	for to, r := range grants() {
		if d := cmp.Diff(want, r.Members); d != "" || r.Validate() != nil {
			t.Errorf("%s is told (%v, -want +got):\n%s", to, r.Validate(), d)
		}
	}
	for _, bad := range []Places{{"b": "elsewhere"}, {"b": ""}, {"-": "10.0.0.2"}} {
		if err := (Request{Kind: KindGrant, Database: "uid", From: "b", Members: bad}).Validate(); err == nil {
			t.Errorf("the addresses %v were taken", bad)
		}
	}
}

func TestNobodyHurriesTheOnlyVoter(t *testing.T) {
	lead := func(voters ...string) *bench {
		rec, f := goodRecord(), replicaFacts()
		rec.Leader, rec.Voters = "a", voters
		b := newBenchOf(t, Promise{Epoch: 5, Candidate: "a", Lease: 5}, true, rec, f)
		f.Server = ServerPrimary
		b.step(f)
		if b.last.Role != RolePrimary {
			t.Fatalf("the only voter: %+v", b.last)
		}
		b.step(f)
		return b
	}
	for name, in := range map[string]Input{"leaving": Leaving{}, "fenced": Aim{Members: []string{"a"}, Fenced: true}} {
		t.Run(name, func(t *testing.T) {
			b := lead("a")
			b.step(in)
			if b.last.Role != RoleStop || b.last.Deadline != 0 {
				t.Errorf("%+v, want a stop without a deadline", b.last)
			}
			if why := b.after(time.Minute).ask(KindSupport, "c", 6); why == "" {
				t.Error("it supports another before its server has stopped")
			}
			b.step(Facts{Obeys: 1 << 40, Server: ServerStopped, HasData: true, StopBudget: time.Second})
			if b.last.Role != RoleStop || b.m.stage != idle {
				t.Errorf("%+v in stage %s, want stopped for good", b.last, b.m.stage)
			}
		})
	}
	t.Run("a second voter may have been written", func(t *testing.T) {
		b := lead("a")
		b.m.lead.lists = [][]string{{"a"}, {"a", "b"}}
		b.m.lead.grants["b"] = b.now
		b.step(Leaving{})
		for b.last.Role != RoleStop && b.now < start.Add(time.Minute) {
			b.m.lead.grants["b"] = b.now
			b.after(100 * time.Millisecond)
		}
		if b.last.Role != RoleStop || b.last.Deadline == 0 || b.last.Deadline > b.now.Add(3*time.Second) {
			t.Errorf("%+v, want a deadline within a grant: the other may count", b.last)
		}
	})
}

func TestReportingWithoutNewsDecidesNothing(t *testing.T) {
	rec, f := goodRecord(), replicaFacts()
	rec.Leader, rec.Voters = "a", []string{"a"}
	b := newBenchOf(t, Promise{Epoch: 5, Candidate: "a", Lease: 5}, true, rec, f)
	f.Server = ServerPrimary
	b.step(f)
	if b.last.Role != RolePrimary {
		t.Fatalf("the only voter: %+v", b.last)
	}
	b.step(f) // followers are told at once that it runs
	b.now = b.now.Add(time.Millisecond)
	b.step(f)
	b.out = nil
	for range 20 {
		b.now = b.now.Add(time.Millisecond)
		b.step(f)
	}
	for _, o := range b.out {
		if d, ok := o.(Decide); ok {
			// An agent that reports whenever it is told something would go round in circles.
			t.Errorf("decided again: %+v", d.Decision)
		}
	}
}
