package lease

import (
	"fmt"
	"net"
)

// Kind says what a request asks for.
type Kind string

// The kinds of request; each is also the last element of its HTTP path.
const (
	KindGrant   Kind = "grant"   // leader to member: support no other leader for T
	KindPreVote Kind = "prevote" // member to voter: would you support me?
	KindSupport Kind = "support" // candidate to voter: leave the old leader, for good, and tell your final position
	KindRelease Kind = "release" // leader or candidate to voter: I have ended, you owe me nothing
	KindStatus  Kind = "status"  // anyone to member: how are you?
)

// Request is a message to a peer.
type Request struct {
	Kind     Kind   `json:"kind"`
	Database string `json:"database"`
	From     string `json:"from"`
	Seq      uint64 `json:"seq"`
	Epoch    uint64 `json:"epoch"`

	Leading  bool     `json:"leading,omitempty"`  // grant: the sender runs as primary; stream from it
	Elected  bool     `json:"elected,omitempty"`  // grant: the sender has won and is being promoted; a replica that runs may attach to it already
	Led      uint64   `json:"led,omitempty"`      // prevote, support: the epoch by which the Lease that the sender swaps against names the sender itself as leader; zero when it names another
	Address  string   `json:"address,omitempty"`  // grant: the sender's IP address, where its database is
	At       Position `json:"at,omitzero"`        // grant: how far the sender's log goes, of a primary; who follows judges its own progress by it
	Members  Places   `json:"members,omitempty"`  // grant: where the others are, by their own word; whoever stands for election next must find them without a DNS server
	Rebuilds string   `json:"rebuilds,omitempty"` // grant: who is being copied, and will be a voter; others that can wait do
	Heir     string   `json:"heir,omitempty"`     // grant: being handed over to; release: who goes first
	Needed   Position `json:"needed,omitzero"`    // release: what Heir must hold; all that was acknowledged is in it
	Version  uint64   `json:"version,omitempty"`  // grant, prevote, support: the version of the Lease's record that the sender leads by, or would swap against
	Cause    string   `json:"cause,omitempty"`    // release: for people
	ID       string   `json:"id,omitempty"`       // release: of the switchover
}

// Answer is what a peer says to a Request. The fields beside OK are told always.
type Answer struct {
	Database string   `json:"database"`
	From     string   `json:"from"`
	Seq      uint64   `json:"seq"`
	OK       bool     `json:"ok"`
	Why      string   `json:"why,omitempty"`     // when not OK
	Promise  uint64   `json:"promise"`           // highest epoch that the sender granted or supported
	To       string   `json:"to,omitempty"`      // and whom
	Position Position `json:"position"`          // support: final; else as last seen
	Able     bool     `json:"able,omitempty"`    // the sender could lead now; others step aside only for such a one
	HasData  bool     `json:"data,omitempty"`    // the sender holds a database
	Free     bool     `json:"free,omitempty"`    // the sender neither leads, nor may the Lease name it without its knowledge, nor is it bound by a grant
	Leave    bool     `json:"leave,omitempty"`   // the sender wants to discard its data and asks to be no voter
	Address  string   `json:"address,omitempty"` // the sender's IP address
	CanWait  bool     `json:"wait,omitempty"`    // with Leave: not while another member is being rebuilt

	Role   Role   `json:"role,omitempty"`   // status
	Leader string `json:"leader,omitempty"` // status
	Epoch  uint64 `json:"epoch,omitempty"`  // status
}

// Places are IP addresses by the names of the members.
type Places map[string]string

// valid says that no entry is one that no member would send.
func (p Places) valid() bool {
	for name, address := range p {
		if !validName(name) || net.ParseIP(address) == nil {
			return false
		}
	}
	return len(p) <= 2*maxVoters
}

const (
	maxName = 253
	maxText = 256
)

// validName accepts what Kubernetes accepts as an object's name.
func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '.' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}

// Validate refuses a request that no member would send.
func (r Request) Validate() error {
	switch r.Kind {
	case KindGrant, KindPreVote, KindSupport, KindRelease, KindStatus:
	default:
		return fmt.Errorf("request: unknown kind %q", r.Kind)
	}
	switch {
	case !validName(r.From):
		return fmt.Errorf("%s request: bad sender %q", r.Kind, r.From)
	case r.Heir != "" && !validName(r.Heir) || r.Rebuilds != "" && !validName(r.Rebuilds):
		return fmt.Errorf("%s request: bad heir %q, or member that is being copied %q", r.Kind, r.Heir, r.Rebuilds)
	case r.Address != "" && net.ParseIP(r.Address) == nil:
		return fmt.Errorf("%s request: bad address %q", r.Kind, r.Address)
	case !r.Members.valid():
		return fmt.Errorf("%s request: bad addresses of members", r.Kind)
	case r.Epoch > maxEpoch:
		return fmt.Errorf("%s request: epoch %d is out of bounds", r.Kind, r.Epoch)
	case len(r.Database) > maxName || len(r.Cause) > maxText || len(r.ID) > maxText || len(r.Needed.Text) > maxText || len(r.At.Text) > maxText:
		return fmt.Errorf("%s request: a field is too long", r.Kind)
	}
	return nil
}

// Validate refuses an answer that no member would send.
func (a Answer) Validate() error {
	switch {
	case !validName(a.From):
		return fmt.Errorf("answer: bad sender %q", a.From)
	case a.Address != "" && net.ParseIP(a.Address) == nil:
		return fmt.Errorf("answer of %s: bad address %q", a.From, a.Address)
	case a.Promise > maxEpoch || a.Epoch > maxEpoch:
		return fmt.Errorf("answer of %s: epoch is out of bounds", a.From)
	case len(a.Database) > maxName || len(a.Why) > maxText || len(a.To) > maxName || len(a.Leader) > maxName || len(a.Position.Text) > maxText:
		return fmt.Errorf("answer of %s: a field is too long", a.From)
	}
	return nil
}
