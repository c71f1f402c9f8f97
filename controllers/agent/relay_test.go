package agent

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestAManagerIsToldOfTheOtherMembers by the agent that it watches, if it asks for that.
func TestAManagerIsToldOfTheOtherMembers(t *testing.T) {
	d := newDesk(t)
	ended := make(chan string, 16)
	d.service.relay = newRelay(func() []engine.Peer { return []engine.Peer{{Name: "orders-2", Address: "two"}} },
		func(ctx context.Context, from engine.Peer, told func(engine.Report)) error {
			told(engine.Report{Instance: "orders-3", UID: testUID}) // in another's name
			told(engine.Report{Instance: from.Name, UID: testUID})
			<-ctx.Done()
			ended <- from.Name
			return ctx.Err()
		})
	d.service.reporter.(*reporter).want(aimFor(nil), "r", 0, 0)
	manager := d.client(t, d.ca.Leaf(t, testUID, client.ManagerName))
	member := d.client(t, d.ca.Leaf(t, testUID, client.MemberPrefix+"orders-2"))

	// hear what comes until nothing more does for a while.
	hear := func(watch func(context.Context, engine.Peer, func(engine.Report)) error) map[string]int {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		words := make(chan string, 16)
		go func() { _ = watch(ctx, here, func(r engine.Report) { words <- r.Instance }) }()
		got := map[string]int{}
		for {
			select {
			case name := <-words:
				got[name] = 1
			case <-time.After(time.Second):
				return got
			}
		}
	}
	both, alone := map[string]int{"orders-1": 1, "orders-2": 1}, map[string]int{"orders-1": 1}
	if diff := cmp.Diff(both, hear(manager.WatchMembers)); diff != "" {
		t.Errorf("a manager that asks for the members hears (-want +got):\n%s", diff)
	}
	if got := <-ended; got != "orders-2" {
		t.Errorf("the stream to %q ended with the watcher's", got)
	}
	if diff := cmp.Diff(alone, hear(manager.WatchReports)); diff != "" {
		t.Errorf("one that does not hears (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(alone, hear(member.WatchMembers)); diff != "" {
		t.Errorf("a member hears (-want +got):\n%s", diff)
	}
	for range maxRelays {
		held := d.service.relay.begin()
		t.Cleanup(held.end)
	}
	if diff := cmp.Diff(alone, hear(manager.WatchMembers)); diff != "" {
		t.Errorf("one more than are passed the others' words hears (-want +got):\n%s", diff)
	}
}

// TestARelayFollowsTheAim: members come and go.
func TestARelayFollowsTheAim(t *testing.T) {
	watched, ended := make(chan engine.Peer, 4), make(chan engine.Peer, 4)
	others := []engine.Peer{{Name: "orders-2", Address: "two"}}
	d := newRelay(func() []engine.Peer { return others }, func(ctx context.Context, from engine.Peer, _ func(engine.Report)) error {
		watched <- from
		<-ctx.Done()
		ended <- from
		return ctx.Err()
	}).begin()
	d.follow(t.Context())
	d.follow(t.Context())
	first := <-watched
	others = []engine.Peer{{Name: "orders-3", Address: "three"}}
	d.follow(t.Context())
	second := <-watched
	if diff := cmp.Diff([]engine.Peer{{Name: "orders-2", Address: "two"}, {Name: "orders-3", Address: "three"}}, []engine.Peer{first, second}); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
	if gone := <-ended; gone != first {
		t.Errorf("%v is watched no more", gone)
	}
	d.end()
	if gone := <-ended; gone != second || len(watched) > 0 {
		t.Errorf("%v ended with the watcher, and %d were begun again", gone, len(watched))
	}
}
