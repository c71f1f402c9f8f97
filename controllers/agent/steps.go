package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func (k *keeper) stopHard(next step) bool {
	if k.busy != nil {
		k.busy.cancel()
	}
	if k.server.Frozen && k.server.Life == up {
		k.froze()
	}
	if err := k.kill(next.Why); err != nil {
		k.trouble = trouble{"HardStopFailed", err.Error()}
		return false // the loop's pulse tries again
	}
	k.settle()
	k.gone()
	return true
}

// settle waits for the step that is under way; its processes are dead or its context is cancelled.
func (k *keeper) settle() {
	if k.busy == nil {
		return
	}
	k.busy.cancel()
	r := <-k.busy.done
	k.finish(r)
}

// condemned says that somebody had a reason to kill the server.
func (k *keeper) condemned() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.decision.Serial <= k.barrier || k.decision.Role == lease.RoleStop
}

// gone notes that nothing of the server is left.
func (k *keeper) gone() {
	old := k.server
	k.server = server{
		Life: down, FellAt: old.FellAt, Fell: old.Fell, RetryAt: old.RetryAt, Restarting: old.Restarting, Full: old.Full, Due: old.Due,
	}
	k.proc = nil
	k.upSince = time.Time{}
}

// fell notes that the server's process has ended.
func (k *keeper) fell() {
	exit := k.proc.Exit()
	switch {
	case k.condemned():
		k.log.Info("server killed", "exit", exit.String())
	case k.server.StopSent != 0:
		k.log.Info("server stopped", "exit", exit.String(), "took", k.clock.Now().Sub(k.server.StopSent).String())
	default:
		k.falling()
		text := "the server ended by itself: " + exit.String()
		if said := k.tail(); said != "" {
			text += ": " + said
		}
		k.trouble, k.stumbled = trouble{"ServerFailed", text}, ""
		if k.lacks(leastRoom) {
			// It is back at once, as soon as there is room: that is what the leadership waits for.
			k.server.Full, k.server.Restarting, k.server.Fell = true, true, false
			k.trouble = trouble{volumeFull, k.cfg.fullWords()}
		}
		k.log.Warn("server ended by itself", "exit", exit.String(), "falls", k.falls, "full", k.server.Full)
	}
	k.server.Life = fallen
}

// falling notes that a server was lost, and when the next may be tried.
func (k *keeper) falling() {
	k.server.FellAt, k.server.Fell = k.clock.Now(), true
	k.falls++
	k.server.RetryAt = k.clock.Now().Add(backoff(200*time.Millisecond, 30*time.Second, k.falls-1))
}

// froze notes that the server is given up although its process is there.
func (k *keeper) froze() {
	k.falling()
	k.trouble, k.stumbled = trouble{"ServerFrozen", "the server answered nobody and did nothing; it was killed"}, ""
	k.log.Warn("server answers nobody", "pid", k.proc.PID(), "falls", k.falls)
}

func (k *keeper) stopFast(next step) bool {
	if k.busy != nil {
		k.busy.cancel()
	}
	if k.proc == nil {
		return false
	}
	k.log.Info("stopping the server", "reason", next.Why)
	k.server.StopSent = k.clock.Now()
	k.server.Restarting = next.Back
	if err := k.proc.Signal(syscall.Signal(k.engine.Driver.Command(engine.Role{}).FastStop)); err != nil {
		k.log.Warn("fast stop failed", "error", err.Error())
	}
	return true
}

func (k *keeper) startServer(next step) {
	k.killing.Lock()
	defer k.killing.Unlock()
	k.mu.Lock()
	k.frozen = 0 // was another process
	token, outdated := k.aim.Restart, k.decision.Serial <= k.barrier || k.decision.Serial != k.word.Decision.Serial
	k.mu.Unlock()
	if outdated {
		return
	}
	c := k.engine.Driver.Command(next.Role)
	read, write, err := os.Pipe()
	if err != nil {
		k.fail(start, fmt.Errorf("start the server: %w", err), 30*time.Second)
		return
	}
	p, err := k.table.Start(process.Spec{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, Stdout: write, Stderr: write, Credential: k.engine.Credential})
	_ = write.Close() // the server has its own
	if err != nil {
		_ = read.Close() // nobody writes to it
		k.fail(start, err, 30*time.Second)
		return
	}
	k.out = newOutput(read, nil)
	go k.forward(k.out)
	k.proc, k.upSince = p, time.Now()
	k.server = server{Life: up, Kind: engine.Replica, Token: token, Barrier: k.server.Barrier, Fell: k.server.Fell}
	if next.Role.Kind == engine.Primary {
		k.server.Kind = engine.Primary
	}
	k.setLast(p.PID())
	k.log.Info("server started", "role", next.Role.Kind, "pid", p.PID())
	if token != "" { // an aim without one is no reason to forget the last
		k.remember(func(m *memory) { m.RestartDone = token })
	}
}

