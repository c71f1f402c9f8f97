package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
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

// leaf for a Database's UID that is valid for a time from an hour ago on.
func (a *authority) leaf(t *testing.T, uid, name string, valid time.Duration, dns ...string) client.Credentials {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	form := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62)))(t), Subject: pkix.Name{CommonName: name, Organization: []string{uid}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid - time.Hour), DNSNames: dns, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, form, a.cert, &key.PublicKey, a.key))(t)
	raw := must(x509.MarshalPKCS8PrivateKey(key))(t)
	return client.Credentials{
		CA: a.pem, Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
}

// mount writes credentials as a Secret's volume holds them.
func mount(t *testing.T, dir string, c client.Credentials) {
	t.Helper()
	for name, raw := range map[string][]byte{"ca.crt": c.CA, "tls.crt": c.Cert, "tls.key": c.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
