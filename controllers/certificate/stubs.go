// Package certificate is the public-key infrastructure of a Database, purely: its authority, the leaves and when to renew them.
package certificate

import (
	"io"
	"time"
)

// Policy is how long certificates live.
type Policy struct {
	// Authority and Leaf are the lives of an authority and of a leaf.
	Authority, Leaf time.Duration
	// Overlap is how long a new authority is trusted before it signs: the time for clients to fetch it.
	Overlap time.Duration
}

// DefaultPolicy is used where nothing else is asked for.
func DefaultPolicy() Policy { panic("todo") }

// Pair is a certificate and its key, both PEM.
type Pair struct{ Certificate, Key []byte }

// Leaf is a request for a leaf. Make it with ServerLeaf, MemberLeaf or ManagerLeaf.
type Leaf struct {
	CommonName, Organization string
	DNSNames                 []string
	Server, Client           bool
}

// ServerLeaf is the server's certificate for clients: it covers every Service's name.
func ServerLeaf(uid, namespace, database string) Leaf { panic("todo") }

// MemberLeaf is that by which an instance is known.
func MemberLeaf(uid, namespace, database, instance string) Leaf { panic("todo") }

// ManagerLeaf is the manager's client certificate.
func ManagerLeaf(uid string) Leaf { panic("todo") }

// Authority signs leaves.
type Authority struct{ pair Pair }

// NewAuthority makes an authority of a Database.
func NewAuthority(random io.Reader, now time.Time, life time.Duration, uid, database string) (Authority, error) {
	panic("todo")
}

// ParseAuthority reads an authority from PEM and checks that key and certificate belong together.
func ParseAuthority(p Pair) (Authority, error) { panic("todo") }

// Issue a leaf. It never outlives the authority.
func (a Authority) Issue(random io.Reader, now time.Time, life time.Duration, l Leaf) (Pair, error) {
	panic("todo")
}

// Material is all certificates of one Database as its Secrets hold them. The zero value is a Database that has none.
type Material struct {
	// Signer issues leaves; Next is trusted already and will sign once everyone trusts it. Either may be empty.
	Signer, Next Pair
	// Trusted is the PEM bundle of every authority that is trusted now.
	Trusted []byte
	// NextSince is when Next became trusted.
	NextSince time.Time
	// Rotation is the newest rotation token that was begun.
	Rotation string
	// Server is the server's leaf, and ServerTrusted the bundle that clients verify it with (Trusted, or the user's).
	Server        Pair
	ServerTrusted []byte
	// Members are the members' leaves by instance name.
	Members map[string]Pair
}

// ParseMaterial reads the Secrets' data: that of <db>-ca, <db>-server and, by instance, <instance>-member; nil where a Secret
// does not exist. A broken leaf reads as absent (it is issued again); a broken authority is an error, since a person put it
// there.
func ParseMaterial(authority, server map[string][]byte, members map[string]map[string][]byte) (Material, error) {
	panic("todo")
}

// AuthorityData, ServerData and MemberData are the Secrets' data.
func (m Material) AuthorityData() map[string][]byte { panic("todo") }

// ServerData is the data of <db>-server: tls.crt, tls.key, ca.crt.
func (m Material) ServerData() map[string][]byte { panic("todo") }

// MemberData is the data of <instance>-member: tls.crt, tls.key, ca.crt.
func (m Material) MemberData(instance string) map[string][]byte { panic("todo") }

// SecretsHash is what the agent of the instance reports once it uses this material.
func (m Material) SecretsHash(instance string) string { panic("todo") }

// Manager issues the manager's client certificate; keep it in memory, and ask again when Stale says so.
func (m Material) Manager(random io.Reader, now time.Time, p Policy, uid string) (Pair, error) {
	panic("todo")
}

// Stale says whether a pair should be issued again: unreadable, past two thirds of its life, or not by the signer.
func (m Material) Stale(now time.Time, p Pair) bool { panic("todo") }

// Expiries are the ends of the certificates by name: ca, server, replication (the earliest member's).
func (m Material) Expiries() map[string]time.Time { panic("todo") }

// Wanted is what Plan works towards.
type Wanted struct {
	UID, Namespace, Database string
	// Instances that exist or are to be made.
	Instances []string
	// Foreign is the user's own server certificate (spec.tls), checked by CheckServer; nil for one of ours.
	Foreign *Foreign
	// Rotation asks for a new authority now, once per new value.
	Rotation string
	// Reported is the SecretsHash of each instance's newest report; absent while it is silent.
	Reported map[string]string
}

// Foreign is a server certificate that the user supplies.
type Foreign struct {
	Pair
	Trusted []byte
}

// CheckServer says what is wrong with a user's server certificate and what to do about it; nil if it serves host now.
func CheckServer(now time.Time, f Foreign, host string) error { panic("todo") }

// Plan is the next step from the material that there is: first trust a new authority everywhere, then issue the leaves by it,
// then trust the old one no longer. Apply the next material's Secrets if changed, and look again at nextLook at the latest, or
// when a report changes.
func Plan(random io.Reader, now time.Time, p Policy, current Material, w Wanted) (next Material, changed bool, nextLook time.Time, err error) {
	panic("todo")
}
