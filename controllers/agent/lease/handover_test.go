package lease

import (
	"testing"
	"time"
)

// TestTheHeirOfASwitchoverMayBeLate for a moment, as it is on a busy machine; one that is gone is not waited for.
func TestTheHeirOfASwitchoverMayBeLate(t *testing.T) {
	for sentence, row := range map[string]struct {
		frozen time.Duration
		leader string
	}{
		"a moment":                        {1600 * time.Millisecond, "m2"},
		"longer than it can be borne":     {5 * time.Second, "m0"},
		"no moment":                       {0, "m2"},
		"a moment that nobody would note": {200 * time.Millisecond, "m2"},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := settled(t, 3)
			lead, heir := w.nodes[0].m, w.byName["m2"]
			w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
			if !w.runUntil(5*time.Second, func() bool { return lead.lead.hand.phase == PhaseQuiescing }) {
				t.Fatalf("it does not hand over\n%s", w.tail(40))
			}
			if row.frozen > 0 {
				heir.frozen = true
				w.after(row.frozen, heir.thaw)
			}
			w.run(8 * time.Second)
			if got := w.lease.Record.Leader; got != row.leader || w.violation != "" {
				t.Errorf("%s leads, want %s; %s\n%s", got, row.leader, w.violation, w.tail(60))
			}
			if called := w.counts["Aborted"]; (called > 0) != (row.leader == "m0") {
				t.Errorf("it was called off %d times", called)
			}
		})
	}
}

// TestAHandOverThatIsAskedForAnewGoesOn : the manager gives each of its attempts a name of its own, and does not know how far one is.
func TestAHandOverThatIsAskedForAnewGoesOn(t *testing.T) {
	w := settled(t, 3)
	lead, heir := w.nodes[0].m, w.byName["m2"]
	w.want(func(a *Aim) { a.Switchover = Switchover{ID: "one", Target: "m2"} })
	if !w.runUntil(5*time.Second, func() bool { return lead.lead.hand.phase == PhaseQuiescing }) {
		t.Fatalf("it does not hand over\n%s", w.tail(40))
	}
	heir.frozen = true // until the other name has arrived
	w.after(1200*time.Millisecond, heir.thaw)
	w.want(func(a *Aim) { a.Switchover = Switchover{ID: "two", Target: "m2"} })
	w.run(8 * time.Second)
	if got := w.lease.Record; got.Leader != "m2" || got.Switchover != "two" || w.counts["Aborted"] > 0 || w.violation != "" {
		t.Errorf("%+v, called off %d times; %s\n%s", got, w.counts["Aborted"], w.violation, w.tail(60))
	}
}
