package serving

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// Keys of the Secret. The first three are those of any TLS Secret; ca.crt holds every authority that is trusted.
const (
	keyLeaf     = "tls.crt"
	keyPrivate  = "tls.key"
	keyTrusted  = "ca.crt"
	keyNextLeaf = "next.crt"
	keyNextKey  = "next.key"
)

// maxTrusted bounds the authorities that are trusted at a time: one served, one next, one before, and one to spare.
const maxTrusted = 4

// material is what the Secret holds. The zero value is an empty Secret.
type material struct {
	current, next *pair
	// trusted are the authorities that API servers should trust, newest first.
	trusted []*x509.Certificate
}

// parse reads the Secret's data. What cannot be read counts as absent and is made again: nothing but these webhooks uses it.
func parse(data map[string][]byte) material {
	var m material
	for rest := data[keyTrusted]; len(m.trusted) < maxTrusted; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.IsCA {
			m.trusted = append(m.trusted, c)
		}
	}
	if p, err := parsePair(data[keyLeaf], data[keyPrivate], m.trusted); err == nil {
		m.current = &p
	}
	if p, err := parsePair(data[keyNextLeaf], data[keyNextKey], m.trusted); err == nil {
		m.next = &p
	}
	return m
}

func (m material) data() (map[string][]byte, error) {
	out := map[string][]byte{keyTrusted: m.bundle()}
	leaf, key, err := m.current.encode()
	if err != nil {
		return nil, err
	}
	out[keyLeaf], out[keyPrivate] = leaf, key
	if m.next != nil {
		if out[keyNextLeaf], out[keyNextKey], err = m.next.encode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bundle is what API servers should trust.
func (m material) bundle() []byte { return encodeCertificates(m.trusted...) }

// step is the next step from m; the same m if nothing is to do. Trust comes before use: a new pair is made, its authority is
// trusted next to the old one, and only when that is published and has had time to settle is the pair served. The old authority
// stays trusted until it ends, for replicas that still serve the old pair.
func step(now time.Time, m material, names []string, published bool) (material, error) {
	m.trusted = slices.DeleteFunc(slices.Clone(m.trusted), func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
	if m.next != nil && !m.next.serves(now, names) {
		m.next = nil
	}
	serving := m.current != nil && m.current.serves(now, names)
	switch {
	case m.next != nil && (!serving || published && now.Sub(m.next.made()) >= settle):
		m.current, m.next = m.next, nil
	case !serving:
		made, err := newPair(now, names)
		if err != nil {
			return material{}, err
		}
		m.current, m.next = &made, nil
		m.trust(made.authority)
	case m.next == nil && m.current.aging(now):
		made, err := newPair(now, names)
		if err != nil {
			return material{}, err
		}
		m.next = &made
		m.trust(made.authority)
	}
	return m, nil
}

func (m *material) trust(authority *x509.Certificate) {
	m.trusted = slices.Insert(m.trusted, 0, authority)
	if len(m.trusted) > maxTrusted {
		m.trusted = m.trusted[:maxTrusted]
	}
}
