package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxBundle bounds what is read of a bundle: a Secret may hold a megabyte.
const maxBundle = 256

// parseCertificate reads the first certificate.
func parseCertificate(raw []byte) (*x509.Certificate, error) {
	all, err := parseBundle(raw)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// parseBundle reads every certificate; none is an error.
func parseBundle(raw []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != blockCertificate {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		if all = append(all, c); len(all) > maxBundle {
			return nil, fmt.Errorf("more than %d certificates in one bundle", maxBundle)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no PEM block CERTIFICATE")
	}
	return all, nil
}

// parseKey reads a key of ours.
func parseKey(raw []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("no PEM block PRIVATE KEY")
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	key, ok := any.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the key: it is a %T, not an ECDSA key", any)
	}
	return key, nil
}

// belongs says whether a key and a public key of any kind are a pair.
func belongs(public, private any) bool {
	signer, ok := private.(crypto.Signer)
	if !ok {
		return false
	}
	key, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(public)
}

func encodeBundle(certificates []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certificates {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: c.Raw}))
	}
	return out.Bytes()
}

// distinct drops repetitions and nils and keeps the order.
func distinct(certificates ...*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, c := range certificates {
		if c != nil && !contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func contains(all []*x509.Certificate, c *x509.Certificate) bool {
	for _, other := range all {
		if other.Equal(c) {
			return true
		}
	}
	return false
}
