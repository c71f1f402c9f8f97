package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Aim is what the manager publishes to one agent. It is level-triggered: the agent converges to the newest, keeps it on its
// volume, and ignores one whose Epoch is older than the newest that it has seen.
type Aim struct {
	// UID, Namespace and Database that it is for.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Database  string `json:"database"`
	// Member that it is for.
	Member string `json:"member"`
	// Epoch that it was decided on.
	Epoch int64 `json:"epoch"`
	// Members that should exist, with this one.
	Members []Peer `json:"members"`
	// Witness that should vote beside them and holds no data; nil for none.
	Witness *Peer `json:"witness,omitempty"`
	// Bootstrap names the member that may initialise a Database that never had a leader.
	Bootstrap string       `json:"bootstrap,omitempty"`
	Init      DatabaseInit `json:"init"`
	// Synchronous mode: required, preferred or none.
	Synchronous string `json:"synchronous"`
	// Files of configuration for this member.
	Files map[string]string `json:"files"`
	// Accounts of the database.
	Accounts []Account `json:"accounts,omitempty"`
	// Stop the server and keep it stopped (fenced or hibernated).
	Stop bool `json:"stop,omitempty"`
	// Restart is a token: the agent restarts its server once for each new value.
	Restart string `json:"restart,omitempty"`
	// LeaseVersion is the resourceVersion of the Lease as the manager saw it last, told to the leader alone: one that it did not
	// write may be a Lease that was deleted and made again, or came back from a backup, which only the leader can repair.
	LeaseVersion string `json:"leaseVersion,omitempty"`
	// SliceVersion is the same of the EndpointSlice for writes: the leader looks at each one once, whether clients are sent to it.
	SliceVersion string `json:"sliceVersion,omitempty"`
	// Switchover that the leader should carry out.
	Switchover *Switchover `json:"switchover,omitempty"`
	// Recovery that this member should carry out: a person named it to lead alone, because a majority of the voters is lost for good.
	Recovery *Recovery `json:"recovery,omitempty"`
}

// Peer is a member and the address of its pod.
type Peer struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Switchover is a planned hand-over. Within is how many milliseconds the leader has for it from its first sight of the ID, by its own
// clock: a time of day would be compared with the clock of another machine. It is the same as long as the ID is. An empty Target
// leaves the choice to the leader.
type Switchover struct {
	ID     string `json:"id"`
	Target string `json:"target,omitempty"`
	Within int64  `json:"within"`
}

// Recovery from a lost majority. Nothing is done if the Lease has another resourceVersion than the one that the loss was accepted on.
// Within is as in Switchover.
type Recovery struct {
	ID           string `json:"id"`
	LeaseVersion string `json:"leaseVersion"`
	// Lost members do not run, by the manager's word: all others must say that they know of no leader.
	Lost   []string `json:"lost,omitempty"`
	Within int64    `json:"within"`
}

// Encode returns the aim as it is published, and its revision.
func (a Aim) Encode() (raw []byte, revision string, err error) {
	raw, err = json.Marshal(a)
	if err != nil {
		return nil, "", fmt.Errorf("encode aim for %s: %w", a.Member, err)
	}
	return raw, RevisionOf(raw), nil
}

// Revision of the aim, the same for the same content.
func (a Aim) Revision() (string, error) {
	_, revision, err := a.Encode()
	return revision, err
}

// RevisionOf an aim as it was published. It is of the bytes, so that an agent that does not know all that they say tells the revision
// that it was given all the same.
func RevisionOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
