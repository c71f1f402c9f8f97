package lease

import "time"

// Input is one thing that happened to a member. Each kind is a type below.
type Input interface{ input() }

// Tick says only that time has passed.
type Tick struct{}

// Received is a peer's request. Token finds the way back for the Reply.
type Received struct {
	Token   uint64
	Request Request
}

// Answered is a peer's answer to an earlier Send. A request that failed or
// timed out is simply never answered.
type Answered struct{ Answer Answer }

// Outcome is how an API request ended.
type Outcome string

// The outcomes. Unknown covers time-outs: a swap may still land later.
const (
	Done     Outcome = "Done"
	Conflict Outcome = "Conflict" // the resourceVersion had moved on
	Unknown  Outcome = "Unknown"
)

// LeaseRead is the result of a ReadLease.
type LeaseRead struct {
	Outcome Outcome
	Seen    Seen
	Fault   Wait // of one that is Unknown; without it nobody answered
}

// LeaseSwapped is the result of a SwapLease.
type LeaseSwapped struct {
	Outcome         Outcome
	ResourceVersion string // the new one when Done
	Fault           Wait   // of one that is Unknown; without it nobody answered
}

// Persisted is the result of a Persist: the promise is on disk, or is not.
type Persisted struct {
	ID uint64
	OK bool
}

// Routed is the result of a Route.
type Routed struct {
	Epoch   uint64
	Outcome Outcome
}

// Leaving says that this member was asked to terminate: a leader hands over.
type Leaving struct{}

func (Tick) input()         {}
func (Received) input()     {}
func (Answered) input()     {}
func (LeaseRead) input()    {}
func (LeaseSwapped) input() {}
func (Persisted) input()    {}
func (Routed) input()       {}
func (Facts) input()        {}
func (Aim) input()          {}
func (Leaving) input()      {}

// Output is one thing that the shell must do. Each kind is a type below.
type Output interface{ output() }

// Send asks the shell to send a request; it may be lost.
type Send struct {
	To      string
	Request Request
}

// Reply answers the request that came in with Token.
type Reply struct {
	Token  uint64
	Answer Answer
}

// ReadLease asks for a LeaseRead. At most one API request is under way.
type ReadLease struct{}

// SwapLease asks to write Record if the Lease still has ResourceVersion.
type SwapLease struct {
	Record          Record
	ResourceVersion string
}

// Persist asks to write and fsync the promise; the shell does them in order.
type Persist struct {
	ID      uint64
	Promise Promise
}

// Decide carries a new standing decision.
type Decide struct{ Decision Decision }

// Route asks to point the EndpointSlice at this member, unless it already
// names a higher epoch.
type Route struct{ Epoch uint64 }

// Note is an event for people and counters.
type Note struct{ Event Event }

func (Send) output()      {}
func (Reply) output()     {}
func (ReadLease) output() {}
func (SwapLease) output() {}
func (Persist) output()   {}
func (Decide) output()    {}
func (Route) output()     {}
func (Note) output()      {}

// EventKind names what changed.
type EventKind string

// The events of the protocol.
const (
	EventElected    EventKind = "Elected"    // swapped and granted; the server may be promoted
	EventPromoted   EventKind = "Promoted"   // the server runs as primary
	EventRouted     EventKind = "Routed"     // the EndpointSlice names this member
	EventReleased   EventKind = "Released"   // told the voters that the leadership is over
	EventExpired    EventKind = "Expired"    // no majority of grants in time: hard stop
	EventSuperseded EventKind = "Superseded" // the Lease names a later leader: hard stop
	EventAborted    EventKind = "Aborted"    // a hand-over was called off, writes go on
	EventGaveUp     EventKind = "GaveUp"     // a candidacy ended without a leadership
	EventRaised     EventKind = "Raised"     // a leader with grants took a new epoch without a break
	EventMembers    EventKind = "Members"    // the voter list changed
	EventDegraded   EventKind = "Degraded"   // the Lease says that only this leader may be elected: writes go on with too few replicas
	EventRestored   EventKind = "Restored"   // enough replicas hold all again, and the Lease says so
	EventIgnored    EventKind = "Ignored"    // a message or result was dropped
	EventRefused    EventKind = "Refused"    // an order to recover from a lost majority is not carried out
	EventBroken     EventKind = "Broken"     // something is wrong that a person must see
)

// Event is something that changed. The time line is in readings of this
// member's boot clock; zero means that it has not happened.
type Event struct {
	Kind  EventKind
	Epoch uint64
	Cause string
	Line  Line
}

// Line is the time line of one change of hands as its winner saw it.
type Line struct {
	Why      string // the old leader ended, in words of its own where it could say so
	Seen     Time   // the first sign of trouble: the last grant request that came
	Released Time   // the old leader said that it had ended, or
	Expired  Time   // its grant ran out
	Elected  Time
	Promoted Time
	Routed   Time
	Waited   map[WaitFor]time.Duration // what for, and for how long in all
}
