package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// keeper owns the server's life: one goroutine, run, takes every step, one at a time. Decisions and aims come in from others;
// the only thing that others may do themselves is to kill.
type keeper struct {
	cfg    Config
	engine Engine
	table  *process.Table
	clock  lease.Clock
	log    *slog.Logger
	// changed is told after each step and each change of the server's life.
	changed func()
	// forward reads the server's output to its end.
	forward func(*output)
	// tail is what the server said last, for the report of a failure.
	tail func() string

	wake   chan struct{}
	holds  chan holdKeeper
	pulse  atomic.Int64 // boot clock at the loop's last turn, for liveness
	budget stopBudget

	// killing excludes the start of a server, so that none slips in behind a hard stop.
	killing sync.Mutex

	mu       sync.Mutex
	decision lease.Decision
	aim      engine.Aim
	hasAim   bool
	memory   memory
	barrier  uint64
	word     word
	observed observed
	lastPID  int  // of the newest server
	marked   bool // the volume keeps that it is full
	frozen   int  // PID of a server that answers nobody; zero for none

	// Of the loop's goroutine alone.
	server   server
	proc     *process.Process
	out      *output // of the server that was started last
	busy     *work
	failures int // of steps, in a row
	falls    int // of servers, until one was stable
	trouble  trouble
	stumbled action // the step that the trouble is of; empty for one of the server itself
	lastRole lease.Decision
	upSince  time.Time
}

// word is what the keeper tells of itself: a copy that others may read.
type word struct {
	Server   server
	Decision lease.Decision
	Obeys    uint64
	Settled  bool
	Trouble  trouble
	Waits    string
	Busy     action
	// PID of the server; 0 without one. Newest is that of the newest one, which may have ended.
	PID, Newest int
	// Withheld says why a replica that stands still is not copied anew; empty if it is, or stands not still.
	Withheld string
	// Turn is this member's place among the replicas by name.
	Turn int
}

// trouble is what is wrong, for people.
type trouble struct{ Reason, Text string }

// work is a step that takes long, under way in a goroutine of its own.
type work struct {
	step   step
	cancel context.CancelFunc
	done   chan result
}

type result struct {
	err      error
	discards bool
}

const (
	// pulseEvery bounds how long the loop sleeps, so that its liveness can be seen.
	pulseEvery = 5 * time.Second
	// lookAgain is how often a server is told its role although nothing changed.
	lookAgain = 30 * time.Second
	// mendAfter is when a role that is in force, but not complete, is told again.
	mendAfter = 5 * time.Second
	// stable is how long a server must have run for its earlier failures to be forgotten.
	stable = 30 * time.Second
	// killTimeout bounds one hard stop; the loop tries again.
	killTimeout = 20 * time.Second
)

// run takes steps until the context ends; then it kills what is left.
func (k *keeper) run(ctx context.Context) {
	defer func() {
		k.settle()
		if err := k.kill("the agent ends"); err != nil {
			k.log.Error("hard stop failed", "error", err.Error())
		}
	}()
	for ctx.Err() == nil {
		s := k.look()
		if is := shared(s); is != s.Memory.Shared || recovered(s) {
			k.remember(func(m *memory) {
				m.Shared = is
				if recovered(s) {
					m.Recovered = s.Decision.Epoch
				}
			})
			continue
		}
		if !k.settleMark(s) {
			k.wait(ctx, step{Do: rest, Until: s.Now.Add(time.Second)})
			continue
		}
		next := decide(s)
		k.tell(s, next)
		if k.busy != nil && !sameWork(k.busy.step, next) {
			k.busy.cancel()
		}
		again := k.take(ctx, next)
		if again {
			continue
		}
		k.wait(ctx, next)
	}
}

func (k *keeper) mark() fullMark { return fullMark{dir: k.cfg.StateDir} }

// settleMark keeps what the volume says of itself, and says whether it does. Before a stop is carried out, of which a release follows, the
// mark is gone.
func (k *keeper) settleMark(s seen) bool {
	wants := k.marked
	switch {
	case s.Decision.Role == lease.RoleStop, s.Decision.Role == lease.RoleReplica, k.server.Life == up:
		wants = false
	case s.Decision.Role == lease.RolePrimary && k.server.Full:
		wants = true
	}
	if wants == k.marked {
		return true
	}
	change := k.mark().unset
	if wants {
		change = k.mark().set
	}
	if err := change(); err != nil {
		k.log.Error("mark not changed", "set", wants, "error", err.Error())
		return wants // without it the leadership is given up after a restart, no more
	}
	k.marked = wants
	return true
}

