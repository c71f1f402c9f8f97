package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Parts are what a Runner is made of.
type Parts struct {
	Config    Config
	Clock     Clock
	Transport Transport
	Store     Store
	Promises  Promises
	Server    Server
	Kept      *Kept        // what an earlier program of this process left; nil for a start
	Log       *slog.Logger // nil: silent
	OnEvent   func(Event)  // nil: none; called from the machine's goroutine, must not block
}

// Bounds of the Runner's queues. What does not fit is dropped and counted; the
// protocol takes every loss.
const (
	inboxSize  = 256
	sendsAtOne = 8 // requests under way to one peer
	apiTimeout = 2 * time.Second
)

// Runner drives one Machine with a real clock, network, API and disk. One
// goroutine owns the machine; everything else comes to it through the inbox.
type Runner struct {
	parts   Parts
	log     *slog.Logger
	machine *Machine
	inbox   chan Input
	asks    chan ask
	facts   slot[Facts]
	aim     slot[Aim]
	leave   chan struct{}
	wake    chan struct{}
	hold    chan hold
	status  atomic.Pointer[Status]
	dog     watchdog
	drops   drops
	wg      sync.WaitGroup
	ended   chan struct{}

	// Owned by the machine's goroutine.
	token   uint64
	replies map[uint64]ask
	persist chan Persist
	lease   chan Output
	route   chan Route
	slots   map[string]chan struct{}
}

// ask is a peer's request on its way to the machine and its answer back.
type ask struct {
	request Request
	answer  chan Answer
	until   Time
}

// slot holds the newest value only: facts and aims are level-triggered.
type slot[T any] struct {
	mu    sync.Mutex
	value T
	full  bool
}

func (s *slot[T]) put(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.full = v, true
}

func (s *slot[T]) take() (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, full := s.value, s.full
	s.full = false
	return v, full
}

// NewRunner loads the promise and returns a Runner that does nothing until Run.
func NewRunner(p Parts) (*Runner, error) {
	if p.Clock == nil || p.Transport == nil || p.Store == nil || p.Promises == nil || p.Server == nil {
		return nil, errors.New("lease runner: clock, transport, store, promises and server are all needed")
	}
	promise, found, err := p.Promises.Load()
	if err != nil {
		return nil, fmt.Errorf("lease runner of %s: %w", p.Config.Self, err)
	}
	m, err := newMachine(p, promise, found)
	if err != nil {
		return nil, err
	}
	r := &Runner{
		parts: p, log: p.Log, machine: m,
		inbox: make(chan Input, inboxSize), asks: make(chan ask, inboxSize),
		ended: make(chan struct{}), leave: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		replies: map[uint64]ask{}, slots: map[string]chan struct{}{},
		persist: make(chan Persist, inboxSize), lease: make(chan Output, 1), route: make(chan Route, 1),
		drops: drops{counts: map[string]uint64{}}, hold: make(chan hold),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.status.Store(&Status{})
	r.dog.changed = make(chan struct{}, 1)
	r.dog.nudge = func() { offer[Input](r.inbox, Tick{}) }
	return r, nil
}

// Run drives the machine until ctx ends, then hard-stops the server. To hand
// over in good order call Leave first, and end ctx a little after the server
// has stopped, so that the release gets out. Run may be called once.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.wg.Wait()
	defer cancel()
	defer close(r.ended)
	r.goes(func() { r.persistLoop(ctx) })
	r.goes(func() { r.leaseLoop(ctx) })
	r.goes(func() { r.routeLoop(ctx) })
	r.goes(func() { r.dog.run(ctx, r.parts.Clock, r.parts.Server) })
	if r.parts.Kept != nil {
		r.do(ctx, Decide{r.machine.decided}) // in force since before this program
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case h := <-r.hold:
			r.still(ctx, h)
		case <-ctx.Done():
			r.parts.Server.HardStop("the agent ends")
			return nil
		case <-r.leave:
			r.step(ctx, Leaving{})
		case in := <-r.inbox:
			r.step(ctx, in)
		case a := <-r.asks:
			r.receive(ctx, a)
		case <-r.wake:
		case <-timer.C:
			r.step(ctx, Tick{})
		}
		r.takeNewest(ctx)
		timer.Reset(max(r.machine.Next().Sub(r.parts.Clock.Now()), time.Millisecond))
	}
}

func (r *Runner) goes(f func()) { r.wg.Go(f) }

// Report hands in the newest facts about the server. It never blocks.
func (r *Runner) Report(f Facts) {
	r.facts.put(f)
	r.dog.budget.Store(int64(f.StopBudget))
	r.poke()
}

// Want hands in the newest aim of the manager. It never blocks.
func (r *Runner) Want(a Aim) {
	r.aim.put(a)
	r.poke()
}

// Leave starts the hand-over before termination. It never blocks.
func (r *Runner) Leave() {
	select {
	case r.leave <- struct{}{}:
	default: // already leaving
	}
}

func (r *Runner) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // awake already
	}
}

func (r *Runner) takeNewest(ctx context.Context) {
	if a, ok := r.aim.take(); ok {
		r.step(ctx, a)
	}
	if f, ok := r.facts.take(); ok {
		r.step(ctx, f)
	}
}

// Ask hands in a peer's request and waits for this member's answer, at most
// until ctx ends.
func (r *Runner) Ask(ctx context.Context, req Request) (Answer, error) {
	a := ask{request: req, answer: make(chan Answer, 1), until: r.parts.Clock.Now().Add(r.parts.Config.Hold)}
	ctx, cancel := context.WithTimeout(ctx, r.parts.Config.Hold)
	defer cancel()
	select {
	case r.asks <- a:
	default:
		r.drops.count("ask", "inbox full")
		return Answer{}, fmt.Errorf("%s request of %s: this member is overloaded", req.Kind, req.From)
	}
	select {
	case got := <-a.answer:
		return got, nil
	case <-r.ended:
		return Answer{}, fmt.Errorf("%s request of %s: this member ends", req.Kind, req.From)
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("%s request of %s: %w", req.Kind, req.From, ctx.Err())
	}
}

func (r *Runner) receive(ctx context.Context, a ask) {
	now := r.parts.Clock.Now()
	for token, old := range r.replies {
		if now > old.until {
			delete(r.replies, token)
		}
	}
	r.token++
	r.replies[r.token] = a
	r.step(ctx, Received{Token: r.token, Request: a.request})
}

// Status returns this member's view of itself. It is never older than the last
// thing that happened.
func (r *Runner) Status() Status { return *r.status.Load() }

// Drops returns how often something was dropped, by stage and reason.
func (r *Runner) Drops() map[string]uint64 { return r.drops.copy() }

type drops struct {
	mu     sync.Mutex
	counts map[string]uint64
}

func (d *drops) count(stage, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[stage+": "+reason]++
}

func (d *drops) copy() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}
