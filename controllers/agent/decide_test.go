package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	testNow    = lease.Time(100 * time.Second)
	testBudget = 300 * time.Millisecond
	testFast   = 20 * time.Second
	testLong   = 110 * time.Second
)

func testAim() engine.Aim {
	return engine.Aim{
		UID: testUID, Namespace: "shop", Database: "orders", Member: "orders-1", Bootstrap: "orders-1", Synchronous: "required",
		Members: []engine.Peer{{Name: "orders-1", Address: "one"}, {Name: "orders-2", Address: "two"}, {Name: "orders-3", Address: "three"}},
	}
}

// follows and leads are what most rows begin with: an up replica of orders-2, and an up primary at epoch 7.
func follows() seen {
	s := seen{
		Now: testNow, HasAim: true, Aim: testAim(), Connected: -1, StopBudget: testBudget, StopFast: testFast, StopLong: testLong,
		Decision: lease.Decision{Serial: 5, Role: lease.RoleReplica, Epoch: 7, Leader: "orders-2", Upstream: "orders-2"},
	}
	return upAs(s, engine.Replica)
}

func leads() seen {
	s := follows()
	s.Decision = lease.Decision{
		Serial: 5, Role: lease.RolePrimary, Epoch: 7, Leader: "orders-1", Timeline: 4, Deadline: testNow.Add(2 * time.Second),
		Sync: []string{"orders-2", "orders-3"}, SyncNeed: 1,
		Record: lease.Record{Version: 9, Voters: []string{"orders-1", "orders-2", "orders-3"}},
	}
	return upAs(s, engine.Primary)
}

func upAs(s seen, kind engine.Kind) seen {
	r := wanted(s)
	s.Server = server{Life: up, Kind: kind, Became: &r, LookAgain: testNow.Add(lookAgain)}
	return s
}

func with(s seen, change func(*seen)) seen {
	change(&s)
	return s
}

func isDown(s *seen) { s.Server = server{Life: down} }

