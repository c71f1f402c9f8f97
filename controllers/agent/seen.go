package agent

import (
	"reflect"
	"slices"
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
	// Fell is true from the end of a server that ended by itself until another one has converged to its role.
	Fell bool
	// RetryAt is when the step that failed last may be tried again.
	RetryAt lease.Time
	// Full is true from the end of a server that had no room left on its volume until there is some.
	Full bool
	// Due is what a replica that stands still needs; it holds until the next server starts.
	Due remedy
	// Frozen is true of an up server that answers nobody and does nothing.
	Frozen bool
	// Deaf is true of an up replica of nobody that does not end receiving.
	Deaf bool
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
	// Streams is true of a replica that receives, applied or not.
	Streams bool
	// Rebuilds names a member that is being copied, by the leader's word; empty for none.
	Rebuilds string
	// Cramped says that the volume of the data has no room for anything.
	Cramped bool
	// SyncPeers that are connected bound the synchronous count in mode preferred, once the Lease says that fewer hold all; negative
	// for unknown.
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

// wanted is the role that the server should have now.
func wanted(s seen) engine.Role {
	r := roleOf(s.Decision, s.Aim, s.Memory.Initialised)
	// Only once the Lease says so: until then another member may be elected, and must find all that was acknowledged.
	if r.Kind == engine.Primary && s.Aim.Synchronous == synchronousPreferred && s.Decision.Degraded && s.Connected >= 0 {
		r.SyncCount = min(r.SyncCount, s.Connected)
	}
	if alone := r.Kind == engine.Primary && r.SyncCount == 0 && len(r.Peers) > 0; alone && s.Aim.Synchronous == synchronousRequired && s.Memory.Shared {
		r.SyncPeers, r.SyncCount = slices.Clone(r.Peers), 1
	}
	return r
}

// shared says whether commits are held by others, or were: a leader whose last other voter is being copied anew still has its writes wait
// for somebody who holds them. One that never had another does not: it would take no writes until its first copy is whole.
func shared(s seen) bool {
	switch {
	case len(s.Decision.Record.Voters) > 1:
		return true // noted by whoever may lead later, too: a promotion then waits for no disk
	case recovered(s):
		return false
	case !s.HasAim || s.Decision.Role != lease.RolePrimary:
		return s.Memory.Shared
	}
	return s.Memory.Shared && len(s.Aim.Members) > 1
}

// recovered says that a person has just given this member the lead alone, and the loss was accepted for writes to go on.
func recovered(s seen) bool {
	d := s.Decision
	return d.Role == lease.RolePrimary && d.Record.Recovered.Epoch == d.Epoch && d.Epoch > s.Memory.Recovered
}

func expired(s seen) bool { return s.Decision.Deadline != 0 && s.Now >= s.Decision.Deadline }

func (v server) became(r engine.Role, secrets string) bool {
	return v.Became != nil && reflect.DeepEqual(*v.Became, r) && v.Secrets == secrets
}

// fits says whether a look at the data, or its preparation, for one role holds for another, too.
func fits(done *engine.Role, r engine.Role) bool {
	return done != nil && done.Kind == r.Kind && done.Upstream == r.Upstream && done.Timeline == r.Timeline && done.Initialise == r.Initialise && done.Anew == r.Anew
}

// restartDue says that the aim asks for a restart that this server has not had.
func restartDue(s seen) bool {
	token := s.Aim.Restart
	return token != "" && token != s.Memory.RestartDone && token != s.Server.Token
}
