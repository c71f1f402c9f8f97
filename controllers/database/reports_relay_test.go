package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// troop plays the agents of one Database: each speaks every five seconds, and one that is asked for the members passes on those that it
// reaches.
type troop struct {
	mu      sync.Mutex
	leading string
	lies    bool            // what the leader passes on is not what they say
	down    map[string]bool // ends every stream and takes none
	hidden  map[string]bool // not reached by the others
	old     bool            // agents that pass nothing on
	over    bool            // streams end in good order
	streams map[string]int
	passing map[string]int
	state   string
}

func (o *troop) SetAim(context.Context, Target, engine.Aim) error       { return nil }
func (o *troop) Exchange(context.Context, Target, client.Program) error { return nil }
func (o *troop) Forget(types.NamespacedName)                            {}

func (o *troop) WatchReports(ctx context.Context, from Target, heard func(engine.Report)) error {
	return o.watch(ctx, from, heard, o.streams, false)
}

func (o *troop) WatchMembers(ctx context.Context, from Target, heard func(engine.Report)) error {
	return o.watch(ctx, from, heard, o.passing, true)
}

func (o *troop) watch(ctx context.Context, from Target, heard func(engine.Report), count map[string]int, members bool) error {
	if !o.up(from.Instance) {
		return errors.New("connection refused")
	}
	o.with(func() { count[from.Instance]++ })
	defer o.with(func() { count[from.Instance]-- })
	speak := time.NewTicker(5 * time.Second)
	defer speak.Stop()
	alive := time.NewTicker(100 * time.Millisecond)
	defer alive.Stop()
	for said := false; ; said = true {
		if !said {
			o.speak(from.Instance, members, heard)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-speak.C:
			o.speak(from.Instance, members, heard)
		case <-alive.C:
			if o.ends() {
				return fmt.Errorf("watch %s: %w", from.Instance, io.EOF)
			}
			if !o.up(from.Instance) {
				return errors.New("connection reset")
			}
		}
	}
}

func (o *troop) speak(name string, members bool, heard func(engine.Report)) {
	var words []engine.Report
	o.with(func() {
		words = append(words, engine.Report{Instance: name, UID: "u", Leading: name == o.leading, State: o.state})
		for _, other := range []string{"orders-1", "orders-2", "orders-3"} {
			if members && !o.old && other != name && !o.down[other] && !o.hidden[other] {
				word := engine.Report{Instance: other, UID: "u", Leading: other == o.leading, State: o.state}
				if o.lies {
					word.State = "a lie"
				}
				words = append(words, word)
			}
		}
	})
	for _, w := range words {
		heard(w)
	}
}

func (o *troop) up(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.down[name]
}

// ends says that the streams that are open end now.
func (o *troop) ends() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

func (o *troop) with(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// open connections as "orders-1 for all" and "orders-2".
func (o *troop) open() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for name, n := range o.passing {
		out = append(out, slices.Repeat([]string{name + " for all"}, n)...)
	}
	for name, n := range o.streams {
		out = append(out, slices.Repeat([]string{name}, n)...)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// drill runs a test in a bubble of fake time with a Database of three whose leader by the Lease is named.
func drill(t *testing.T, leader string, test func(t *testing.T, o *troop, look func() map[string]Heard, r *Reports)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &troop{leading: leader, down: map[string]bool{}, hidden: map[string]bool{}, streams: map[string]int{}, passing: map[string]int{}, state: "running"}
		r, _, end := reporting(t, o)
		defer end()
		var all []Target
		for n := 1; n <= 3; n++ {
			all = append(all, Target{Namespace: "shop", Database: "orders", Instance: fmt.Sprintf("orders-%d", n), UID: "u", PodUID: "p", PodIP: fmt.Sprintf("10.0.0.%d", n)})
		}
		test(t, o, func() map[string]Heard { synctest.Wait(); return r.Follow(orders(), all, o.leading) }, r)
	})
}

func relayedOf(heard map[string]Heard) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(heard)) {
		how := name
		if heard[name].Relayed {
			how += " by the leader"
		}
		out = append(out, how)
	}
	return strings.Join(out, ", ")
}

