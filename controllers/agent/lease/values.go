// Package lease decides among the members of one Database who may write.
package lease

import (
	"cmp"
	"time"
)

// Time is a reading of the boot clock (CLOCK_BOOTTIME), in nanoseconds. It
// counts while the machine is suspended; wall time decides nothing here.
type Time int64

// Add returns the time d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns how long after u the time t is.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Position is how far a member has durably received. The zero value means that
// it is not known, which is neither "nothing" nor "everything".
type Position struct {
	Known bool   `json:"known"`
	Rank  uint64 `json:"rank,omitempty"` // PostgreSQL: the timeline of the last valid record; grows with the epoch
	At    uint64 `json:"at,omitempty"`   // bytes; compares only within one rank
	Text  string `json:"text,omitempty"` // the same for people, such as 5/3000028
}

// Compare orders two known positions by rank, then by bytes.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Rank, q.Rank), cmp.Compare(p.At, q.At))
}

// Holds says that p is known and holds everything up to q.
func (p Position) Holds(q Position) bool { return p.Known && q.Known && p.Compare(q) >= 0 }

// ServerState is what the agent knows about its own server.
type ServerState string

// The states of a server. Unknown is a third answer and acted on as the most
// dangerous reading: a server that may be running and writing.
const (
	ServerUnknown ServerState = ""
	ServerStopped ServerState = "Stopped" // hard stop done: every other process of the container is reaped, or in D state with the kill pending
	ServerReplica ServerState = "Replica"
	ServerPrimary ServerState = "Primary"
)

// Facts are what the agent reports about its own server, all sampled together.
type Facts struct {
	// Obeys is the Serial of the newest Decision that was fully carried out
	// before the rest was sampled. It keeps a fact from answering an older question.
	Obeys      uint64
	Server     ServerState
	Receiving  bool          // from any upstream; a walreceiver that has not exited yet counts
	HasData    bool          // the data directory holds a database
	Position   Position      // durable; of a primary its flush position; of a stopped server where its log ends, and unknown until that was looked up after the stop
	Prepared   bool          // the checkpoint that a Preparing decision asked for is done
	Quiesced   bool          // no session can write any more, nor will one before the phase changes, restart or not; Position is final
	BackAtOnce bool          // a stopped server of this member can serve again at once, so that no release is due
	Fell       bool          // its server ended by itself, and no other one has come up to its role since: one that starts has a recovery before it
	Full       bool          // a stopped server waits for room on its volume and is back once there is some; nobody else would have more
	Ailing     string        // why this member cannot do its work, its volume takes no writes; empty for nothing. It holds at once, whatever Obeys says
	Discard    bool          // the data must go (re-clone, lost slot); wait for Decision.MayWipe
	CanWait    bool          // with Discard: not while another member is being rebuilt
	Following  []string      // primary: who streams from it now
	Counted    bool          // Following was looked at; without it nothing is known of that
	StopBudget time.Duration // measured: how long a hard stop takes here; half a grant at most is taken into account
}

// Switchover asks the leader to hand over.
type Switchover struct {
	ID      string
	Target  string
	Expires Time // of this member's boot clock
}

// Aim is what the manager wants. It is level-triggered: the newest one holds.
type Aim struct {
	Members      []string   // who should be a voter with data in the end; empty means not told yet, and then nobody is added or removed
	Witness      string     // who should vote without data beside two members; empty for nobody
	Preferred    bool       // writes go on without enough replicas, once the Lease says so
	Switchover   Switchover // ID empty: none
	Recovery     Recovery   // ID empty: none
	Paused       bool       // nobody here stands for election; a leader goes on
	Fenced       bool       // this instance must not serve: a leader hands over, then the server stays stopped
	LeaseVersion string     // resourceVersion of the Lease as the manager's watch saw it last; a leader that knows another one reads again
	SliceVersion string     // and of the EndpointSlice; a leader looks at each one once, whether clients are still sent to it
}

// Role is what a member's server shall be.
type Role string

// The roles of a Decision.
const (
	RoleNone    Role = "None"    // nothing is known yet: start nothing, change nothing
	RoleStop    Role = "Stop"    // hard stop now, by Deadline where that is set
	RoleReplica Role = "Replica" // follow Upstream; without one, run but receive from nobody
	RolePrimary Role = "Primary" // be the primary at Epoch until Deadline; a server that died is first reported, then started again unless a stop comes
)

// Phase is how far a leader is in handing over.
type Phase string

// The phases of a hand-over. Until the stop each may still be called off.
const (
	PhaseNone      Phase = ""
	PhasePreparing Phase = "Preparing" // checkpoint, go on serving
	PhaseQuiescing Phase = "Quiescing" // stop new sessions, set read-only, end the others
	PhaseStopping  Phase = "Stopping"  // stop fast, then hard by Deadline
)

// Decision is the standing order that the agent obeys until the next one.
type Decision struct {
	// Serial grows with every change of anything but Deadline.
	Serial     uint64
	Role       Role
	Epoch      uint64   // the leadership that this decision belongs to
	Leader     string   // who leads at Epoch as far as known
	Upstream   string   // replica: whom to receive from; empty means receive from nobody, and report when that is so
	UpstreamIP string   // replica: where Upstream says that it is; empty if it does not
	Timeline   uint64   // primary: promote onto exactly this one, or run on it already
	Deadline   Time     // primary and stop: after it no write may be acknowledged, and no primary started or promoted; look at the clock last, for the agent may have been frozen. Zero means none
	Phase      Phase    // how far the hand-over is
	Sync       []string // primary: the synchronous standbys, by name
	SyncNeed   int      // primary: how many of Sync must flush before a commit is acknowledged
	Degraded   bool     // primary: the Lease says that only this member may be elected, so fewer than SyncNeed will do while fewer follow
	Voter      bool     // this member counts
	MayWipe    bool     // this member is in no voter list: it may discard its data
	Record     Record   // the Lease as last seen, for rejoin: compare timeline and switch positions with it
	Reason     string   // for people
}
