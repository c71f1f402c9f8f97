package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Foreign is a server certificate that the user supplies: a chain, its key and the bundle that clients verify it with.
type Foreign struct {
	Pair
	Trusted []byte
}

// Late says that the certificate should have been replaced: cert-manager does so when two thirds of its life are over.
func (f Foreign) Late(now time.Time) bool {
	c, err := parseCertificate(f.Certificate)
	return err == nil && now.After(c.NotBefore.Add(life(c)*3/4))
}

// CheckServer says what is wrong with a user's server certificate and what to do about it; nil if it serves host now.
func CheckServer(now time.Time, f Foreign, host string) error {
	for key, content := range map[string][]byte{keyCertificate: f.Certificate, keyPrivate: f.Key, keyTrusted: f.Trusted} {
		if len(content) == 0 {
			return fmt.Errorf("key %s is missing or empty; add it", key)
		}
	}
	if _, err := tls.X509KeyPair(f.Certificate, f.Key); err != nil {
		return fmt.Errorf("tls.crt and tls.key cannot be used together (%w); put the PEM certificate and its own PEM key there", err)
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(f.Trusted) {
		return errors.New("ca.crt holds no PEM certificate; put that of the issuing authority there")
	}
	chain.AppendCertsFromPEM(f.Certificate)
	leaf, err := parseCertificate(f.Certificate)
	if err != nil {
		return fmt.Errorf("tls.crt cannot be read (%w); put a PEM certificate there", err)
	}
	if now.After(leaf.NotAfter) {
		return fmt.Errorf("tls.crt ended at %s; renew it", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if now.Before(leaf.NotBefore) {
		return fmt.Errorf("tls.crt begins only at %s; supply one that holds now", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if err := leaf.VerifyHostname(host); err != nil {
		return fmt.Errorf("tls.crt is not for %s (%w); add that DNS name to it", host, err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: now})
	if err != nil {
		return fmt.Errorf("tls.crt does not verify with ca.crt (%w); supply the authority that issued it", err)
	}
	return nil
}
