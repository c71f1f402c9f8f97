package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// ManagerName is the common name of the manager's client certificate.
	ManagerName = engine.ManagerCommonName
	// MemberPrefix begins the common name of a member's certificate; the member's name follows.
	MemberPrefix = engine.MemberCommonName
)

// Identity is who stands at the other end of a connection.
type Identity struct {
	// Manager is true for the manager; else Member is the member's name.
	Manager bool
	Member  string
}

// errNoIdentity says that a certificate is nobody's.
var errNoIdentity = errors.New("the certificate names neither the manager nor a member")

// Identify reads who the leaf belongs to, and refuses one of another Database. Its chain must have been verified before.
func Identify(leaf *x509.Certificate, uid string) (Identity, error) {
	if !slices.Contains(leaf.Subject.Organization, uid) {
		return Identity{}, fmt.Errorf("the certificate of %q is for Database %q, not for %s", leaf.Subject.CommonName, leaf.Subject.Organization, uid)
	}
	name := leaf.Subject.CommonName
	if name == ManagerName {
		return Identity{Manager: true}, nil
	}
	member, ok := strings.CutPrefix(name, MemberPrefix)
	if !ok || member == "" {
		return Identity{}, fmt.Errorf("%w: common name %q", errNoIdentity, name)
	}
	return Identity{Member: member}, nil
}

// Credentials are a client's certificate and key and the authorities that it trusts, in PEM. During the change of an authority
// CA holds the old and the new one.
type Credentials struct {
	Cert, Key, CA []byte
}

// parse returns the certificate and the pool.
func (c Credentials) parse() (*tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("read the client certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, nil, errors.New("read the certificate authority: no certificate in it")
	}
	return &pair, pool, nil
}

// Source hands out the newest credentials; it is asked at every handshake.
type Source func() (*tls.Certificate, *x509.CertPool, error)

// Fixed is a Source of credentials that do not change while the client lives.
func Fixed(c Credentials) (Source, error) {
	pair, pool, err := c.parse()
	if err != nil {
		return nil, err
	}
	return func() (*tls.Certificate, *x509.CertPool, error) { return pair, pool, nil }, nil
}

// config is the TLS configuration of one connection to a member. It is made for each connection, so that a new certificate or
// authority is used from the next one on. The member's name is checked, not the address that it was reached by.
func config(source Source, uid, member string) (*tls.Config, error) {
	pair, pool, err := source()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              pool,
		ServerName:           member,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			who, err := Identify(s.PeerCertificates[0], uid)
			if err != nil {
				return err
			}
			if who.Member != member {
				return fmt.Errorf("the certificate is %q's, not %s's", s.PeerCertificates[0].Subject.CommonName, member)
			}
			return nil
		},
	}, nil
}
