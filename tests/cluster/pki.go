package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is a directory of certificates NAME.crt and keys NAME.key. What exists is kept: a cluster that keeps
// its disks must keep its certificates as well.
type pki struct{ dir string }

func (p pki) crt(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p pki) key(name string) string { return filepath.Join(p.dir, name+".key") }

// authority makes a certificate authority.
func (p pki) authority(name string) error {
	return p.make(name, "", &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	})
}

// client makes a client certificate; Kubernetes reads the user from the common name and the group from the organisation.
func (p pki) client(authority, name, user, group string) error {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	return p.make(name, authority, &x509.Certificate{
		Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server makes a serving certificate for host names and addresses. It may act as a client too, as etcd wants.
func (p pki) server(authority, name string, hosts ...string) error {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
			continue
		}
		c.DNSNames = append(c.DNSNames, h)
	}
	return p.make(name, authority, c)
}

// signingKey makes a key pair NAME.key and NAME.pub, for service account tokens.
func (p pki) signingKey(name string) error {
	if _, err := os.Stat(p.key(name)); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key %s: %w", name, err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("make key %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(p.dir, name+".pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return p.writeKey(name, key)
}

func (p pki) make(name, authority string, c *x509.Certificate) error {
	if _, err := os.Stat(p.crt(name)); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", name, err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return fmt.Errorf("make certificate %s: %w", name, err)
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(10, 0, 0)
	parent, signer := c, key
	if authority != "" {
		if parent, signer, err = p.load(authority); err != nil {
			return err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", name, err)
	}
	if err := p.writeKey(name, key); err != nil { // the key first: the certificate says that both are there
		return err
	}
	return writePEM(p.crt(name), "CERTIFICATE", der)
}

func (p pki) load(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	blocks := make([][]byte, 2)
	for i, path := range []string{p.crt(name), p.key(name)} {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("load authority %s: %w", name, err)
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return nil, nil, fmt.Errorf("load authority %s: no PEM block in %s", name, path)
		}
		blocks[i] = block.Bytes
	}
	crt, err := x509.ParseCertificate(blocks[0])
	if err != nil {
		return nil, nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	key, err := x509.ParseECPrivateKey(blocks[1])
	if err != nil {
		return nil, nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	return crt, key, nil
}

func (p pki) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("write key %s: %w", name, err)
	}
	return writePEM(p.key(name), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return replaceFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig renders a file for the client certificate NAME at an API server.
func (p pki) kubeconfig(server, authority, name string) ([]byte, error) {
	var encoded [3]string
	for i, path := range []string{p.crt(authority), p.crt(name), p.key(name)} {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("render kubeconfig of %s: %w", name, err)
		}
		encoded[i] = base64.StdEncoding.EncodeToString(data)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: plimsoll, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: %s, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: plimsoll, context: {cluster: plimsoll, user: %s}}]
current-context: plimsoll
`, server, encoded[0], name, encoded[1], encoded[2], name), nil
}
