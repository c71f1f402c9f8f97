package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// maxRelays bounds the watchers that are told of the other members, too: the acting manager is one, and its successor may come before
	// it is gone. Further ones hear of this member alone.
	maxRelays = 3
	// A member that cannot be watched is tried again after a pause that doubles between these.
	minRelayPause = 250 * time.Millisecond
	maxRelayPause = 5 * time.Second
)

// relay passes the other members' reports on to a watcher, so that a manager of many Databases holds one connection to each of them and
// not one to each member. It adds nothing and keeps nothing: a member that is not heard is not told of.
type relay struct {
	others func() []engine.Peer
	watch  func(ctx context.Context, from engine.Peer, told func(engine.Report)) error
	turns  chan struct{}
}

func newRelay(others func() []engine.Peer, watch func(context.Context, engine.Peer, func(engine.Report)) error) *relay {
	return &relay{others: others, watch: watch, turns: make(chan struct{}, maxRelays)}
}

// relayed are the streams that one watcher is passed on.
type relayed struct {
	relay *relay
	out   chan engine.Report
	watch map[engine.Peer]context.CancelFunc
}

// begin one for a watcher; nil if it gets none.
func (r *relay) begin() *relayed {
	if r == nil {
		return nil
	}
	select {
	case r.turns <- struct{}{}:
		return &relayed{relay: r, out: make(chan engine.Report), watch: map[engine.Peer]context.CancelFunc{}}
	default:
		return nil
	}
}

// follow makes the members of the newest aim those that are watched.
func (d *relayed) follow(ctx context.Context) {
	if d == nil {
		return
	}
	wanted := map[engine.Peer]bool{}
	for _, p := range d.relay.others() {
		wanted[p] = true
		if d.watch[p] == nil {
			ctx, cancel := context.WithCancel(ctx)
			d.watch[p] = cancel
			go d.run(ctx, p)
		}
	}
	for p, cancel := range d.watch {
		if !wanted[p] {
			cancel()
			delete(d.watch, p)
		}
	}
}

// reports of the members; never any if there is no relay.
func (d *relayed) reports() <-chan engine.Report {
	if d == nil {
		return nil
	}
	return d.out
}

// end gives the turn to the next watcher; the streams end with the context that they began with.
func (d *relayed) end() {
	if d == nil {
		return
	}
	for _, cancel := range d.watch {
		cancel()
	}
	<-d.relay.turns
}

func (d *relayed) run(ctx context.Context, from engine.Peer) {
	pause := minRelayPause
	for ctx.Err() == nil {
		_ = d.relay.watch(ctx, from, func(r engine.Report) { // that a member is not heard shows where it is not told of
			if r.Instance != from.Name {
				return // nobody speaks in another's name
			}
			pause = minRelayPause
			select {
			case d.out <- r:
			case <-ctx.Done():
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, maxRelayPause)
	}
}
