package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// rereadCallers is how long a read of the authority's file counts: a rotated one takes effect without a restart.
const rereadCallers = 10 * time.Second

// Callers checks the client certificate that an API server shows when its AdmissionConfiguration gives it one. It is an http and a
// TLS matter at once: the certificate is verified in the handshake, and asked for only where admission is asked for, because API
// servers show none for conversions and probes have none.
type Callers struct {
	file  string
	names []string
	now   func() time.Time

	mu   sync.Mutex
	read time.Time
	pool *x509.CertPool
}

// NewCallers admits those whose certificate is signed by an authority in the PEM file, and, unless names is empty, whose common
// name is among names. Where the file holds the cluster's own client authority, give names: every user has a certificate of it.
func NewCallers(file string, names []string, now func() time.Time) (*Callers, error) {
	c := &Callers{file: file, names: slices.Clone(names), now: now}
	if _, err := c.authorities(); err != nil {
		return nil, err
	}
	return c, nil
}

// tls makes a server ask for a certificate and verify one that is shown.
func (c *Callers) tls(config *tls.Config) {
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := c.authorities()
		if err != nil {
			return nil, err
		}
		mine := config.Clone()
		mine.GetConfigForClient = nil
		mine.ClientAuth, mine.ClientCAs = tls.VerifyClientCertIfGiven, pool
		return mine, nil
	}
}

func (c *Callers) guard(next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.admits(r.TLS); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Callers) admits(state *tls.ConnectionState) error {
	if state == nil || len(state.VerifiedChains) == 0 {
		return errors.New("the webhook wants a client certificate of the API server: give it one in its AdmissionConfiguration, or start the operator without --webhook-client-ca-file")
	}
	name := state.VerifiedChains[0][0].Subject.CommonName
	if len(c.names) > 0 && !slices.Contains(c.names, name) {
		return fmt.Errorf("the webhook does not answer to %q: add it to --webhook-client-names if it is the API server", name)
	}
	return nil
}

// authorities reads the file at most every rereadCallers. A file that has become unreadable leaves the last good one in force:
// it is being replaced, or somebody will see the next handshakes fail once those certificates end.
func (c *Callers) authorities() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.pool != nil && now.Sub(c.read) < rereadCallers {
		return c.pool, nil
	}
	pool, err := readPool(c.file)
	if err != nil && c.pool == nil {
		return nil, err
	}
	if err == nil {
		c.pool = pool
	}
	c.read = now
	return c.pool, nil
}

func readPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authority of the API server's client certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("read the authority of the API server's client certificate: %s holds no certificate in PEM", file)
	}
	return pool, nil
}