func TestDecide(t *testing.T) {
	type want struct {
		Do       action
		Kind     engine.Kind
		Upstream string
		Until    lease.Time
		Obeyed   bool
		Anew     bool
	}
	after := func(d time.Duration) lease.Time { return testNow.Add(d) }
	rows := map[string]struct {
		seen seen
		want want
	}{
		"without a decision nothing is started": {
			seen{Now: testNow, HasAim: true, Aim: testAim(), Server: server{Life: down}, Decision: lease.Decision{Role: lease.RoleNone}},
			want{Do: rest, Obeyed: true},
		},
		"without an aim nothing is started": {
			with(follows(), func(s *seen) { isDown(s); s.HasAim = false }), want{Do: rest},
		},
		"what an ended server left is cleared before all else": {
			with(leads(), func(s *seen) { s.Server.Life = fallen }), want{Do: hardStop},
		},

		"a replica that follows rests":                     {follows(), want{Do: rest, Until: after(lookAgain), Obeyed: true}},
		"a replica is told a new upstream":                 {with(follows(), func(s *seen) { s.Decision.Upstream = "orders-3" }), want{Do: become, Kind: engine.Replica, Upstream: "three"}},
		"a replica is told to receive from nobody":         {with(follows(), func(s *seen) { s.Decision.Upstream = "" }), want{Do: become, Kind: engine.Replica}},
		"a replica is told new certificates":               {with(follows(), func(s *seen) { s.Secrets = "new" }), want{Do: become, Kind: engine.Replica, Upstream: "two"}},
		"a replica is told its role again now and then":    {with(follows(), func(s *seen) { s.Now = after(lookAgain) }), want{Do: become, Kind: engine.Replica, Upstream: "two", Obeyed: true}},
		"a replica that failed to converge waits a moment": {with(follows(), func(s *seen) { s.Server.Became = nil; s.Server.RetryAt = after(time.Second) }), want{Do: rest, Until: after(time.Second)}},
		"a replica that cannot follow is stopped": {
			with(follows(), func(s *seen) { s.Unfit = true }), want{Do: fastStop, Until: after(testFast), Obeyed: true},
		},
		"a replica that stands still is started again": {
			with(follows(), func(s *seen) { s.Server.Due = startAgain }), want{Do: fastStop, Until: after(testFast), Obeyed: true},
		},
		"a replica of nobody has nothing to stand behind": {
			with(follows(), func(s *seen) { s.Decision.Upstream = ""; s.Server.Due = startAgain }), want{Do: become, Kind: engine.Replica},
		},
		"a replica that a restart did not help is stopped for a copy": {
			with(follows(), standsStill3), want{Do: fastStop, Until: after(testFast), Obeyed: true},
		},
		"unless another is being copied": {
			with(follows(), func(s *seen) { standsStill3(s); s.Rebuilds = "orders-3" }), want{Do: rest, Until: after(lookAgain), Obeyed: true},
		},
		"what a copy would discard is looked into": {
			with(follows(), func(s *seen) { standsStill3(s); isDown(s); s.Server.Due = copyAnew }), want{Do: plan, Kind: engine.Replica, Upstream: "two", Anew: true},
		},
		"a copy that must wait is given up for a start": {
			with(follows(), func(s *seen) {
				standsStill3(s)
				r := wanted(*s)
				r.Anew = true
				s.Server = server{Life: down, Due: copyAnew, Planned: &r, Discards: true}
				s.Rebuilds = "orders-3"
			}), want{Do: plan, Kind: engine.Replica, Upstream: "two"},
		},
		"a primary that does not lead any more is killed": {
			with(follows(), func(s *seen) { s.Server.Kind = engine.Primary }), want{Do: hardStop},
		},
		"a stopped replica looks at its data first":        {with(follows(), isDown), want{Do: plan, Kind: engine.Replica, Upstream: "two"}},
		"data that holds nothing to lose is prepared":      {with(follows(), planned(false)), want{Do: prepare, Kind: engine.Replica, Upstream: "two"}},
		"a voter does not discard its data":                {with(follows(), planned(true)), want{Do: rest}},
		"a member that is no voter discards its data":      {with(follows(), func(s *seen) { planned(true)(s); s.Decision.MayWipe = true }), want{Do: prepare, Kind: engine.Replica, Upstream: "two"}},
		"prepared data is started":                         {with(follows(), prepared), want{Do: start, Kind: engine.Replica, Upstream: "two"}},
		"data that was prepared for another is not":        {with(follows(), func(s *seen) { prepared(s); s.Decision.Upstream = "orders-3" }), want{Do: plan, Kind: engine.Replica, Upstream: "three"}},
		"a stopped server that receives from nobody obeys": {with(follows(), func(s *seen) { isDown(s); s.Decision.Upstream = "" }), want{Do: plan, Kind: engine.Replica, Obeyed: true}},
		"an upstream without an address is waited for":     {with(follows(), func(s *seen) { isDown(s); s.Decision.Upstream = "orders-9" }), want{Do: rest}},
		"nothing starts under a decision that a hard stop ended": {
			with(follows(), func(s *seen) { prepared(s); s.Server.Barrier = 5 }), want{Do: rest},
		},

		"a primary that leads rests":               {leads(), want{Do: rest, Until: after(lookAgain), Obeyed: true}},
		"a replica that was elected is promoted":   {with(leads(), func(s *seen) { s.Server.Kind = engine.Replica; s.Server.Became = nil }), want{Do: become, Kind: engine.Primary}},
		"a primary is told a new synchronous list": {with(leads(), func(s *seen) { s.Decision.Sync = []string{"orders-3"} }), want{Do: become, Kind: engine.Primary}},
		"a moved deadline alone is no work":        {with(leads(), func(s *seen) { s.Decision.Deadline = after(time.Hour) }), want{Do: rest, Until: after(lookAgain), Obeyed: true}},
		"a leader whose server died lets others go first": {
			with(leads(), func(s *seen) { isDown(s); s.Server.FellAt = testNow }), want{Do: rest, Until: after(fallPause)},
		},
		"a leader whom nobody replaces starts again": {with(leads(), func(s *seen) { isDown(s); s.Server.FellAt = after(-fallPause) }), want{Do: prepare, Kind: engine.Primary}},
		"a leader without room waits for some":       {with(leads(), func(s *seen) { isDown(s); s.Server.Full = true }), want{Do: rest, Until: after(time.Second)}},
		"a leader that answers nobody is killed":     {with(leads(), func(s *seen) { s.Server.Frozen = true }), want{Do: hardStop, Obeyed: true}},
		"a replica that answers nobody is killed":    {with(follows(), func(s *seen) { s.Server.Frozen = true }), want{Do: hardStop, Obeyed: true}},
		"a replica that does not end receiving is killed": {
			with(follows(), func(s *seen) { s.Server.Deaf = true; s.Decision.Upstream = ""; s.Server.Became = nil }), want{Do: hardStop},
		},
		"a replica without room waits for some":     {with(follows(), func(s *seen) { prepared(s); s.Server.Full = true }), want{Do: rest, Until: after(time.Second)}},
		"a leader does not start under its barrier": {with(leads(), func(s *seen) { isDown(s); s.Server.Barrier = 5 }), want{Do: rest}},
		"a hand-over begins with a checkpoint":      {with(leads(), func(s *seen) { s.Decision.Phase = lease.PhasePreparing }), want{Do: checkpoint, Kind: engine.Primary}},
		"a prepared hand-over waits":                {with(leads(), func(s *seen) { s.Decision.Phase = lease.PhasePreparing; s.Server.Checkpointed = true }), want{Do: rest, Obeyed: true}},
		"a hand-over quiesces":                      {with(leads(), func(s *seen) { s.Decision.Phase = lease.PhaseQuiescing }), want{Do: quiesce, Kind: engine.Primary}},
		"a quiesced leader waits":                   {with(leads(), func(s *seen) { s.Decision.Phase = lease.PhaseQuiescing; s.Server.Quiesced = true }), want{Do: rest, Obeyed: true}},
		"a hand-over that was called off is undone": {with(leads(), func(s *seen) { s.Server.Quiesced = true }), want{Do: become, Kind: engine.Primary}},

		"nobody is promoted after the deadline":            {with(leads(), func(s *seen) { s.Server.Kind = engine.Replica; s.Server.Became = nil; s.Decision.Deadline = testNow }), want{Do: rest}},
		"no primary starts after the deadline":             {with(leads(), func(s *seen) { prepared(s); s.Decision.Deadline = testNow }), want{Do: rest}},
		"no primary starts in the middle of a hand-over":   {with(leads(), func(s *seen) { prepared(s); s.Decision.Phase = lease.PhaseQuiescing }), want{Do: rest}},
		"a leadership that runs out is killed":             {with(leads(), stop(after(testBudget), lease.PhaseNone)), want{Do: hardStop}},
		"a leader without an heir stops fast while it may": {with(leads(), stop(after(time.Second), lease.PhaseNone)), want{Do: fastStop, Until: after(time.Second - testBudget)}},
		"a handed over server gets until its deadline":     {with(leads(), stop(after(time.Second), lease.PhaseStopping)), want{Do: fastStop, Until: after(time.Second - testBudget)}},
		"a handed over server is killed by its deadline": {with(leads(), func(s *seen) {
			stop(after(testBudget), lease.PhaseStopping)(s)
			s.Server.StopSent = after(-time.Second)
		}), want{Do: hardStop}},
		"a deadline that is too near is no fast stop": {with(leads(), stop(after(testBudget), lease.PhaseStopping)), want{Do: hardStop}},
		"a fenced replica stops gently":               {with(follows(), stop(0, lease.PhaseNone)), want{Do: fastStop, Until: after(testLong)}},
		"a leader whom nobody can replace, too":       {with(leads(), stop(0, lease.PhaseNone)), want{Do: fastStop, Until: after(testLong)}},
		"a gentle stop is waited for":                 {with(follows(), func(s *seen) { stop(0, lease.PhaseNone)(s); s.Server.StopSent = after(-time.Second) }), want{Do: rest, Until: after(testLong - time.Second)}},
		"a gentle stop has an end":                    {with(follows(), func(s *seen) { stop(0, lease.PhaseNone)(s); s.Server.StopSent = after(-testLong) }), want{Do: hardStop}},
		"a restart that becomes a stop gets its time": {with(follows(), func(s *seen) { stop(0, lease.PhaseNone)(s); s.Server.StopSent = after(-testFast) }), want{Do: rest, Until: after(testLong - testFast)}},
		"a stopped server obeys a stop":               {with(leads(), func(s *seen) { stop(after(time.Second), lease.PhaseNone)(s); isDown(s) }), want{Do: rest, Obeyed: true}},

		"a restart stops an up server":              {with(follows(), func(s *seen) { s.Aim.Restart = "r1" }), want{Do: fastStop, Until: after(testFast), Obeyed: true}},
		"a restart that was done is not repeated":   {with(follows(), func(s *seen) { s.Aim.Restart = "r1"; s.Memory.RestartDone = "r1" }), want{Do: rest, Until: after(lookAgain), Obeyed: true}},
		"a server that began with the token is new": {with(follows(), func(s *seen) { s.Aim.Restart = "r1"; s.Server.Token = "r1" }), want{Do: rest, Until: after(lookAgain), Obeyed: true}},
		"a restart waits for a hand-over's end":     {with(leads(), func(s *seen) { s.Aim.Restart = "r1"; s.Decision.Phase = lease.PhaseQuiescing }), want{Do: quiesce, Kind: engine.Primary}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			next := decide(row.seen)
			got := want{Do: next.Do, Kind: next.Role.Kind, Upstream: next.Role.Upstream, Until: next.Until, Obeyed: obeyed(row.seen), Anew: next.Role.Anew}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\nwhy: %s", diff, next.Why)
			}
		})
	}
}

