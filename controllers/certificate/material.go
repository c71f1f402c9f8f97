package certificate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Keys of the Secrets' data.
const (
	keyTrusted     = "ca.crt"
	keyCertificate = "tls.crt"
	keyPrivate     = "tls.key"

	keySignerCertificate = "signer.crt"
	keySignerPrivate     = "signer.key"
	keyNextCertificate   = "next.crt"
	keyNextPrivate       = "next.key"
	keyNextSigns         = "next-signs"
	keyRotation          = "rotation"
)

// Material is all certificates of one Database as its Secrets hold them. The zero value is a Database that has none.
type Material struct {
	// Signer issues leaves. Next is trusted already and will sign from NextSigns on, once every instance trusts it. Signer is
	// empty for a Database that has lost its authority and is about to get another.
	Signer, Next Pair
	NextSigns    time.Time
	// Trusted is the PEM bundle of every authority that is trusted now.
	Trusted []byte
	// Rotation is the newest rotation token that was begun.
	Rotation string
	// Server is the server's leaf, and ServerTrusted the bundle that clients verify it with: Trusted, or the user's.
	Server        Pair
	ServerTrusted []byte
	// Members are the members' leaves by instance name.
	Members map[string]Pair
}

// ParseMaterial reads the Secrets' data: that of <db>-ca, <db>-server and, by instance, <instance>-member; nil where a Secret
// does not exist. A leaf is taken as it is, and issued again by Plan if it is broken. A broken authority is an error, since a
// person must have put it there; one that is gone is replaced by Plan, which goes on trusting what the leaves' Secrets trust.
func ParseMaterial(authority, server map[string][]byte, members map[string]map[string][]byte) (Material, error) {
	m := Material{
		Signer:        Pair{Certificate: authority[keySignerCertificate], Key: authority[keySignerPrivate]},
		Next:          Pair{Certificate: authority[keyNextCertificate], Key: authority[keyNextPrivate]},
		Trusted:       authority[keyTrusted],
		Rotation:      string(authority[keyRotation]),
		Server:        Pair{Certificate: server[keyCertificate], Key: server[keyPrivate]},
		ServerTrusted: server[keyTrusted],
		Members:       map[string]Pair{},
	}
	for name, data := range members {
		m.Members[name] = Pair{Certificate: data[keyCertificate], Key: data[keyPrivate]}
	}
	if len(m.Trusted) == 0 {
		m.Trusted = trustOf(members)
	}
	if err := m.check(authority); err != nil {
		return Material{}, fmt.Errorf("%w; restore the Secret of the authority from a backup, or delete it to get a new authority", err)
	}
	if raw := authority[keyNextSigns]; len(raw) > 0 {
		// What cannot be read is the zero time, which is past: the next authority then signs as soon as all trust it.
		m.NextSigns, _ = time.Parse(time.RFC3339, string(raw))
	}
	return m, nil
}

// Shared is the same material, which holds what several Secrets say alike only once: with one authority its certificate is the bundle of all
// that are trusted, and each leaf's Secret has it again.
func (m Material) Shared() Material {
	for _, same := range []*[]byte{&m.Signer.Certificate, &m.Next.Certificate, &m.ServerTrusted} {
		if bytes.Equal(*same, m.Trusted) {
			*same = m.Trusted
		}
	}
	return m
}

func (m Material) check(authority map[string][]byte) error {
	if authority != nil && m.Signer.Empty() && m.Next.Empty() {
		return errors.New("the Secret of the authority holds none")
	}
	for _, pair := range []Pair{m.Signer, m.Next} {
		if pair.Empty() {
			continue
		}
		if _, err := ParseAuthority(pair); err != nil {
			return err
		}
	}
	return nil
}

// trustOf is every authority that the members' Secrets trust; what cannot be read is left out.
func trustOf(members map[string]map[string][]byte) []byte {
	var all []*x509.Certificate
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if found, err := parseBundle(members[name][keyTrusted]); err == nil {
			all = append(all, found...)
		}
	}
	return encodeBundle(distinct(all...))
}

