package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
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

// hash of all mounted certificates, keys left out, as the manager makes it of the Secrets that it wrote.
func (c *certificates) hash() string {
	stamp := stampOf(c.member) + stampOf(c.server)
	c.mu.Lock()
	defer c.mu.Unlock()
	if stamp == c.looked {
		return c.digest
	}
	member, err := publicFiles(c.member)
	server, alsoErr := publicFiles(c.server)
	if err != nil || alsoErr != nil {
		return c.digest // a swap is under way; the next look sees it whole
	}
	c.looked, c.digest = stamp, engine.SecretsHash(member, server)
	return c.digest
}

// publicFiles reads what is no secret of a directory. A file that is missing is an empty one.
func publicFiles(dir string) (engine.TLSFiles, error) {
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = real // both of one moment
	}
	cert, err := readBounded(filepath.Join(dir, "tls.crt"))
	if err != nil {
		return engine.TLSFiles{}, err
	}
	trusted, err := readBounded(filepath.Join(dir, "ca.crt"))
	return engine.TLSFiles{Certificate: cert, Trusted: trusted}, err
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	raw, err := io.ReadAll(io.LimitReader(f, maxCertificate+1))
	if len(raw) > maxCertificate {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxCertificate)
	}
	return raw, err
}