// look gathers what the next step depends on.
func (k *keeper) look() seen {
	now := k.clock.Now()
	k.pulse.Store(int64(now))
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.decision
	if d.Role != k.lastRole.Role || d.Upstream != k.lastRole.Upstream || d.Epoch != k.lastRole.Epoch || d.Phase != k.lastRole.Phase {
		k.server.RetryAt, k.failures = 0, 0
		k.lastRole = d
		if k.stumbled != "" {
			k.trouble, k.stumbled = trouble{}, "" // what failed was asked under another decision
		}
	}
	if d.Phase == lease.PhaseNone {
		k.server.Checkpointed = false
	}
	if k.proc != nil && !k.upSince.IsZero() && time.Since(k.upSince) > stable && k.server.Became != nil {
		k.falls = 0
	}
	k.server.Barrier = k.barrier
	k.server.Frozen = k.proc != nil && k.frozen == k.proc.PID()
	k.server.Full = k.server.Full && k.lacks(enoughRoom)
	if k.observed.Stand.PID == k.lastPID { // which may have ended meanwhile
		k.server.Due = k.observed.Stand.Do
	}
	cramped := false
	if k.server.Due == copyAnew {
		left, known := room(k.cfg.DataDir)
		cramped = known && left < enoughRoom
	}
	return seen{
		Cramped: cramped,
		Now:     now, Decision: d, Aim: k.aim, HasAim: k.hasAim, Memory: k.memory, Secrets: k.observed.Secrets, Server: k.server,
		Unfit: k.observed.Unfit, Streams: k.observed.Stand.Streams, Rebuilds: k.observed.Rebuilds, Connected: k.observed.Connected, StopBudget: k.budget.get(), StopFast: k.cfg.StopFast, StopLong: k.cfg.StopLong,
	}
}

// tell publishes what is, before the next step is taken.
func (k *keeper) tell(s seen, next step) {
	w := word{Server: k.server, Decision: s.Decision, Trouble: k.trouble, Waits: next.Why, Turn: turnOf(s)}
	if k.server.Due == copyAnew {
		w.Withheld = withheld(s)
	}
	if k.busy != nil {
		w.Busy = k.busy.step.Do
	}
	if k.proc != nil {
		w.PID = k.proc.PID()
	}
	w.Settled = k.busy == nil && obeyed(s)
	k.mu.Lock()
	w.Obeys, w.Newest = k.word.Obeys, k.lastPID
	if w.Settled {
		w.Obeys = s.Decision.Serial
	}
	differs := w.Obeys != k.word.Obeys || w.Settled != k.word.Settled || w.Server.Life != k.word.Server.Life ||
		w.Server.Kind != k.word.Server.Kind || w.Server.Full != k.word.Server.Full || w.Trouble != k.word.Trouble || w.Waits != k.word.Waits || w.Withheld != k.word.Withheld || w.Busy != k.word.Busy
	k.word = w
	k.mu.Unlock()
	if differs {
		k.changed()
	}
}

// take does a quick step at once and begins a long one. It returns true if the loop should look again without waiting.
func (k *keeper) take(ctx context.Context, next step) bool {
	switch next.Do {
	case rest:
		return false
	case hardStop:
		return k.stopHard(next)
	case fastStop:
		return k.stopFast(next)
	case start:
		if k.busy == nil {
			k.startServer(next)
			return true
		}
	case plan, prepare, become, checkpoint, quiesce:
		if k.busy == nil {
			k.begin(ctx, next)
			return true
		}
	}
	return false
}

// wait for a change, the end of a long step, the server's exit, or the time that the step names.
func (k *keeper) wait(ctx context.Context, next step) {
	limit := pulseEvery
	if next.Until != 0 {
		limit = min(limit, max(next.Until.Sub(k.clock.Now()), time.Millisecond))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var exited <-chan struct{}
	if k.proc != nil && k.server.Life == up {
		exited = k.proc.Done()
	}
	var done chan result
	if k.busy != nil {
		done = k.busy.done
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case h := <-k.holds:
		k.still(ctx, h)
	case <-timer.C:
	case <-exited:
		k.fell()
	case r := <-done:
		k.finish(r)
	}
}
