package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
)

// leaderless is a member whose leader b fell silent, and whose Lease could be read or not.
func (b *bench) leaderless(read LeaseRead) {
	b.led()
	b.obey()
	b.after(3001 * time.Millisecond)
	b.step(read)
}

// led has b ask for a grant after a minute.
func (b *bench) led() {
	b.after(time.Minute)
	b.step(b.readable(goodRecord())) // it looked for a leader until then
	b.ask(KindGrant, "b", 5)
}

func (b *bench) readable(rec Record) LeaseRead {
	return LeaseRead{Outcome: Done, Seen: Seen{ResourceVersion: "2", Record: rec, HasRecord: true}}
}

// says is an answer of a voter to what it was asked last.
func (b *bench) says(from string, a Answer) {
	for i := len(b.out) - 1; i >= 0; i-- {
		if s, ok := b.out[i].(Send); ok && s.To == from {
			a.Database, a.From, a.Seq = "uid", from, s.Request.Seq
			b.step(Answered{a})
			return
		}
	}
	b.t.Fatalf("%s was asked for nothing", from)
}

func TestAMemberSaysWhatItWaitsFor(t *testing.T) {
	toB := Promise{Epoch: 5, Candidate: "b", Lease: 5}
	at := func(d time.Duration) Time { return start.Add(time.Minute + d) }
	const out = 3001 * time.Millisecond
	pair := goodRecord()
	pair.Witness = "c"
	degraded := goodRecord()
	degraded.Degraded = true
	other := goodRecord()
	other.Voters = []string{"b", "c"}
	for sentence, row := range map[string]struct {
		do    func(b *bench)
		want  Wait
		words string
	}{
		"a leader that acts is nothing to wait for": {func(b *bench) {
			b.led()
		}, Wait{}, ""},
		"a leader that fell silent is waited for until its grant has run out": {func(b *bench) {
			b.led()
			b.after(1500 * time.Millisecond)
		}, Wait{For: WaitGrant, Since: at(1500 * time.Millisecond), Who: "b"}, "nothing is heard of b, and its grant has not run out"},
		"the API server does not answer": {func(b *bench) {
			b.leaderless(LeaseRead{Outcome: Unknown})
			b.after(time.Minute)
		}, Wait{For: WaitAPIServer, Since: at(out)}, "the API server does not answer, and nobody is elected without it"},
		"the API server has not answered for a second": {func(b *bench) {
			b.led()
			b.obey()
			b.after(out)
			b.after(time.Second)
		}, Wait{For: WaitAPIServer, Since: at(out)}, "the API server does not answer, and nobody is elected without it"},
		"the API server refuses": {func(b *bench) {
			b.leaderless(LeaseRead{Outcome: Unknown, Fault: faultOf(fmt.Errorf("get: %w", &kube.StatusError{Code: 403, Reason: "Forbidden"}))})
		}, Wait{For: WaitAPIServer, Since: at(out), Why: "answers 403 Forbidden"}, "the API server answers 403 Forbidden, and nobody is elected without it"},
		"the Lease is not understood": {func(b *bench) {
			b.leaderless(LeaseRead{Outcome: Unknown, Fault: faultOf(fmt.Errorf("lease orders: %w: %w", ErrUnreadable, errors.New("format 2")))})
		}, Wait{For: WaitLease, Since: at(out), Why: "lease orders: what it holds is not understood: format 2"}, "the Lease cannot be used: lease orders: what it holds is not understood: format 2"},
		"two of three voters are silent": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.after(time.Second)
		}, Wait{For: WaitSilent, Since: at(out + time.Second), Who: "b, c"}, "there is no majority: b, c do not answer"},
		"the leader is silent and the other voter refuses": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.says("c", Answer{Why: "bound by a grant"})
			b.after(time.Second)
		}, Wait{For: WaitSilent, Since: at(out + time.Second), Who: "b", Why: "c refused: bound by a grant"}, "there is no majority: b does not answer: c refused: bound by a grant"},
		"all answer and refuse": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.says("b", Answer{Why: "bound by a grant"})
			b.says("c", Answer{Why: "bound by a grant"})
		}, Wait{For: WaitRefused, Since: at(out), Who: "b, c", Why: "bound by a grant"}, "there is no majority: b, c do not give a vote now: bound by a grant"},
		"of two, the other and the witness are silent": {func(b *bench) {
			b.leaderless(b.readable(pair))
			b.after(time.Second)
		}, Wait{For: WaitSilent, Since: at(out + time.Second), Who: "b, c (the witness)"}, "there is no majority: b, c (the witness) do not answer"},
		"a better one goes first": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.says("c", Answer{OK: true, Able: true, HasData: true, Position: Position{Known: true, Rank: 4, At: 200}})
			b.says("b", Answer{Why: "no"})
		}, Wait{For: WaitAside, Since: at(out), Who: "c", Why: "it holds more"}, "it stands aside for c: it holds more"},
		"one that cannot lead holds more": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.says("c", Answer{OK: true, HasData: true, Position: Position{Known: true, Rank: 4, At: 200}})
			b.after(time.Second)
		}, Wait{For: WaitAhead, Since: at(out + time.Second), Who: "c"}, "c holds more, and cannot lead"},
		"its own log's end is not known": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			f := replicaFacts()
			f.Position = Position{}
			b.step(f)
		}, Wait{For: WaitPosition, Since: at(out), Who: "a"}, "how far the log of a goes is not known"},
		"only the last leader holds all": {
			func(b *bench) { b.leaderless(b.readable(degraded)) },
			Wait{For: WaitOnly, Since: at(out), Who: "b"},
			"writes were acknowledged that only b is known to hold: nobody else may lead until it is back",
		},
		"it has no vote": {func(b *bench) { b.leaderless(b.readable(other)) }, Wait{For: WaitVote, Since: at(out)}, "it has no vote"},
		"the Lease is gone": {
			func(b *bench) { b.leaderless(LeaseRead{Outcome: Done}) },
			Wait{For: WaitOlder, Since: at(out)},
			"the Lease is missing, or older than what this instance saw there; only a leader with grants may write it again",
		},
		"it is fenced": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.step(Aim{Fenced: true})
		}, Wait{For: WaitUnable, Since: at(out), Why: "it is fenced"}, "it cannot lead: it is fenced"},
		"it was restarted a moment ago": {
			func(b *bench) { b.after(time.Second) },
			Wait{For: WaitRestart, Since: start},
			"it was restarted a moment ago, and what it may have granted before has not run out",
		},
		"another has its vote": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			b.ask(KindSupport, "c", 6)
			b.obey()
		}, Wait{For: WaitAside, Since: at(out), Who: "c", Why: "it gave it its vote"}, "it stands aside for c: it gave it its vote"},
		"its server has not ended receiving": {func(b *bench) {
			b.leaderless(b.readable(goodRecord()))
			f := replicaFacts()
			f.Receiving = true
			b.step(f)
			yes := Answer{OK: true, HasData: true, Position: Position{Known: true, Rank: 4, At: 100}}
			b.says("b", yes)
			b.says("c", yes)
		}, Wait{For: WaitReceiving, Since: at(out)}, "its server has not ended receiving from the old leader"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBench(t, toB, true)
			row.do(b)
			got := b.m.status().Wait
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if got.Words() != row.words {
				t.Errorf("in words: %q, want %q", got.Words(), row.words)
			}
		})
	}
}

