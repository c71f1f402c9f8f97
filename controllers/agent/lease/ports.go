package lease

import (
	"context"
	"errors"
	"time"
)

// Clock reads the boot clock.
type Clock interface{ Now() Time }

// Transport carries a request to a peer by name and brings its answer.
type Transport interface {
	Send(ctx context.Context, to string, r Request) (Answer, error)
}

// Store is this Database's Lease and EndpointSlice, and nothing else.
type Store interface {
	Read(ctx context.Context) (Seen, error)
	// Swap writes the record if the Lease still has the resourceVersion, and
	// returns the new one. ErrConflict means that it had moved on; any other
	// error leaves open whether the record was written.
	Swap(ctx context.Context, resourceVersion string, r Record) (string, error)
	// Route points the EndpointSlice at this member at the epoch. ErrConflict
	// means that it names a higher epoch.
	Route(ctx context.Context, epoch uint64) error
}

// ErrConflict says that a write was refused because the object had moved on.
var ErrConflict = errors.New("the object has moved on")

// Promises keeps the promise over restarts.
type Promises interface {
	Load() (Promise, bool, error)
	Save(p Promise) error
}

// Server is the agent's side: it carries decisions out, in its own goroutines.
type Server interface {
	// Apply takes the newest decision. It must return at once. Only Deadline
	// may differ from the one before; it moves with every heartbeat.
	Apply(d Decision)
	// HardStop kills the server now, whatever Apply is busy with. It may be
	// called more than once and returns when done.
	HardStop(reason string)
}

// LeaderAt is how far a leader's log goes by its own word, and when it said so. The zero value says nothing.
type LeaderAt struct {
	Name  string
	Epoch uint64
	End   Position
	Heard Time
	// Rebuilds names the member that is being copied; empty for none.
	Rebuilds string
}

// Status is a member's view of itself, for the manager and the plugin.
type Status struct {
	At       Time
	Stage    string
	Decision Decision
	Promise  Promise
	Facts    Facts
	Grants   map[string]time.Duration // leader: how old each member's newest grant is
	Members  map[string]Answer        // leader: what each member told last
	Leader   LeaderAt                 // follower: how far the leader's log goes
	Wait     Wait                     // what it waits for while nobody leads as far as it knows
}

// ErrUnreadable says that what the Lease holds is not understood.
var ErrUnreadable = errors.New("what it holds is not understood")
