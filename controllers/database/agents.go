package database

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// idleAgent is how long a connection for aims is kept: they come in a few passes one after another, and then none for days.
const idleAgent = 5 * time.Second

// Dialer talks to agents by mTLS, with a certificate that the Database's own authority issues to the manager in memory.
type Dialer struct {
	vault   *Vault
	policy  certificate.Policy
	now     func() time.Time
	options []client.Option

	mu      sync.Mutex
	clients map[types.NamespacedName]dialed
}

type dialed struct {
	uid string
	*client.Client
}

// NewDialer makes a Dialer; the options go to every client.
func NewDialer(vault *Vault, policy certificate.Policy, now func() time.Time, options ...client.Option) *Dialer {
	return &Dialer{vault: vault, policy: policy, now: now, options: options, clients: map[types.NamespacedName]dialed{}}
}

// SetAim publishes an aim.
func (d *Dialer) SetAim(ctx context.Context, to Target, aim engine.Aim) error {
	return d.client(to).SetAim(ctx, to.PodIP, aim)
}

// WatchReports calls heard for each report until the stream or the context ends.
func (d *Dialer) WatchReports(ctx context.Context, from Target, heard func(engine.Report)) error {
	return d.client(from).WatchReports(ctx, engine.Peer{Name: from.Instance, Address: from.PodIP}, heard)
}

// WatchMembers calls heard for each report of the agent, and for those of other members that it passes on.
func (d *Dialer) WatchMembers(ctx context.Context, from Target, heard func(engine.Report)) error {
	return d.client(from).WatchMembers(ctx, engine.Peer{Name: from.Instance, Address: from.PodIP}, heard)
}

// Forget closes the connections to the agents of a Database that is gone.
func (d *Dialer) Forget(database types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.clients[database]; ok {
		c.Close()
		delete(d.clients, database)
	}
}

// Close all connections.
func (d *Dialer) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, c := range d.clients {
		c.Close()
		delete(d.clients, key)
	}
}

func (d *Dialer) client(t Target) *client.Client {
	key := types.NamespacedName{Namespace: t.Namespace, Name: t.Database}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.clients[key]
	if ok && c.uid == t.UID {
		return c.Client
	}
	if ok {
		c.Close() // that of an earlier Database of the name
	}
	c = dialed{uid: t.UID, Client: client.New(t.UID, d.source(key, t.UID), slices.Concat([]client.Option{client.WithIdle(idleAgent)}, d.options)...)}
	d.clients[key] = c
	return c.Client
}

// source hands out the newest certificate and authorities at each handshake. They are parsed once for all connections of a Database.
func (d *Dialer) source(key types.NamespacedName, uid string) client.Source {
	var mu sync.Mutex
	var last parsed
	return func() (*tls.Certificate, *x509.CertPool, error) {
		pair, trusted, err := d.vault.clientCertificate(key, func(m certificate.Material, held certificate.Pair) (certificate.Pair, error) {
			if !m.Stale(d.now(), held) {
				return held, nil
			}
			return m.Manager(rand.Reader, d.now(), d.policy, uid)
		})
		if err != nil {
			return nil, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if bytes.Equal(last.certificate, pair.Certificate) && bytes.Equal(last.trusted, trusted) {
			return last.pair, last.pool, nil
		}
		cert, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		if err != nil {
			return nil, nil, fmt.Errorf("read the manager's certificate for Database %s: %w", key, err)
		}
		cert.Leaf = nil // nobody looks at our own, which weighs as much as the agent's
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(trusted) {
			return nil, nil, errors.New("the authority of Database " + key.String() + " holds no certificate")
		}
		last = parsed{certificate: pair.Certificate, trusted: trusted, pair: &cert, pool: pool}
		return last.pair, last.pool, nil
	}
}

// parsed is what a certificate and authorities are in memory.
type parsed struct {
	certificate, trusted []byte
	pair                 *tls.Certificate
	pool                 *x509.CertPool
}