// TestAnOutageOfTheAPIServerIsToldWhileItLastsAndAfterwards : who waits says so, and the one that wins in the end tells for how long.
func TestAnOutageOfTheAPIServerIsToldWhileItLastsAndAfterwards(t *testing.T) {
	w := settled(t, 3)
	w.apiDown = true
	w.nodes[0].crash()
	w.run(15 * time.Second)
	for _, n := range w.nodes[1:] {
		if got := n.m.status().Wait; got.For != WaitAPIServer {
			t.Errorf("%s waits for %+v", n.name, got)
		}
	}
	w.apiDown = false
	w.run(12 * time.Second)
	lead := w.byName[w.lease.Record.Leader]
	if lead.name == "m0" || lead.m.stage != leading {
		t.Fatalf("%s leads\n%s", lead.name, w.tail(40))
	}
	line := lead.m.waited()
	if got := line.Waited[WaitAPIServer]; got < 11*time.Second || got > 18*time.Second {
		t.Errorf("it waited %s for the API server: %v", got, line.Waited)
	}
	if got := line.WaitedFor(); !strings.Contains(got, " s for the API server") || !strings.Contains(got, " s for a grant to run out") {
		t.Errorf("in words: %q", got)
	}
}

// TestClientsAreSentToALeaderWhateverItsEpoch : one that was routed at an epoch and took a later one without a break is still found.
func TestClientsAreSentToALeaderWhateverItsEpoch(t *testing.T) {
	for sentence, row := range map[string]struct {
		routed uint64
		want   WaitFor
	}{
		"it was never routed":                   {0, WaitRoute},
		"it was routed before it took an epoch": {1, WaitNothing},
	} {
		t.Run(sentence, func(t *testing.T) {
			m := settled(t, 3).nodes[0].m
			m.lead.epoch, m.lead.routed, m.lead.routeTries = 2, row.routed, 1
			if got := m.waits().For; got != row.want {
				t.Errorf("it waits for %q, want %q", got, row.want)
			}
		})
	}
}

