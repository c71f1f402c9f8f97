package agent

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// remedy for a replica that stands still.
type remedy string

const (
	// leaveIt be.
	leaveIt remedy = ""
	// startAgain: stop the server, look at the data (which rewinds what has forked), and start it.
	startAgain remedy = "start again"
	// copyAnew: the same with a new copy of the leader's data.
	copyAnew remedy = "copy anew"
)

const (
	// little is how many bytes a replica must be behind to have no more than the usual patience: a primary's log may for half a minute end
	// in the middle of a record that no replica can apply. What is behind by less has littlePatience.
	little         = 64 << 10
	littlePatience = 5 * time.Minute
	// effortMost is how long one that works hard may take over one step.
	effortMost = 10 * time.Minute
	// stepMost is what one look counts for at most: an agent that got no processor for longer knows nothing about that time.
	stepMost = 3 * time.Second
	// heardMost is how old the leader's word may be.
	heardMost = 5 * time.Second
	// fellCounts is what a server that ended in the middle of its recovery counts as: several such ends are a standstill.
	fellCounts = 14 * time.Second
	// doublings bounds how much longer each further remedy is waited for.
	doublings = 6
)

// footing is what one look shows of a replica's progress.
type footing struct {
	// Replica says that it should be one, and Leader how far the log of the leader goes that it follows: zero without one.
	Replica bool
	Leader  lease.LeaderAt
	// PID of its server, zero without one, and of the newest one, which may have ended.
	PID     int
	Newest  int
	Applied engine.Position
	Streams bool
	Effort  uint64
	Fell    int64
	Hold    *engine.Hold
	// Turn is this member's place among the replicas by name.
	Turn int
}

// stand is what is known of a replica's progress.
type stand struct {
	// Failing says that it must not count as healthy, and Words why; Held that something holds it on purpose.
	Failing, Held bool
	Words         string
	// Do is what is due now.
	Do remedy
	// Streams says that it goes on receiving what it does not apply: commits may wait for its word.
	Streams bool
	// PID of the server that this is said of.
	PID int
}

// bounds of a standstill, as Config names them.
type bounds struct{ still, turn time.Duration }

// progress judges a replica by the bytes that it applies, against how far its leader's log goes.
type progress struct {
	bounds  bounds
	last    lease.Time
	pid     int
	ends    int64 // of servers in the middle of what they applied
	applied engine.Position
	effort  uint64
	still   time.Duration // since when it has applied nothing, what held it or it worked hard for left out
	fell    time.Duration // what the ends of its servers count as, since it came further than ever
	best    uint64
	held    time.Duration
	worked  time.Duration
	goal    engine.Position // open episode: what it must apply to be well again; zero if it is
	tries   int             // remedies that were carried out in this episode
	stand   stand
}

// look takes a look and says how things are.
func (p *progress) look(now lease.Time, f footing) stand {
	step := min(now.Sub(p.last), stepMost)
	if p.last == 0 {
		step = 0
	}
	p.last = now
	if !f.Replica {
		*p = progress{bounds: p.bounds, last: now}
		return p.stand
	}
	ended := f.Fell > p.ends
	if ended {
		p.fell += time.Duration(f.Fell-p.ends) * fellCounts
	}
	p.ends = f.Fell
	switch {
	case f.PID == 0 && !ended:
		return p.stand // whatever is being done to it takes its time
	case f.PID == 0:
		f.Applied, step = p.applied, 0 // it may not live for long enough to be looked at
		if f.Newest != p.pid {
			p.began(footing{PID: f.Newest, Applied: p.applied, Effort: p.effort})
		}
	case f.PID != p.pid:
		p.began(f)
	}
	leader := engine.Position{Timeline: f.Leader.End.Rank, Bytes: f.Leader.End.At, Text: f.Leader.End.Text}
	if !f.Leader.End.Known || now.Sub(f.Leader.Heard) > heardMost {
		return p.stand // nothing to judge it by
	}
	if !f.lacks(leader) || p.goal != (engine.Position{}) && !f.lacks(p.goal) {
		*p = progress{bounds: p.bounds, last: now, pid: p.pid, applied: f.Applied, best: f.Applied.Bytes, effort: f.Effort, ends: f.Fell}
	}
	p.stand.PID, p.stand.Streams = p.pid, f.Streams
	if !f.lacks(leader) {
		return p.stand
	}
	p.count(step, f)
	p.judge(f, leader)
	return p.stand
}

