// Package serving keeps the certificate of the webhooks where neither cert-manager nor OLM does: it makes one, renews it in time,
// and tells the API server whom to trust.
package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

const (
	// life of a leaf and its authority; renewal begins when a third of it is left.
	life = 90 * 24 * time.Hour
	// settle is how long a new authority is trusted before a leaf of it is served: longer than an API server needs to hear of it.
	settle = 10 * time.Minute
	// skew is how far a clock that judges the certificate may be behind the one that made it.
	skew = 5 * time.Minute
)

// pair is a leaf, its key, and the authority that signed it. The authority's key was thrown away when the leaf was signed, so that
// nobody can sign another: a renewal brings its own authority.
type pair struct {
	leaf      *x509.Certificate
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newPair(now time.Time, names []string) (pair, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the authority's key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the webhook's key: %w", err)
	}
	authority := template(now, fmt.Sprintf("plimsoll-webhook-ca-%d", now.Unix()))
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	signed, err := sign(authority, authority, authorityKey, authorityKey)
	if err != nil {
		return pair{}, err
	}
	leaf := template(now, names[0])
	leaf.DNSNames = names
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	served, err := sign(leaf, signed, key, authorityKey)
	if err != nil {
		return pair{}, err
	}
	return pair{leaf: served, authority: signed, key: key}, nil
}

func template(now time.Time, name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: []string{"plimsoll.dev"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
	}
}

func sign(c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	c.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", c.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

// made is when the pair was made.
func (p pair) made() time.Time { return p.leaf.NotBefore.Add(skew) }

// serves says whether the pair can be served under all names now.
func (p pair) serves(now time.Time, names []string) bool {
	if now.Before(p.leaf.NotBefore) || !now.Before(p.leaf.NotAfter) {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool { return p.leaf.VerifyHostname(name) != nil })
}

// aging says that a third or less of its life is left.
func (p pair) aging(now time.Time) bool { return now.After(p.leaf.NotAfter.Add(-life / 3)) }

func (p pair) certificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.leaf.Raw}, PrivateKey: p.key, Leaf: p.leaf}
}

func (p pair) encode() (leaf, key []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the webhook's key: %w", err)
	}
	return encodeCertificates(p.leaf), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificates(all ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range all {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// parsePair reads a leaf and its key and finds its authority among those that are trusted.
func parsePair(leafPEM, keyPEM []byte, trusted []*x509.Certificate) (pair, error) {
	both, err := tls.X509KeyPair(leafPEM, keyPEM)
	if err != nil {
		return pair{}, err
	}
	key, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, errors.New("the key is not one of ECDSA")
	}
	for _, authority := range trusted {
		if both.Leaf.CheckSignatureFrom(authority) == nil {
			return pair{leaf: both.Leaf, authority: authority, key: key}, nil
		}
	}
	return pair{}, errors.New("no trusted authority signed the certificate")
}
