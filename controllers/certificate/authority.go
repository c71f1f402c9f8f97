package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"
)

const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

// Pair is a certificate and its key, both PEM.
type Pair struct{ Certificate, Key []byte }

// Empty says whether there is nothing.
func (p Pair) Empty() bool { return len(p.Certificate) == 0 && len(p.Key) == 0 }

// Authority signs leaves.
type Authority struct {
	pair        Pair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority of a Database. It signs leaves only.
//
// Random is for serial numbers; keys and signatures come from Go's own generator, which takes no other since Go 1.26.
func NewAuthority(random io.Reader, now time.Time, life time.Duration, uid, database string) (Authority, error) {
	serial, err := newSerial(random)
	if err != nil {
		return Authority{}, fmt.Errorf("make an authority for Database %s: %w", database, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName: "plimsoll-ca:" + database, Organization: []string{uid},
			// Two authorities of one Database differ in their subjects, so that a verifier never tries the wrong one.
			SerialNumber: hex.EncodeToString(serial.Bytes()[:4]),
		},
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	pair, err := sign(random, template, nil)
	if err != nil {
		return Authority{}, fmt.Errorf("make an authority for Database %s: %w", database, err)
	}
	return ParseAuthority(pair)
}

// ParseAuthority reads an authority and checks that key and certificate belong together.
func ParseAuthority(p Pair) (Authority, error) {
	certificate, err := parseCertificate(p.Certificate)
	if err != nil {
		return Authority{}, fmt.Errorf("read the authority: %w", err)
	}
	key, err := parseKey(p.Key)
	if err != nil {
		return Authority{}, fmt.Errorf("read the authority: %w", err)
	}
	if !certificate.IsCA {
		return Authority{}, errors.New("read the authority: its certificate is not that of an authority")
	}
	if !key.PublicKey.Equal(certificate.PublicKey) {
		return Authority{}, errors.New("read the authority: its key does not belong to its certificate")
	}
	return Authority{pair: p, certificate: certificate, key: key}, nil
}

// Pair is the authority as PEM.
func (a Authority) Pair() Pair { return a.pair }

// Issue a leaf. It never outlives the authority.
func (a Authority) Issue(random io.Reader, now time.Time, life time.Duration, l Leaf) (Pair, error) {
	serial, err := newSerial(random)
	if err != nil {
		return Pair{}, fmt.Errorf("issue %s: %w", l.CommonName, err)
	}
	end := now.Add(life)
	if end.After(a.certificate.NotAfter) {
		end = a.certificate.NotAfter
	}
	pair, err := sign(random, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: l.CommonName, Organization: []string{l.Organization}},
		NotBefore:    now.Add(-skew), NotAfter: end,
		DNSNames: l.DNSNames, IPAddresses: l.addresses(),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.uses(),
		BasicConstraintsValid: true,
	}, &a)
	if err != nil {
		return Pair{}, fmt.Errorf("issue %s: %w", l.CommonName, err)
	}
	return pair, nil
}

// issued says whether the authority with this certificate signed c.
func issued(authority, c *x509.Certificate) bool {
	return bytes.Equal(authority.SubjectKeyId, c.AuthorityKeyId) && c.CheckSignatureFrom(authority) == nil
}

// sign makes a key, and a certificate for it: by the authority, or by itself where there is none.
func sign(random io.Reader, template *x509.Certificate, by *Authority) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(random, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key: %w", err)
	}
	return Pair{
		Certificate: bytes.Clone(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: der})), // whose buffer is twice as large
		Key:         bytes.Clone(pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: raw})),
	}, nil
}

// newSerial is 127 random bits with the highest set: positive, never short, and no two alike.
func newSerial(random io.Reader) (*big.Int, error) {
	raw := make([]byte, 16)
	if _, err := io.ReadFull(random, raw); err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	raw[0] = raw[0]&0x7f | 0x40
	return new(big.Int).SetBytes(raw), nil
}