func (k *keeper) setLast(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastPID = pid
}

// remember changes what must not be forgotten.
func (k *keeper) remember(change func(*memory)) {
	k.mu.Lock()
	old := k.memory
	change(&k.memory)
	m := k.memory
	k.mu.Unlock()
	if m == old {
		return
	}
	if err := save(k.cfg.memoryPath(), m); err != nil {
		k.log.Error("memory not saved", "error", err.Error())
	}
}

// begin a long step.
func (k *keeper) begin(ctx context.Context, next step) {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{step: next, cancel: cancel, done: make(chan result, 1)}
	if next.Do == become && next.Role.Kind == engine.Primary {
		k.server.Kind = engine.Primary // from here on it may take writes
	}
	if next.Do == become {
		k.server.Became = nil
		k.server.Secrets = k.secretsNow()
	}
	if next.Do == quiesce {
		k.server.Became = nil
	}
	k.busy = w
	go func() { w.done <- k.engine.do(ctx, next) }()
}

func (k *keeper) secretsNow() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.observed.Secrets
}

// finish takes the result of the long step.
func (k *keeper) finish(r result) {
	w := k.busy
	w.cancel()
	k.busy = nil
	role := w.step.Role
	onServer := w.step.Do == become || w.step.Do == quiesce || w.step.Do == checkpoint
	if onServer && k.server.Life != up {
		return // whatever it did, that server is gone
	}
	var receives *engine.StillReceives
	k.server.Deaf = errors.As(r.err, &receives)
	var missing *engine.Incomplete
	if w.step.Do == become && errors.As(r.err, &missing) {
		k.became(role)
		k.trouble = k.troubleOf(r.err)
		k.server.LookAgain = k.clock.Now().Add(mendAfter)
		return
	}
	if r.err != nil {
		if onServer {
			k.fail(w.step.Do, fmt.Errorf("%s %s: %w", w.step.Do, role.Kind, r.err), time.Second)
			return
		}
		k.fail(w.step.Do, fmt.Errorf("%s as %s: %w", w.step.Do, role.Kind, r.err), 10*time.Second)
		return
	}
	k.server.RetryAt, k.failures = 0, 0
	if w.step.Do == k.stumbled {
		k.trouble, k.stumbled = trouble{}, ""
	}
	switch w.step.Do {
	case plan:
		k.server.Planned, k.server.Discards = &role, r.discards
	case prepare:
		k.server.Prepared = &role
		if role.Initialise {
			k.remember(func(m *memory) { m.Initialised = true })
		}
	case become:
		k.trouble = trouble{}
		k.became(role)
	case checkpoint:
		k.server.Checkpointed = true
	case quiesce:
		k.server.Quiesced = true
	case rest, hardStop, fastStop, start:
	}
}

// became notes that the role is in force.
func (k *keeper) became(role engine.Role) {
	k.server.Became, k.server.Quiesced, k.server.Fell = &role, false, false
	k.server.Uses = k.server.Secrets
	k.server.LookAgain = k.clock.Now().Add(lookAgain)
}

// troubleOf an error, in the driver's words where it has some.
func (k *keeper) troubleOf(err error) trouble {
	if reason, text, ok := k.engine.explain(err); ok {
		return trouble{reason, text}
	}
	return trouble{"ServerFailed", err.Error()}
}

// fail notes an error and when to try again. A step that was called off is no failure.
func (k *keeper) fail(do action, err error, longest time.Duration) {
	if errors.Is(err, context.Canceled) || k.server.Life == fallen || k.server.StopSent != 0 {
		return
	}
	starting := k.engine.starting(err)
	if starting {
		longest = startingPause
	}
	k.failures++
	k.server.RetryAt = k.clock.Now().Add(backoff(50*time.Millisecond, longest, k.failures-1))
	if k.failures < quietFailures || starting {
		return // one that starts refuses connections, for a moment or for as long as its recovery takes; its state says so
	}
	t := k.troubleOf(err)
	if t != k.trouble {
		k.log.Warn("step failed", "reason", t.Reason, "error", err.Error())
	}
	k.trouble, k.stumbled = t, do
}

// startingPause is between looks at a server that is on its way up: clients wait for it, and asking costs nearly nothing.
const startingPause = 100 * time.Millisecond

// quietFailures in a row are not worth a word yet.
const quietFailures = 4

func backoff(first, longest time.Duration, tries int) time.Duration {
	return min(first<<min(tries, 12), longest)
}
