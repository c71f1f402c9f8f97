package agent

import (
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// fallPause is how long a leader's server that died stays down although nobody says so: the others may take over instead.
const fallPause = 150 * time.Millisecond

// decide is the next step from what is to what should be. It is pure: the keeper's loop asks it after each change.
func decide(s seen) step {
	if s.Server.Life == fallen {
		return step{Do: hardStop, Why: "clear what the ended server left"}
	}
	if s.Server.Life == up && s.Server.Frozen {
		return step{Do: hardStop, Why: "answers nobody"}
	}
	if s.Server.Life == up && s.Server.Deaf {
		return step{Do: hardStop, Why: "does not end receiving"} // an election waits for it
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

// gently stops fast, and hard when the time is over. The time of a stop that was sent already runs from then.
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
	anew := s.Server.Due == copyAnew && r.Upstream != "" && withheld(s) == ""
	r.Anew = anew && s.Server.Life != up // an up server is told its role as ever
	switch {
	case !s.HasAim:
		return step{Do: rest, Why: "waits for the manager's first aim"}
	case s.Server.Life == up && s.Server.Kind == engine.Primary:
		return step{Do: hardStop, Why: "does not lead any more"}
	case s.Server.Life == up && (s.Server.StopSent != 0 || restartDue(s)):
		return restarting(s)
	case s.Server.Life == up && s.Unfit && r.Upstream != "":
		return gently(s, s.Now.Add(s.StopFast), "cannot follow with the data that it has")
	case s.Server.Life == up && (s.Server.Due == startAgain && r.Upstream != "" || anew):
		return gently(s, s.Now.Add(s.StopFast), "stands still")
	case s.Server.Life == up:
		return converging(s, r)
	case lacksUpstream(s.Decision, s.Aim):
		return step{Do: rest, Why: "waits for an aim that holds the address of " + s.Decision.Upstream}
	case s.Decision.Serial <= s.Server.Barrier:
		return step{Do: rest, Why: "was stopped from outside; waits for the next decision"}
	case s.Server.Full:
		return awaitRoom(s)
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
	case s.Server.Full:
		return awaitRoom(s)
	case s.Server.FellAt != 0 && s.Now < s.Server.FellAt.Add(fallPause):
		return step{Do: rest, Until: s.Server.FellAt.Add(fallPause), Why: "its server died"}
	case fits(s.Server.Prepared, r):
		return step{Do: start, Role: r}
	case s.Now < s.Server.RetryAt:
		return step{Do: rest, Until: s.Server.RetryAt, Why: "waits before it tries again"}
	}
	return step{Do: prepare, Role: r}
}

// awaitRoom waits for room on the volume: a server that is started without would only end again.
func awaitRoom(s seen) step {
	return step{Do: rest, Until: s.Now.Add(time.Second), Why: "waits for room on its volume"}
}

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
