package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The annotations of the Lease object.
const (
	AnnotationRecord    = "plimsoll.dev/leadership"
	AnnotationBootstrap = "plimsoll.dev/bootstrap"
)

// Bounds of a record; the API server would allow 256 KiB for all annotations.
const (
	maxRecord  = 16 << 10
	maxVoters  = 15
	maxHistory = 32
	maxEpoch   = 1 << 53 // what every JSON reader holds exactly
)

// Record is the leadership as the Lease holds it.
type Record struct {
	Version    uint64       `json:"version"` // grows with every swap
	Epoch      uint64       `json:"epoch"`
	Leader     string       `json:"leader"`
	Voters     []string     `json:"voters"`               // sorted, the witness among them; majorities are of these
	Pending    string       `json:"pending,omitempty"`    // reserved: a learner that is being made a voter
	Witness    string       `json:"witness,omitempty"`    // the voter that never holds data: it grants and supports, and its word on positions is none
	Degraded   bool         `json:"degraded,omitempty"`   // commits may be acknowledged that too few members hold: only Leader may be elected
	Switchover string       `json:"switchover,omitempty"` // id of the last switchover that was carried out
	Recovered  Recovered    `json:"recovered,omitzero"`   // the last time that a person accepted a loss
	Timeline   uint64       `json:"timeline"`             // reserved for Epoch
	Start      Position     `json:"start"`                // where Timeline leaves its parent
	History    []Generation `json:"history,omitempty"`    // oldest first, the newest is this epoch's
}

// Generation is one epoch's timeline. A timeline may have been reserved and
// never used; Parent says where a used one came from.
type Generation struct {
	Epoch    uint64 `json:"epoch"`
	Timeline uint64 `json:"timeline"`
	Parent   uint64 `json:"parent,omitempty"`
	At       uint64 `json:"at"`
	Text     string `json:"text,omitempty"`
}

// Seen is what a read of the Lease object showed.
type Seen struct {
	ResourceVersion string // empty: the object is missing
	Record          Record
	HasRecord       bool
	Bootstrap       string // the member that may initialise a new Database
}

// IsVoter says whether the member is in the voter list.
func (r Record) IsVoter(name string) bool { return slices.Contains(r.Voters, name) }

// Data returns the voters that hold data: all but the witness.
func (r Record) Data() []string {
	if r.Witness == "" {
		return r.Voters
	}
	return slices.DeleteFunc(slices.Clone(r.Voters), func(v string) bool { return v == r.Witness })
}

// Electable says that the record lets the member lead next: while it is degraded, nobody but its leader holds all that was acknowledged.
func (r Record) Electable(name string) bool { return !r.Degraded || r.Leader == name }

// Majority is how many of n voters decide.
func Majority(n int) int { return n/2 + 1 }

// Encode returns the record's JSON, or says why it must not be written.
func (r Record) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode leadership record: %w", err)
	}
	if len(b) > maxRecord {
		return nil, fmt.Errorf("leadership record: %d bytes, at most %d", len(b), maxRecord)
	}
	return b, nil
}

// DecodeRecord reads a record, also of a later release as long as this one can keep to what it says.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) > maxRecord {
		return Record{}, fmt.Errorf("leadership record: %d bytes, at most %d", len(b), maxRecord)
	}
	var r Record
	if err := decodeFormat(b, "version", &r); err != nil {
		return Record{}, fmt.Errorf("leadership record: %w", err)
	}
	if err := r.Validate(); err != nil {
		return Record{}, err
	}
	return r, nil
}

// Validate says what is wrong with the record.
func (r Record) Validate() error {
	switch {
	case r.Version == 0 || r.Version > maxEpoch:
		return fmt.Errorf("leadership record: version %d is out of bounds", r.Version)
	case r.Epoch == 0 || r.Epoch > maxEpoch:
		return fmt.Errorf("leadership record: epoch %d is out of bounds", r.Epoch)
	case !validName(r.Leader):
		return fmt.Errorf("leadership record: bad leader %q", r.Leader)
	case len(r.Voters) == 0 || len(r.Voters) > maxVoters:
		return fmt.Errorf("leadership record: %d voters, want 1 to %d", len(r.Voters), maxVoters)
	case !slices.IsSorted(r.Voters) || len(slices.Compact(slices.Clone(r.Voters))) != len(r.Voters):
		return fmt.Errorf("leadership record: voters %q are not sorted and unique", r.Voters)
	case !r.IsVoter(r.Leader):
		return fmt.Errorf("leadership record: leader %s is not among the voters %q", r.Leader, r.Voters)
	case r.Witness != "" && (!r.IsVoter(r.Witness) || r.Witness == r.Leader):
		return fmt.Errorf("leadership record: witness %q is no voter, or leads", r.Witness)
	case r.Pending != "" && !validName(r.Pending):
		return fmt.Errorf("leadership record: bad pending member %q", r.Pending)
	case len(r.Switchover) > maxText || len(r.Start.Text) > maxText || len(r.Recovered.ID) > maxText:
		return errors.New("leadership record: a text is too long")
	case r.Timeline == 0 || r.Timeline > maxEpoch:
		return fmt.Errorf("leadership record: timeline %d is out of bounds", r.Timeline)
	}
	if r.Recovered.Epoch > r.Epoch || len(r.Recovered.Dropped) > maxVoters {
		return fmt.Errorf("leadership record: a recovery at epoch %d that dropped %d voters is out of bounds", r.Recovered.Epoch, len(r.Recovered.Dropped))
	}
	for _, v := range slices.Concat(r.Voters, r.Recovered.Dropped) {
		if !validName(v) {
			return fmt.Errorf("leadership record: bad voter %q", v)
		}
	}
	return r.validateHistory()
}

func (r Record) validateHistory() error {
	if len(r.History) > maxHistory {
		return fmt.Errorf("leadership record: %d generations, at most %d", len(r.History), maxHistory)
	}
	var last Generation
	for _, g := range r.History {
		switch {
		case g.Epoch <= last.Epoch || g.Timeline <= last.Timeline:
			return fmt.Errorf("leadership record: generation %d/%d does not follow %d/%d", g.Epoch, g.Timeline, last.Epoch, last.Timeline)
		case g.Epoch > r.Epoch || g.Timeline > r.Timeline || g.Parent >= g.Timeline:
			return fmt.Errorf("leadership record: generation %d/%d is out of bounds", g.Epoch, g.Timeline)
		case len(g.Text) > maxText:
			return errors.New("leadership record: a text is too long")
		}
		last = g
	}
	return nil
}

// next returns the record of a new leadership that follows r.
func (r Record) next(epoch uint64, leader string, start Position) Record {
	r.Version++
	r.Epoch, r.Leader, r.Start = epoch, leader, start
	r.Timeline = max(r.Timeline, start.Rank) + 1
	r.History = append(slices.Clone(r.History), Generation{
		Epoch: epoch, Timeline: r.Timeline, Parent: start.Rank, At: start.At, Text: start.Text,
	})
	if over := len(r.History) - maxHistory; over > 0 {
		r.History = r.History[over:]
	}
	return r
}

// withVoters returns r with other voters, of whom witness, if any, holds no data. A leader that is the only one with data left needs
// no word on who else may lead: nobody can.
func (r Record) withVoters(voters []string, witness string) Record {
	r.Version++
	r.Voters, r.Witness = slices.Sorted(slices.Values(voters)), witness
	r.Degraded = r.Degraded && len(r.Data()) > 1
	return r
}

// withDegraded returns r with another word on who holds what was acknowledged.
func (r Record) withDegraded(degraded bool) Record {
	r.Version++
	r.Degraded = degraded
	return r
}
