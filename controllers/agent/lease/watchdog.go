package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// watchdog hard-stops a primary whose deadline comes near although the machine
// has said nothing: its goroutine may be stuck. It is the second line; a frozen
// process needs the kernel's fence.
type watchdog struct {
	deadline atomic.Int64 // zero: none
	budget   atomic.Int64
	changed  chan struct{}
	nudge    func() // gives the machine its turn
}

func (w *watchdog) set(d Decision) {
	at := int64(d.Deadline)
	if d.Role != RolePrimary && d.Role != RoleStop {
		at = 0
	}
	if old := w.deadline.Swap(at); at != 0 && (old == 0 || at < old) {
		select {
		case w.changed <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// run sleeps until the deadline that it knows is near. A deadline that moves
// on with the heartbeats costs one look per grant, not one per heartbeat.
func (w *watchdog) run(ctx context.Context, clock Clock, server Server) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var done int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case <-timer.C:
		}
		at := w.deadline.Load()
		if at == 0 || at == done {
			timer.Reset(time.Hour)
			continue
		}
		// The machine stops a whole budget before; half of it is left for this.
		if wait := time.Duration(at - w.budget.Load()/2 - int64(clock.Now())); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if int64(clock.Now()) >= at && !w.secondLook(ctx, at) {
			timer.Reset(time.Millisecond)
			continue
		}
		done = at
		server.HardStop("the leader's deadline has come")
		timer.Reset(time.Hour)
	}
}

// secondLook lets a machine that was as frozen as the watchdog speak first: the
// only voter may lead on, every other leader is stopped by it at once.
func (w *watchdog) secondLook(ctx context.Context, at int64) (still bool) {
	w.nudge()
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	return w.deadline.Load() == at
}
