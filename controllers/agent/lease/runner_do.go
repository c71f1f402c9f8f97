package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
)

// step tells the machine one thing and does what it answers.
func (r *Runner) step(ctx context.Context, in Input) {
	for _, o := range r.machine.Step(r.parts.Clock.Now(), in) {
		r.do(ctx, o)
	}
	old := r.status.Load().Wait
	s := r.machine.status()
	r.status.Store(s)
	if !s.Wait.same(old) { // no more often than there are attempts
		r.log.Info("leader", "waits", s.Wait.For, "reason", s.Wait.Words())
	}
}

func (r *Runner) do(ctx context.Context, o Output) {
	switch o := o.(type) {
	case Decide:
		// Never keep a deadline from the watchdog while the agent is being told.
		r.dog.set(o.Decision)
		r.parts.Server.Apply(o.Decision)
	case Send:
		r.send(ctx, o)
	case Reply:
		if a, ok := r.replies[o.Token]; ok {
			delete(r.replies, o.Token)
			a.answer <- o.Answer // buffered, and answered once
		}
	case Persist:
		if !offer(r.persist, o) {
			r.drops.count("persist", "queue full") // the disk hangs
			offer[Input](r.inbox, Persisted{ID: o.ID})
		}
	case ReadLease, SwapLease:
		if !offer(r.lease, o) {
			r.drops.count("lease", "queue full") // cannot be: the machine has one under way
		}
	case Route:
		if !offer(r.route, o) {
			r.drops.count("route", "queue full") // cannot be either
		}
	case Note:
		r.tell(ctx, o.Event)
		if r.parts.OnEvent != nil {
			r.parts.OnEvent(o.Event)
		}
	}
}

// tell logs what an operator on call would want to read, and counts the rest.
func (r *Runner) tell(ctx context.Context, e Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case EventIgnored:
		r.drops.count("message", e.Cause)
		level = slog.LevelDebug
	case EventRefused:
		level = slog.LevelWarn
	case EventBroken:
		level = slog.LevelError
	default:
	}
	r.log.Log(ctx, level, "leadership", "event", e.Kind, "epoch", e.Epoch, "cause", e.Cause)
}

func offer[T any](to chan T, v T) bool {
	select {
	case to <- v:
		return true
	default:
		return false
	}
}

// deliver brings a result back to the machine; results must not be lost, for
// the machine waits for each.
func (r *Runner) deliver(ctx context.Context, in Input) {
	select {
	case r.inbox <- in:
	case <-ctx.Done():
	}
}

// send lets a few requests to one peer be under way; a peer that answers
// slower than that gets no more of them.
func (r *Runner) send(ctx context.Context, o Send) {
	slots := r.slots[o.To]
	if slots == nil {
		if len(r.slots) > 4*maxVoters {
			clear(r.slots) // members come and go; those under way keep their old slots
		}
		slots = make(chan struct{}, sendsAtOne)
		r.slots[o.To] = slots
	}
	if !offer(slots, struct{}{}) {
		r.drops.count("send", "peer is slow")
		return
	}
	r.goes(func() {
		defer func() { <-slots }()
		ctx, cancel := context.WithTimeout(ctx, r.timeout())
		defer cancel()
		a, err := r.parts.Transport.Send(ctx, o.To, o.Request)
		if err != nil {
			r.drops.count("send", "failed")
			return
		}
		if err := a.Validate(); err != nil {
			r.drops.count("send", "bad answer")
			return
		}
		select {
		case r.inbox <- Answered{a}:
		case <-ctx.Done():
			r.drops.count("send", "answer came too late")
		}
	})
}

// timeout is shorter than a heartbeat. Support may take longer, until receiving
// has ended and the disk has written; then the next request brings the answer.
func (r *Runner) timeout() time.Duration { return r.parts.Config.Heartbeat * 9 / 10 }

func (r *Runner) persistLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-r.persist:
			err := r.parts.Promises.Save(p.Promise)
			if err != nil {
				r.log.Error("cannot keep the promise", "error", err)
			}
			r.deliver(ctx, Persisted{ID: p.ID, OK: err == nil})
		}
	}
}

func (r *Runner) leaseLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-r.lease:
			r.deliver(ctx, r.callStore(ctx, o))
		}
	}
}

func (r *Runner) callStore(ctx context.Context, o Output) Input {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if swap, ok := o.(SwapLease); ok {
		version, err := r.parts.Store.Swap(ctx, swap.ResourceVersion, swap.Record)
		return LeaseSwapped{Outcome: r.outcome("swap the lease", err), ResourceVersion: version, Fault: faultOf(err)}
	}
	seen, err := r.parts.Store.Read(ctx)
	return LeaseRead{Outcome: r.outcome("read the lease", err), Seen: seen, Fault: faultOf(err)}
}

// faultOf a request, in words that are the same at each attempt.
func faultOf(err error) Wait {
	var status *kube.StatusError
	switch {
	case err == nil:
		return Wait{}
	case errors.Is(err, ErrUnreadable):
		text := err.Error()
		return Wait{For: WaitLease, Why: text[:min(len(text), maxText)]}
	case errors.As(err, &status):
		return Wait{For: WaitAPIServer, Why: fmt.Sprintf("answers %d %s", status.Code, status.Reason)}
	}
	return Wait{For: WaitAPIServer}
}

func (r *Runner) outcome(what string, err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrConflict):
		return Conflict
	}
	r.log.Warn("api request failed", "what", what, "error", err)
	return Unknown
}

func (r *Runner) routeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-r.route:
			calling, cancel := context.WithTimeout(ctx, apiTimeout)
			err := r.parts.Store.Route(calling, o.Epoch)
			cancel()
			r.deliver(ctx, Routed{Epoch: o.Epoch, Outcome: r.outcome("route", err)})
		}
	}
}

// status copies what others may see.
func (m *Machine) status() *Status {
	s := &Status{At: m.now, Stage: string(m.stage), Decision: m.decided, Promise: m.voter.promise, Facts: m.facts, Wait: m.waiting}
	if l := m.voter.leader; l.leading {
		s.Leader = LeaderAt{Name: l.name, Epoch: l.epoch, End: l.end, Heard: l.at, Rebuilds: l.rebuilds}
	}
	if m.stage == leading || m.stage == claiming {
		s.Grants = make(map[string]time.Duration, len(m.lead.grants))
		for name, at := range m.lead.grants {
			s.Grants[name] = m.now.Sub(at)
		}
		s.Members = make(map[string]Answer, len(m.lead.peers))
		for name, p := range m.lead.peers {
			s.Members[name] = p.answer
		}
	}
	return s
}
