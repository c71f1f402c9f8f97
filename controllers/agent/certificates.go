package agent

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certificates are the member's own, read again when the files change: the kubelet swaps them by one symbolic link.
type certificates struct {
	member, server string

	mu     sync.Mutex
	stamp  string
	pair   *tls.Certificate
	pool   *x509.CertPool
	digest string
	looked string
}

func newCertificates(member, server string) *certificates {
	return &certificates{member: member, server: server}
}

// maxCertificate bounds one file.
const maxCertificate = 256 << 10

// current returns the newest certificate and authorities. If new files cannot be used, the old ones are.
func (c *certificates) current() (*tls.Certificate, *x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp := stampOf(c.member)
	if stamp == c.stamp && c.pair != nil {
		return c.pair, c.pool, nil
	}
	pair, pool, err := readPair(c.member)
	if err != nil {
		if c.pair != nil {
			return c.pair, c.pool, nil
		}
		return nil, nil, err
	}
	c.stamp, c.pair, c.pool = stamp, pair, pool
	return pair, pool, nil
}

func readPair(dir string) (*tls.Certificate, *x509.CertPool, error) {
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = real // both halves of one moment
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the member's certificate: %w", err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, nil, errors.New("read the certificate authority: no certificate in it")
	}
	return &pair, pool, nil
}

// stampOf changes when one of the files does.
func stampOf(dir string) string {
	text := ""
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			text += "-;"
			continue
		}
		text += info.ModTime().Format(time.RFC3339Nano) + fmt.Sprint(info.Size()) + ";"
	}
	return text
}

// hash of all mounted certificates, keys left out.
func (c *certificates) hash() string {
	stamp := stampOf(c.member) + stampOf(c.server)
	c.mu.Lock()
	defer c.mu.Unlock()
	if stamp == c.looked {
		return c.digest
	}
	sum := sha256.New()
	for _, dir := range []string{c.member, c.server} {
		for _, name := range []string{"ca.crt", "tls.crt"} {
			raw, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) || len(raw) > maxCertificate {
				return c.digest // a swap is under way; the next look sees it whole
			}
			fmt.Fprintf(sum, "%d;", len(raw))
			sum.Write(raw)
		}
	}
	c.looked, c.digest = stamp, hex.EncodeToString(sum.Sum(nil)[:8])
	return c.digest
}