// TestAnEndpointSliceOfALaterEpochIsTold from the first time that it is read: nobody is sent to this leader, and it must not count as one
// that clients reach. It goes on looking, since nobody may tell it that the slice has changed.
func TestAnEndpointSliceOfALaterEpochIsTold(t *testing.T) {
	for sentence, before := range map[string]uint64{"it was never routed": 0, "it was routed before": 1} {
		t.Run(sentence, func(t *testing.T) {
			m := settled(t, 3).nodes[0].m
			m.lead.routed, m.aim.SliceVersion, m.cfg.MaxRetry = before, "7", time.Millisecond // a longer pause would end its grants
			looks := func() int {
				n := 0
				for _, o := range m.Step(m.now, Tick{}) {
					if _, ok := o.(Route); ok {
						n++
					}
				}
				return n
			}
			if looks() != 1 {
				t.Fatal("it does not look at the EndpointSlice")
			}
			m.Step(m.now, Routed{Epoch: m.lead.epoch, Outcome: Conflict})
			want := "it leads, and clients are not sent to it yet: the EndpointSlice names a later epoch; delete it unless another instance leads"
			if got := m.status().Wait; got.For != WaitRoute || got.Words() != want {
				t.Errorf("it waits for %q: %s", got.For, got.Words())
			}
			m.now = m.now.Add(m.cfg.MaxRetry)
			if looks() != 1 {
				t.Error("it does not look again")
			}
			m.Step(m.now, Routed{Epoch: m.lead.epoch, Outcome: Done})
			if got := m.status().Wait; got.For != WaitNothing {
				t.Errorf("once it is routed it waits for %q", got.For)
			}
		})
	}
}

// TestTheTimeLineGoesThroughJSON : a leader's is kept when its program is exchanged.
func TestTheTimeLineGoesThroughJSON(t *testing.T) {
	want := Line{Seen: 1, Expired: 2, Waited: map[WaitFor]time.Duration{WaitAPIServer: time.Second}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Line
	if err := json.Unmarshal(raw, &got); err != nil || cmp.Diff(want, got) != "" {
		t.Error(err, cmp.Diff(want, got))
	}
}

// TestAnElectionWithoutHindranceTellsOfNoWait : what every change of hands takes is in its steps.
func TestAnElectionWithoutHindranceTellsOfNoWait(t *testing.T) {
	w := settled(t, 3)
	w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
	w.run(8 * time.Second)
	if got := w.byName["m2"].m.line.WaitedFor(); got != "" || w.lease.Record.Leader != "m2" {
		t.Errorf("%s leads and waited %s", w.lease.Record.Leader, got)
	}
}