func TestWhoIsHeardThroughTheLeader(t *testing.T) {
	const (
		plain   = "orders-1, orders-2, orders-3"
		relayed = "orders-1 for all"
		byOne   = "orders-1, orders-2 by the leader, orders-3 by the leader"
	)
	for name, row := range map[string]struct {
		leader string
		given  func(*troop)
		then   func(o *troop, look func() map[string]Heard, r *Reports) // after a minute
		after  time.Duration
		open   string
		heard  string
	}{
		"at rest one stream is enough":             {leader: "orders-1", after: time.Second, open: relayed, heard: byOne},
		"without a leader each is heard by itself": {leader: "", after: time.Second, open: plain, heard: plain},
		"a leader by the Lease that does not lead speaks for nobody": {
			leader: "orders-1", then: func(o *troop, _ func() map[string]Heard, _ *Reports) { o.with(func() { o.leading = "nobody" }) },
			after: 6 * time.Second, open: "orders-1 for all, orders-2, orders-3", heard: plain,
		},
		"a leader's agent that passes nothing on": {
			leader: "orders-1", given: func(o *troop) { o.old = true }, after: time.Second, open: "orders-1 for all, orders-2, orders-3", heard: plain,
		},
		"a member that the leader does not reach is heard by itself": {
			leader: "orders-1", then: func(o *troop, _ func() map[string]Heard, _ *Reports) { o.with(func() { o.hidden["orders-3"] = true }) },
			after: 9 * time.Second, open: "orders-1 for all, orders-3", heard: "orders-1, orders-2 by the leader, orders-3",
		},
		"the others are heard by themselves as soon as the leader's stream ends": {
			leader: "orders-1", then: func(o *troop, _ func() map[string]Heard, _ *Reports) { o.with(func() { o.down["orders-1"] = true }) },
			after: time.Second, open: "orders-2, orders-3", heard: plain, // its last word counts for twelve seconds
		},
		"a stream that has lasted for its time is opened anew, and nobody is doubted": {
			leader: "orders-1", then: func(o *troop, _ func() map[string]Heard, _ *Reports) {
				o.with(func() { o.over = true })
				time.Sleep(100 * time.Millisecond)
				o.with(func() { o.over = false })
			},
			after: 3 * time.Second, open: relayed, heard: byOne,
		},
		"a leader that ends its streams because it leaves": {
			leader: "orders-1", then: func(o *troop, _ func() map[string]Heard, _ *Reports) {
				o.with(func() { o.over, o.down["orders-1"] = true, true })
				time.Sleep(100 * time.Millisecond)
				o.with(func() { o.over = false })
			},
			after: 3 * time.Second, open: "orders-2, orders-3", heard: plain,
		},
		"a new leader is asked at once, and relays once the dust has settled": {
			leader: "orders-1", then: func(o *troop, look func() map[string]Heard, _ *Reports) {
				o.with(func() { o.down["orders-1"], o.leading = true, "orders-2" })
				time.Sleep(time.Second)
				look()
				time.Sleep(30 * time.Second)
				o.with(func() { o.down["orders-1"] = false })
				time.Sleep(30 * time.Second)
			},
			after: time.Second, open: "orders-2 for all", heard: "orders-1 by the leader, orders-2, orders-3 by the leader",
		},
		"what is decided is decided on each one's own word": {
			leader: "orders-1", then: func(_ *troop, _ func() map[string]Heard, r *Reports) { r.Attend(orders()) },
			after: 100 * time.Millisecond, open: "orders-1 for all, orders-2, orders-3", heard: plain,
		},
		"also by a pass that comes late, since the queue is long": {
			leader: "orders-1", then: func(_ *troop, _ func() map[string]Heard, r *Reports) { r.Attend(orders()) },
			after: 2 * time.Minute, open: "orders-1 for all, orders-2, orders-3", heard: plain,
		},
		"and for a while only": {
			leader: "orders-1", then: func(_ *troop, look func() map[string]Heard, r *Reports) {
				r.Attend(orders())
				time.Sleep(time.Second)
				look()
			},
			after: attention + 12*time.Second, open: relayed, heard: byOne,
		},
	} {
		t.Run(name, func(t *testing.T) {
			drill(t, row.leader, func(t *testing.T, o *troop, look func() map[string]Heard, r *Reports) {
				if row.given != nil {
					row.given(o)
				}
				for range 60 {
					look()
					time.Sleep(time.Second)
				}
				if row.then != nil {
					row.then(o, look, r)
				}
				time.Sleep(row.after)
				heard := look()
				if diff := cmp.Diff([]string{row.open, row.heard}, []string{o.open(), relayedOf(heard)}); diff != "" {
					t.Errorf("connections and words (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAMemberThatOnlyTheLeaderHearsIsSilentToWhoDecides(t *testing.T) {
	drill(t, "orders-1", func(t *testing.T, o *troop, look func() map[string]Heard, r *Reports) {
		look()
		time.Sleep(time.Minute)
		o.with(func() { o.lies = true })
		time.Sleep(6 * time.Second)
		if got := look()["orders-2"].Report.State; got != "a lie" {
			t.Fatalf("at rest the leader's word is told, got %q", got)
		}
		for range 10 {
			r.Attend(orders())
			time.Sleep(50 * time.Millisecond)
		}
		if got := look()["orders-2"]; got.Relayed || got.Report.State != "running" {
			t.Errorf("decided on %+v, want orders-2's own word", got)
		}
	})
	drill(t, "orders-1", func(t *testing.T, o *troop, look func() map[string]Heard, r *Reports) {
		look()
		time.Sleep(time.Minute)
		o.with(func() { o.down["orders-2"] = true })
		r.Attend(orders())
		time.Sleep(warmUp + time.Second)
		r.Attend(orders())
		if _, heard := look()["orders-2"]; heard {
			t.Error("orders-2, which does not answer, still counts by its leader's word")
		}
	})
}