// lacks says that the replica has not applied up to there. On another timeline, bytes alone compare nothing unless it streams.
func (f footing) lacks(to engine.Position) bool {
	return f.Applied.Bytes < to.Bytes || f.Applied.Timeline < to.Timeline && !f.Streams
}

// began notes another server process: what it applies again is no progress yet.
func (p *progress) began(f footing) {
	if p.stand.Do != leaveIt {
		p.tries++
		p.still, p.fell, p.held, p.worked = 0, 0, 0, 0
		p.stand.Do = leaveIt
	}
	p.pid, p.applied, p.effort = f.PID, f.Applied, f.Effort
	p.best = max(p.best, f.Applied.Bytes)
}

// count the time of a look to what it was spent on.
func (p *progress) count(step time.Duration, f footing) {
	hard := f.Effort > p.effort && f.Effort-p.effort >= uint64(step)/10
	p.effort = f.Effort
	if f.Applied.Bytes > p.applied.Bytes || f.Applied.Timeline > p.applied.Timeline {
		p.applied, p.still, p.held, p.worked = f.Applied, 0, 0, 0
		if f.Applied.Bytes > p.best {
			p.best, p.fell = f.Applied.Bytes, 0 // what is applied again before the next end is no way out
		}
		return
	}
	switch {
	case f.Hold != nil && (f.Hold.Most < 0 || p.held <= time.Duration(f.Hold.Most)*time.Millisecond+p.bounds.still):
		p.held += step
	case hard && p.worked < effortMost:
		p.worked += step
	default:
		p.still += step
	}
}

func (p *progress) judge(f footing, leader engine.Position) {
	still := p.still + p.fell
	behind := int64(leader.Bytes - min(f.Applied.Bytes, leader.Bytes))
	patience := p.bounds.still
	if behind <= little && leader.Timeline == f.Applied.Timeline {
		patience = littlePatience
	}
	patience += time.Duration(f.Turn) * p.bounds.turn
	patience <<= max(0, min(p.tries-1, doublings))
	s := &p.stand
	open := p.goal != (engine.Position{})
	standing := still >= behindFor && (behind > little || still >= patience || leader.Timeline != f.Applied.Timeline)
	s.Failing = open || standing
	s.Held = !s.Failing && f.Hold != nil && p.held >= behindFor
	s.Words = ""
	switch {
	case s.Failing:
		if !open {
			p.goal = leader
		}
		s.Words = p.words(f)
	case s.Held:
		s.Words = f.Hold.Why
	}
	if s.Failing && s.Do == leaveIt && still >= patience {
		s.Do = startAgain
		if p.tries > 0 {
			s.Do = copyAnew
		}
	}
}

// words do not change with each look: those who watch would be woken by each.
func (p *progress) words(f footing) string {
	where := f.Applied.Text
	if where == "" {
		where = "its last checkpoint"
	}
	if p.still+p.fell < behindFor { // after a remedy, on its way
		where = ""
	}
	text := fmt.Sprintf("it stands still: it has applied nothing past %s, and the log of %s has gone on", where, f.Leader.Name)
	if where == "" {
		text = fmt.Sprintf("it stood still, and is on its way to where the log of %s was then (%s)", f.Leader.Name, p.goal.Text)
	}
	switch {
	case p.tries == 1:
		text += "; its server was started again"
	case p.tries > 1:
		text += "; a new copy of its data was tried"
	}
	return text
}