// AuthorityData is the data of <db>-ca. It holds the keys: nothing but the manager needs to read it.
func (m Material) AuthorityData() map[string][]byte {
	data := map[string][]byte{keyTrusted: m.Trusted}
	if !m.Signer.Empty() {
		data[keySignerCertificate], data[keySignerPrivate] = m.Signer.Certificate, m.Signer.Key
	}
	if !m.Next.Empty() {
		data[keyNextCertificate], data[keyNextPrivate] = m.Next.Certificate, m.Next.Key
		data[keyNextSigns] = []byte(m.NextSigns.UTC().Format(time.RFC3339))
	}
	if m.Rotation != "" {
		data[keyRotation] = []byte(m.Rotation)
	}
	return data
}

// ServerData is the data of <db>-server.
func (m Material) ServerData() map[string][]byte { return leafData(m.Server, m.ServerTrusted) }

// MemberData is the data of <instance>-member.
func (m Material) MemberData(instance string) map[string][]byte {
	return leafData(m.Members[instance], m.Trusted)
}

func leafData(p Pair, trusted []byte) map[string][]byte {
	return map[string][]byte{keyCertificate: p.Certificate, keyPrivate: p.Key, keyTrusted: trusted}
}

// SecretsHash is what the agent of the instance reports once it and its server use this material.
func (m Material) SecretsHash(instance string) string {
	return engine.SecretsHash(
		engine.TLSFiles{Certificate: m.Members[instance].Certificate, Trusted: m.Trusted},
		engine.TLSFiles{Certificate: m.Server.Certificate, Trusted: m.ServerTrusted},
	)
}

// Manager issues the manager's client certificate. Keep it in memory, and ask again when Stale says so.
func (m Material) Manager(random io.Reader, now time.Time, p Policy, uid string) (Pair, error) {
	issuer, err := m.issuer()
	if err != nil {
		return Pair{}, err
	}
	return issuer.Issue(random, now, p.Manager, ManagerLeaf(uid))
}

// Stale says whether a pair should be issued again: unreadable, past two thirds of its life, or not by the authority that signs.
func (m Material) Stale(now time.Time, p Pair) bool {
	c, err := readLeaf(p)
	if err != nil {
		return true
	}
	return due(now, c) || !m.current(c)
}

// current says whether a leaf is by the authority that signs; where none does, any trusted one will do.
func (m Material) current(c *x509.Certificate) bool {
	raw := m.Signer.Certificate
	if m.Signer.Empty() {
		raw = m.Trusted
	}
	authorities, err := parseBundle(raw)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return issued(a, c) })
}

func (m Material) issuer() (Authority, error) {
	if m.Signer.Empty() {
		return ParseAuthority(m.Next)
	}
	return ParseAuthority(m.Signer)
}

func readLeaf(p Pair) (*x509.Certificate, error) {
	c, err := parseCertificate(p.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(p.Key)
	if err != nil {
		return nil, err
	}
	if !belongs(c.PublicKey, key) {
		return nil, errors.New("the key does not belong to the certificate")
	}
	return c, nil
}

// Expiries are the ends of the certificates by name: ca, server, and replication, the earliest of the members'.
func (m Material) Expiries() map[string]time.Time {
	ends := map[string]time.Time{}
	authority := m.Signer
	if authority.Empty() {
		authority = m.Next
	}
	keepEarliest(ends, "ca", authority.Certificate)
	keepEarliest(ends, "server", m.Server.Certificate)
	for _, pair := range m.Members {
		keepEarliest(ends, "replication", pair.Certificate)
	}
	return ends
}

func keepEarliest(ends map[string]time.Time, name string, raw []byte) {
	c, err := parseCertificate(raw)
	if err != nil {
		return
	}
	if end, known := ends[name]; !known || c.NotAfter.Before(end) {
		ends[name] = c.NotAfter
	}
}
