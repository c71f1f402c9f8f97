package agent

import (
	"reflect"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// life of the server's processes.
type life string

const (
	// down: hard stop done, nothing of it is left.
	down life = "down"
	// up: the server process runs.
	up life = "up"
	// fallen: it has ended and others that it started may go on.
	fallen life = "fallen"
)

// server is what the keeper knows about the server.
type server struct {
	Life life
	// Kind that an up server was started or promoted as; a promotion that has begun counts.
	Kind engine.Kind
	// Prepared is the role that a down server's data is fit for; nil if it must be looked at again.
	Prepared *engine.Role
	// Planned is the role that was looked into, and Discards whether preparing for it throws away acknowledged data.
	Planned  *engine.Role
	Discards bool
	// Became is the role that an up server has converged to, with the certificates of that time.
	Became  *engine.Role
	Secrets string
	// Uses is the hash of the certificates that it was last seen to have taken.
	Uses string
	// LookAgain is when an up server is told its role again, although nothing changed.
	LookAgain lease.Time
	// Checkpointed and Quiesced for the hand-over that is under way.
	Checkpointed, Quiesced bool
	// Token is the restart token under which an up server was started.
	Token string
	// StopSent is when a fast stop was asked for; zero for not.
	StopSent lease.Time
	// Restarting is true from a stop that only makes room for a new start until that start.
	Restarting bool
	// FellAt is when an up server ended by itself; zero once it is started again.
	FellAt lease.Time
	// RetryAt is when the step that failed last may be tried again.
	RetryAt lease.Time
	// Barrier is the serial of the decision that a hard stop from outside put an end to: no server starts under it.
	Barrier uint64
}

// seen is all that the next step depends on.
type seen struct {
	Now      lease.Time
	Decision lease.Decision
	Aim      engine.Aim
	HasAim   bool
	Memory   memory
	Secrets  string
	Server   server
	// Unfit is true if an up replica says that it cannot follow its upstream with the data that it has.
	Unfit bool
	// SyncPeers that are connected bound the synchronous count in mode preferred; negative for unknown.
	Connected int
	// StopBudget is how long a hard stop takes here; StopFast how long a fast stop may, and StopLong where nobody waits for it.
	StopBudget, StopFast, StopLong time.Duration
}

// action is what a step does.
type action string

const (
	rest       action = "rest"
	hardStop   action = "hard stop"
	fastStop   action = "fast stop"
	plan       action = "look at the data"
	prepare    action = "prepare"
	start      action = "start"
	become     action = "become"
	checkpoint action = "checkpoint"
	quiesce    action = "quiesce"
)

// step is one thing to do next. A rest says until when at the latest; zero means until something changes.
type step struct {
	Do    action
	Role  engine.Role
	Until lease.Time
	// Why is for people, of a rest that waits for something and of a stop.
	Why string
	// Back says that the stop only makes room for a new start in the same role.
	Back bool
}

// fallPause is how long a leader's server that died stays down although nobody says so: the others may take over instead.
const fallPause = 150 * time.Millisecond

// decide is the next step from what is to what should be. It is pure: the keeper's loop asks it after each change.
func decide(s seen) step {
	if s.Server.Life == fallen {
		return step{Do: hardStop, Why: "clear what the ended server left"}
	}
	switch s.Decision.Role {
	case lease.RoleStop:
		return stopping(s)
	case lease.RoleReplica:
		return following(s)
	case lease.RolePrimary:
		return leading(s)
	case lease.RoleNone:
	}
	return step{Do: rest, Why: s.Decision.Reason}
}

// wanted is the role that the server should have now.
func wanted(s seen) engine.Role {
	r := roleOf(s.Decision, s.Aim, s.Memory.Initialised)
	if r.Kind == engine.Primary && s.Aim.Synchronous == synchronousPreferred && s.Connected >= 0 {
		r.SyncCount = min(r.SyncCount, s.Connected)
	}
	return r
}

func stopping(s seen) step {
	if s.Server.Life == down {
		return step{Do: rest, Why: s.Decision.Reason}
	}
	if s.Decision.Deadline == 0 {
		return gently(s, s.Now.Add(s.StopLong), s.Decision.Reason)
	}
	// Until the deadline nobody else can lead. What is left of the time goes to a fast stop: it saves the next start a recovery.
	return gently(s, s.Decision.Deadline.Add(-s.StopBudget), s.Decision.Reason)
}

// gently stops fast, and hard when the time is over. A stop that was sent already keeps its time unless the new one is earlier.
func gently(s seen, by lease.Time, why string) step {
	if s.Server.StopSent == 0 {
		if s.Now >= by {
			return step{Do: hardStop, Why: why}
		}
		return step{Do: fastStop, Until: by, Why: why}
	}
	unhurried := s.Decision.Role == lease.RoleStop && s.Decision.Deadline == 0
	patience := s.StopFast
	if unhurried {
		patience = s.StopLong
	}
	if latest := s.Server.StopSent.Add(patience); s.Decision.Role != lease.RoleStop || unhurried || latest < by {
		by = latest
	}
	if s.Now >= by {
		return step{Do: hardStop, Why: why + ": it did not stop in time"}
	}
	return step{Do: rest, Until: by, Why: "stops"}
}

func restarting(s seen) step {
	next := gently(s, s.Now.Add(s.StopFast), "restarts")
	next.Back = true
	return next
}

func following(s seen) step {
	r := wanted(s)
	switch {
	case !s.HasAim:
		return step{Do: rest, Why: "waits for the manager's first aim"}
	case s.Server.Life == up && s.Server.Kind == engine.Primary:
		return step{Do: hardStop, Why: "does not lead any more"}
	case s.Server.Life == up && (s.Server.StopSent != 0 || restartDue(s)):
		return restarting(s)
	case s.Server.Life == up && s.Unfit && r.Upstream != "":
		return gently(s, s.Now.Add(s.StopFast), "cannot follow with the data that it has")
	case s.Server.Life == up:
		return converging(s, r)
	case lacksUpstream(s.Decision, s.Aim):
		return step{Do: rest, Why: "waits for an aim that holds the address of " + s.Decision.Upstream}
	case s.Decision.Serial <= s.Server.Barrier:
		return step{Do: rest, Why: "was stopped from outside; waits for the next decision"}
	case fits(s.Server.Prepared, r):
		return step{Do: start, Role: r}
	case s.Now < s.Server.RetryAt:
		return step{Do: rest, Until: s.Server.RetryAt, Why: "waits before it tries again"}
	case !fits(s.Server.Planned, r):
		return step{Do: plan, Role: r}
	case s.Server.Discards && !s.Decision.MayWipe:
		return step{Do: rest, Why: "waits until this member is no voter: its data must be rewound or copied anew"}
	}
	return step{Do: prepare, Role: r}
}

func leading(s seen) step {
	r := wanted(s)
	switch {
	case !s.HasAim:
		return step{Do: rest, Why: "waits for the manager's first aim"}
	case s.Server.Life == up && (s.Server.StopSent != 0 || restartDue(s) && s.Decision.Phase == lease.PhaseNone):
		return restarting(s)
	case expired(s):
		return step{Do: rest, Why: "the leadership has run out"} // an agent that thaws looks at the clock first
	case s.Server.Life == up:
		return leadingUp(s, r)
	case s.Decision.Phase == lease.PhaseQuiescing:
		return step{Do: rest, Why: "its server died while it handed over"} // a new one would let sessions write
	case s.Decision.Serial <= s.Server.Barrier:
		return step{Do: rest, Why: "was stopped from outside; waits for the next decision"}
	case s.Server.FellAt != 0 && s.Now < s.Server.FellAt.Add(fallPause):
		return step{Do: rest, Until: s.Server.FellAt.Add(fallPause), Why: "its server died"}
	case fits(s.Server.Prepared, r):
		return step{Do: start, Role: r}
	case s.Now < s.Server.RetryAt:
		return step{Do: rest, Until: s.Server.RetryAt, Why: "waits before it tries again"}
	}
	return step{Do: prepare, Role: r}
}

func expired(s seen) bool { return s.Decision.Deadline != 0 && s.Now >= s.Decision.Deadline }

func leadingUp(s seen, r engine.Role) step {
	switch s.Decision.Phase {
	case lease.PhasePreparing:
		if s.Server.Quiesced || !s.Server.became(r, s.Secrets) {
			return converging(s, r)
		}
		if !s.Server.Checkpointed {
			return retried(s, step{Do: checkpoint, Role: r})
		}
		return step{Do: rest, Why: "prepares to hand over"}
	case lease.PhaseQuiescing:
		if !s.Server.Quiesced {
			return retried(s, step{Do: quiesce, Role: r})
		}
		return step{Do: rest, Why: "hands over"}
	case lease.PhaseNone, lease.PhaseStopping:
	}
	return converging(s, r)
}

// converging tells an up server its role where it differs from what it was told last, and now and then all the same.
func converging(s seen, r engine.Role) step {
	if !s.Server.Quiesced && s.Server.became(r, s.Secrets) && s.Now < s.Server.LookAgain {
		return step{Do: rest, Until: s.Server.LookAgain}
	}
	return retried(s, step{Do: become, Role: r})
}

func retried(s seen, next step) step {
	if s.Now < s.Server.RetryAt {
		return step{Do: rest, Until: s.Server.RetryAt, Why: "waits before it tries again"}
	}
	return next
}

func (v server) became(r engine.Role, secrets string) bool {
	return v.Became != nil && reflect.DeepEqual(*v.Became, r) && v.Secrets == secrets
}

// fits says whether a look at the data, or its preparation, for one role holds for another, too.
func fits(done *engine.Role, r engine.Role) bool {
	return done != nil && done.Kind == r.Kind && done.Upstream == r.Upstream && done.Timeline == r.Timeline && done.Initialise == r.Initialise
}

// restartDue says that the aim asks for a restart that this server has not had.
func restartDue(s seen) bool {
	token := s.Aim.Restart
	return token != "" && token != s.Memory.RestartDone && token != s.Server.Token
}

// sameWork says whether a step that is under way still serves the one that would be taken now.
func sameWork(busy, next step) bool {
	if busy.Do != next.Do || busy.Role.Kind != next.Role.Kind || busy.Role.Upstream != next.Role.Upstream {
		return false
	}
	return busy.Role.Timeline == next.Role.Timeline
}

// obeyed says whether the decision is carried out in full. It is what the others rely on, so each case asks for proof.
func obeyed(s seen) bool {
	v := s.Server
	switch s.Decision.Role {
	case lease.RoleNone:
		return true
	case lease.RoleStop:
		return v.Life == down
	case lease.RoleReplica:
		if v.Life == down {
			return s.Decision.Upstream == "" // receives from nobody
		}
		return v.Life == up && v.Kind == engine.Replica && v.became(wanted(s), s.Secrets)
	case lease.RolePrimary:
	}
	if v.Life != up || v.Kind != engine.Primary || v.StopSent != 0 {
		return false
	}
	switch s.Decision.Phase {
	case lease.PhasePreparing:
		return v.Checkpointed
	case lease.PhaseQuiescing:
		return v.Quiesced
	case lease.PhaseNone, lease.PhaseStopping:
	}
	return !v.Quiesced && v.became(wanted(s), s.Secrets)
}