func standsStill3(s *seen) {
	s.Server.Due = copyAnew
	s.Decision.Record = lease.Record{Version: 9, Voters: []string{"orders-1", "orders-2", "orders-3"}}
}

func planned(discards bool) func(*seen) {
	return func(s *seen) {
		isDown(s)
		r := wanted(*s)
		s.Server.Planned, s.Server.Discards = &r, discards
	}
}

func prepared(s *seen) {
	isDown(s)
	r := wanted(*s)
	s.Server.Prepared = &r
}

func stop(by lease.Time, phase lease.Phase) func(*seen) {
	return func(s *seen) { s.Decision.Role, s.Decision.Deadline, s.Decision.Phase = lease.RoleStop, by, phase }
}

func TestRole(t *testing.T) {
	first := lease.Decision{Role: lease.RolePrimary, Epoch: 1, Timeline: 1, Record: lease.Record{Version: 1, Voters: []string{"orders-1"}}}
	rows := map[string]struct {
		decision lease.Decision
		change   func(*engine.Aim)
		before   bool
		want     engine.Role
	}{
		"the bootstrap member begins the Database": {first, nil, false, engine.Role{Kind: engine.Primary, Epoch: 1, Timeline: 1, Initialise: true}},
		"it never begins it twice":                 {first, nil, true, engine.Role{Kind: engine.Primary, Epoch: 1, Timeline: 1}},
		"nobody else begins it":                    {first, func(a *engine.Aim) { a.Bootstrap = "orders-2" }, false, engine.Role{Kind: engine.Primary, Epoch: 1, Timeline: 1}},
		"nobody begins one that had a second voter": {
			lease.Decision{Role: lease.RolePrimary, Epoch: 1, Timeline: 1, Record: lease.Record{Version: 3, Voters: []string{"orders-1"}}},
			nil, false,
			engine.Role{Kind: engine.Primary, Epoch: 1, Timeline: 1},
		},
		"a synchronous list comes from the leadership": {
			lease.Decision{Role: lease.RolePrimary, Epoch: 2, Timeline: 2, Sync: []string{"orders-2"}, SyncNeed: 1},
			nil, false,
			engine.Role{Kind: engine.Primary, Epoch: 2, Timeline: 2, SyncPeers: []string{"orders-2"}, SyncCount: 1},
		},
		"mode off waits for nobody": {
			lease.Decision{Role: lease.RolePrimary, Epoch: 2, Timeline: 2, Sync: []string{"orders-2"}, SyncNeed: 1},
			func(a *engine.Aim) { a.Synchronous = synchronousNone }, false,
			engine.Role{Kind: engine.Primary, Epoch: 2, Timeline: 2},
		},
		"a replica follows by address": {lease.Decision{Role: lease.RoleReplica, Epoch: 2, Upstream: "orders-3"}, nil, false, engine.Role{Kind: engine.Replica, Epoch: 2, Upstream: "three"}},
		"it goes where its leader says that it is": {
			lease.Decision{Role: lease.RoleReplica, Epoch: 2, Upstream: "orders-3", UpstreamIP: "10.0.0.3"},
			nil, false,
			engine.Role{Kind: engine.Replica, Epoch: 2, Upstream: "three", UpstreamIP: "10.0.0.3"},
		},
		"a stop has no role of a server":  {lease.Decision{Role: lease.RoleStop, Epoch: 2}, nil, false, engine.Role{Kind: engine.Stopped, Epoch: 2}},
		"an unknown upstream is left out": {lease.Decision{Role: lease.RoleReplica, Epoch: 2, Upstream: "orders-9", UpstreamIP: "10.0.0.9"}, nil, false, engine.Role{Kind: engine.Replica, Epoch: 2}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			a := testAim()
			if row.change != nil {
				row.change(&a)
			}
			row.want.Member, row.want.Peers = "orders-1", []string{"orders-2", "orders-3"}
			if diff := cmp.Diff(row.want, roleOf(row.decision, a, row.before)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequiredWaitsForSomebody: a leader that has become the only voter, because the others' data must be copied anew, takes no write
// that nobody else holds.
// TestAfterARecoveryWritesGoOn, once: when others have joined and are gone again, they wait as ever.
func TestAfterARecoveryWritesGoOn(t *testing.T) {
	s := leads()
	s.Decision.Record.Voters, s.Aim.Synchronous, s.Memory.Shared = []string{"orders-1"}, "required", true
	s.Decision.Record.Recovered.Epoch = s.Decision.Epoch
	if shared(s) || !recovered(s) {
		t.Error("a member that was given the lead alone waits for others")
	}
	s.Memory.Recovered, s.Memory.Shared = s.Decision.Epoch, false
	if shared(s) {
		t.Error("it waits once that is noted")
	}
	s.Decision.Record.Voters = []string{"orders-1", "orders-2"}
	s.Memory.Shared = shared(s)
	s.Decision.Record.Voters = []string{"orders-1"}
	if !s.Memory.Shared || !shared(s) {
		t.Error("others held its commits, and are gone: it does not wait")
	}
	s.Decision.Epoch++
	if recovered(s) {
		t.Error("a later leadership counts as the recovery")
	}
}

func TestRequiredWaitsForSomebody(t *testing.T) {
	for sentence, row := range map[string]struct {
		voters  []string
		members int
		mode    string
		memory  bool
		want    int
		shared  bool
	}{
		"others hold its commits":                             {[]string{"orders-1", "orders-2", "orders-3"}, 3, "required", false, 1, true},
		"others did, and are copied anew":                     {[]string{"orders-1"}, 3, "required", true, 1, true},
		"nobody ever did: the first copies are being made":    {[]string{"orders-1"}, 3, "required", false, 0, false},
		"nobody need hold them any more":                      {[]string{"orders-1"}, 1, "required", true, 0, false},
		"others did, and writes shall wait for nobody":        {[]string{"orders-1"}, 3, "none", true, 0, true},
		"others did, and writes wait while somebody is there": {[]string{"orders-1"}, 3, "preferred", true, 0, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := leads()
			s.Decision.Record.Voters, s.Aim.Members, s.Aim.Synchronous, s.Memory.Shared = row.voters, s.Aim.Members[:row.members], row.mode, row.memory
			s.Decision.Sync, s.Decision.SyncNeed = row.voters[1:], len(row.voters)/2
			if got := shared(s); got != row.shared {
				t.Errorf("shared is %v", got)
			}
			s.Memory.Shared = shared(s)
			r := wanted(s)
			if r.SyncCount != row.want || row.want > len(r.SyncPeers) {
				t.Errorf("it waits for %d of %q, want %d", r.SyncCount, r.SyncPeers, row.want)
			}
		})
	}
}

func TestPreferredDegrades(t *testing.T) {
	rows := map[string]struct {
		mode      string
		connected int
		lease     bool // the Lease says that fewer hold all
		want      int
	}{
		"required waits even when nobody is there":     {"required", 0, false, 1},
		"preferred waits while somebody is there":      {synchronousPreferred, 2, true, 1},
		"preferred waits until the Lease says so":      {synchronousPreferred, 0, false, 1},
		"preferred goes on alone once the Lease does":  {synchronousPreferred, 0, true, 0},
		"preferred waits while it does not know":       {synchronousPreferred, -1, true, 1},
		"required waits, whatever the Lease said once": {"required", 0, true, 1},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s := with(leads(), func(s *seen) {
				s.Aim.Synchronous, s.Connected, s.Decision.Degraded = row.mode, row.connected, row.lease
			})
			if got := wanted(s).SyncCount; got != row.want {
				t.Fatalf("waits for %d replicas, want %d", got, row.want)
			}
		})
	}
}
