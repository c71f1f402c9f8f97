package lease

import (
	"context"
	"errors"
	"fmt"
)

// hold asks the machine's goroutine to stand still.
type hold struct {
	answer  chan held
	release chan struct{}
}

type held struct {
	kept Kept
	why  string
}

// ErrBusy says that something is under way whose outcome the next program could not know: ask again.
var ErrBusy = errors.New("something is under way")

// Hold makes the machine stand still and returns all that the next program of this process needs, if nothing is under way; else ErrBusy.
// Only the watchdog goes on, and inputs wait. Release lets the machine go on as if nothing had been: call it, or become the next program,
// within a fraction of the grant.
func (r *Runner) Hold(ctx context.Context) (k Kept, release func(), err error) {
	h := hold{answer: make(chan held, 1), release: make(chan struct{})}
	select {
	case r.hold <- h:
	case <-r.ended:
		return Kept{}, nil, errors.New("hold the leadership: it has ended")
	case <-ctx.Done():
		return Kept{}, nil, fmt.Errorf("hold the leadership: %w", ctx.Err())
	}
	got := <-h.answer // the goroutine that took the question answers at once
	if got.why != "" {
		close(h.release)
		return Kept{}, nil, fmt.Errorf("%w: %s", ErrBusy, got.why)
	}
	return got.kept, func() { close(h.release) }, nil
}

// still answers a hold and stands still until it is released.
func (r *Runner) still(ctx context.Context, h hold) {
	r.step(ctx, Tick{}) // a deadline that has passed is noticed before anything is kept
	why := r.machine.unquiet()
	if len(r.inbox) > 0 || len(r.asks) > 0 {
		why = "messages wait"
	}
	if why != "" {
		h.answer <- held{why: why}
		return
	}
	h.answer <- held{kept: r.machine.keep()}
	select {
	case <-h.release:
	case <-ctx.Done():
	}
}

// newMachine begins anew, or goes on where an earlier program of this process ended.
func newMachine(p Parts, promise Promise, found bool) (*Machine, error) {
	now := p.Clock.Now()
	if p.Kept == nil {
		return NewMachine(p.Config, now, promise, found)
	}
	if promise != p.Kept.Voter.Disk {
		return nil, fmt.Errorf("kept state: its promise is not the one on the volume (%+v, %+v)", p.Kept.Voter.Disk, promise)
	}
	return RestoreMachine(p.Config, now, *p.Kept)
}
