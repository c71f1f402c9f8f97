// Package authority makes certificates for tests: the authority is made by the product, the leaves can be as no Database's are.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

// Authority signs leaves.
type Authority struct {
	// PEM is its certificate.
	PEM  []byte
	pair tls.Certificate
}

// New is an authority as the manager makes one for a Database.
func New(t testing.TB) *Authority {
	t.Helper()
	made, err := certificate.NewAuthority(rand.Reader, time.Now(), 2*time.Hour, "uid", "orders")
	check(t, err)
	pair, err := tls.X509KeyPair(made.Pair().Certificate, made.Pair().Key)
	check(t, err)
	return &Authority{PEM: made.Pair().Certificate, pair: pair}
}

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.pair.Leaf)
	return p
}

// Option changes a leaf.
type Option func(*x509.Certificate)

// Names are DNS names that the leaf serves.
func Names(names ...string) Option {
	return func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, names...) }
}

// Addresses are IP addresses that the leaf serves.
func Addresses(addresses ...string) Option {
	return func(c *x509.Certificate) {
		for _, address := range addresses {
			c.IPAddresses = append(c.IPAddresses, net.ParseIP(address))
		}
	}
}

// Ended makes a leaf that has run out.
func Ended() Option {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
}

// Leaf for the Database of that UID, valid for an hour, for a server and for a client.
func (a *Authority) Leaf(t testing.TB, uid, name string, options ...Option) client.Credentials {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(t, err)
	form := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{uid}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, change := range options {
		change(form)
	}
	der, err := x509.CreateCertificate(rand.Reader, form, a.pair.Leaf, &key.PublicKey, a.pair.PrivateKey)
	check(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	return client.Credentials{
		CA: a.PEM, Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
}

// Pair is a leaf as Go's TLS takes it.
func (a *Authority) Pair(t testing.TB, uid, name string, options ...Option) tls.Certificate {
	t.Helper()
	c := a.Leaf(t, uid, name, options...)
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	check(t, err)
	return pair
}

// Mount writes credentials as the kubelet does a Secret's: into a directory of their own, swapped in by one symbolic link.
func Mount(t testing.TB, dir string, c client.Credentials) {
	t.Helper()
	next, err := os.MkdirTemp(dir, "..data-")
	check(t, err)
	check(t, os.Chmod(next, 0o755))
	for name, raw := range map[string][]byte{"ca.crt": c.CA, "tls.crt": c.Cert, "tls.key": c.Key} {
		check(t, os.WriteFile(filepath.Join(next, name), raw, 0o644))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); !errors.Is(err, fs.ErrExist) {
			check(t, err)
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	check(t, os.Symlink(filepath.Base(next), link))
	check(t, os.Rename(link, filepath.Join(dir, "..data")))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
