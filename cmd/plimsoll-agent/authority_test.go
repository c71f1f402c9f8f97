package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
)

// authority makes certificates as the manager does.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "orders"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key))(t)
	return &authority{must(x509.ParseCertificate(der))(t), key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// leaf for a Database's UID with names and addresses.
func (a *authority) leaf(t *testing.T, uid, name string, dns []string, ips ...string) client.Credentials {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	form := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62)))(t), Subject: pkix.Name{CommonName: name, Organization: []string{uid}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: dns, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, ip := range ips {
		form.IPAddresses = append(form.IPAddresses, net.ParseIP(ip))
	}
	der := must(x509.CreateCertificate(rand.Reader, form, a.cert, &key.PublicKey, a.key))(t)
	raw := must(x509.MarshalPKCS8PrivateKey(key))(t)
	return client.Credentials{
		CA: a.pem, Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
}

// mount writes credentials as the kubelet does a Secret's: into a directory of their own, swapped in by one symbolic link.
func mount(t *testing.T, dir string, c client.Credentials) {
	t.Helper()
	next := must(os.MkdirTemp(dir, "..data-"))(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Chmod(next, 0o755))
	for name, raw := range map[string][]byte{"ca.crt": c.CA, "tls.crt": c.Cert, "tls.key": c.Key} {
		check(os.WriteFile(filepath.Join(next, name), raw, 0o644))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); !errors.Is(err, fs.ErrExist) {
			check(err)
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	check(os.Symlink(filepath.Base(next), link))
	check(os.Rename(link, filepath.Join(dir, "..data")))
}

// must returns the value or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
