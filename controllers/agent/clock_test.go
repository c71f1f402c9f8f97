package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestASwitchoverRunsOutByTheClockOfThisMachine(t *testing.T) {
	at := func(d time.Duration) lease.Time { return lease.Time(time.Hour).Add(d) }
	ask := func(id string, within time.Duration) *engine.Switchover {
		return &engine.Switchover{ID: id, Within: within.Milliseconds()}
	}
	first := patience{id: "a", until: at(time.Minute)}
	for sentence, row := range map[string]struct {
		was  patience
		ask  *engine.Switchover
		now  time.Duration
		want patience
	}{
		"its time runs from the first sight":                {patience{}, ask("a", time.Minute), 0, first},
		"a later aim with it leaves its time alone":         {first, ask("a", time.Minute), 50 * time.Second, first},
		"an aim without it does not make it young again":    {first, nil, 50 * time.Second, first},
		"one that comes back after its end is over":         {first, ask("a", time.Hour), time.Hour, first},
		"another has a time of its own":                     {first, ask("b", time.Minute), 50 * time.Second, patience{id: "b", until: at(110 * time.Second)}},
		"one without a time is over at once":                {first, ask("b", 0), time.Second, patience{id: "b", until: at(time.Second)}},
		"one for longer than a clock counts ends, but late": {first, &engine.Switchover{ID: "b", Within: 1<<63 - 1}, 0, patience{id: "b", until: at(maxPatience)}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := row.was.with(row.ask, at(row.now))
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(patience{})); diff != "" {
				t.Errorf("patience (-want +got):\n%s", diff)
			}
		})
	}
}

// setClock is set by the test.
type setClock struct{ now lease.Time }

func (c *setClock) Now() lease.Time { return c.now }

// TestALeaderAnswersByItsBootClock: what the time of day is, on this machine or the manager's, has no say.
func TestALeaderAnswersByItsBootClock(t *testing.T) {
	clock := &setClock{now: lease.Time(time.Hour)}
	r := newReporter(Config{Instance: "orders-1"}, clock, newCertificates(t.TempDir(), t.TempDir()), func() string { return "" })
	aim := aimFor(func(a *engine.Aim) { a.Switchover = &engine.Switchover{ID: "s", Within: time.Minute.Milliseconds()} })
	r.sample.Word.Decision = lease.Decision{Role: lease.RolePrimary}
	r.want(aim, "1", patience{}.with(aim.Switchover, clock.now).until, 0)
	waiting := []engine.Answer{{ID: "s", State: "Running", Message: "waits for a fit member to take over"}}
	over := []engine.Answer{{ID: "s", State: "Expired", Message: "no fit member could take over in time"}}
	if diff := cmp.Diff(waiting, r.answers()); diff != "" {
		t.Errorf("within its time (-want +got):\n%s", diff)
	}
	clock.now = clock.now.Add(time.Minute)
	if diff := cmp.Diff(over, r.answers()); diff != "" {
		t.Errorf("after its time (-want +got):\n%s", diff)
	}
}

// TestARecoveryIsAnsweredByWhoWasNamed, in every state.
func TestARecoveryIsAnsweredByWhoWasNamed(t *testing.T) {
	leads := lease.Decision{Role: lease.RolePrimary, Record: lease.Record{Epoch: 8, Recovered: lease.Recovered{ID: "r", Epoch: 8}}}
	for sentence, row := range map[string]struct {
		decision lease.Decision
		server   engine.Kind
		refused  string
		after    time.Duration
		want     engine.Answer
	}{
		"it has begun":             {lease.Decision{Role: lease.RoleReplica}, engine.Replica, "", 0, engine.Answer{ID: "r", State: "Running", Message: "asks the others whether they know of a leader"}},
		"somebody leads":           {lease.Decision{Role: lease.RoleReplica}, engine.Replica, "orders-2 leads", 0, engine.Answer{ID: "r", State: "Failed", Message: "orders-2 leads"}},
		"its time is over":         {lease.Decision{Role: lease.RoleReplica}, engine.Replica, "", time.Minute, engine.Answer{ID: "r", State: "Expired", Message: "it could not be begun in time"}},
		"the Lease names it":       {leads, engine.Replica, "", time.Minute, engine.Answer{ID: "r", State: "Running", Message: "orders-1 has the lead by the Lease, and is being promoted"}},
		"its server is primary":    {leads, engine.Primary, "", 0, engine.Answer{ID: "r", State: "Done", Message: "orders-1 leads with epoch 8, at first as the only voter"}},
		"that of an earlier order": {lease.Decision{Role: lease.RoleReplica, Record: lease.Record{Recovered: lease.Recovered{ID: "q"}}}, engine.Replica, "", 0, engine.Answer{ID: "r", State: "Running", Message: "asks the others whether they know of a leader"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			clock := &setClock{now: lease.Time(time.Hour)}
			r := newReporter(Config{Instance: "orders-1"}, clock, newCertificates(t.TempDir(), t.TempDir()), func() string { return "" })
			r.sample = sample{Word: word{Decision: row.decision}, Report: engine.Report{Role: row.server}}
			order := &engine.Recovery{ID: "r", Within: time.Minute.Milliseconds()}
			r.want(aimFor(func(a *engine.Aim) { a.Recovery = order }), "1", 0, patience{}.withRecovery(order, clock.now).until)
			if row.refused != "" {
				r.event(lease.Event{Kind: lease.EventRefused, Cause: row.refused})
			}
			clock.now = clock.now.Add(row.after)
			if diff := cmp.Diff([]engine.Answer{row.want}, r.answers()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// TestASwitchoverOnTheVolumeIsNotCarriedOut: an agent that starts again does not know how old it is. The manager sees another revision,
// and sends it again if it still holds.
func TestASwitchoverOnTheVolumeIsNotCarriedOut(t *testing.T) {
	cfg := Config{Namespace: "shop", Database: "orders", UID: testUID, Instance: "orders-1", StateDir: t.TempDir()}
	with := aimFor(func(a *engine.Aim) {
		a.Switchover = &engine.Switchover{ID: "s", Within: 60_000}
		a.Recovery = &engine.Recovery{ID: "r", LeaseVersion: "7", Within: 60_000}
	})
	without := aimFor(nil)
	if err := save(cfg.aimPath(), with); err != nil {
		t.Fatal(err)
	}
	got, revision, found, err := recalled(cfg)
	if err != nil || !found || revision != "" {
		t.Fatalf("found %v, revision %q, %v", found, revision, err)
	}
	if diff := cmp.Diff(without, got); diff != "" {
		t.Errorf("aim (-want +got):\n%s", diff)
	}
}
