package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// every is how often the Secret and the registrations are looked at: what another replica did takes effect within it.
	every = 30 * time.Second
	// patience bounds one look, reads and writes together.
	patience = 20 * time.Second
	// attempts bounds how often a lost race is run again at once.
	attempts = 3
)

// store is where the material lives and where API servers learn whom to trust.
type store interface {
	// load is the Secret's data and a token of its version; an empty token if it does not exist.
	load(ctx context.Context) (data map[string][]byte, version string, err error)
	// save replaces what load returned; errRaced if somebody else did before.
	save(ctx context.Context, data map[string][]byte, version string) error
	// publish makes every registration of the webhooks trust the bundle.
	publish(ctx context.Context, bundle []byte) error
}

var errRaced = errors.New("another replica was first")

// Keeper serves the webhooks' certificate and keeps it valid. It runs in every replica of the operator: each serves from memory
// what the Secret holds, and whoever looks first renews it.
type Keeper struct {
	store store
	names []string
	clock clock.WithTicker
	ends  prometheus.Gauge

	// last is what was served last: should the Secret vanish, it comes back as it was, still trusted.
	last material

	mu      sync.Mutex
	served  *tls.Certificate
	problem error
}

func newKeeper(s store, names []string, c clock.WithTicker, registry prometheus.Registerer) (*Keeper, error) {
	if len(names) == 0 {
		return nil, errors.New("the webhooks' certificate needs a name: that of their Service")
	}
	for _, name := range names {
		// A name that a certificate cannot bear would have it made again at every look.
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || net.ParseIP(name) != nil {
			return nil, fmt.Errorf("the webhooks' certificate cannot bear the name %q: give the DNS name of their Service", name)
		}
	}
	k := &Keeper{store: s, names: names, clock: c, problem: errors.New("not looked at yet"), ends: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "plimsoll_webhook_certificate_not_after_timestamp_seconds",
		Help: "When the certificate that the webhooks are served with ends, in seconds since 1970.",
	})}
	if err := registry.Register(k.ends); err != nil {
		return nil, fmt.Errorf("register the metric of the webhooks' certificate: %w", err)
	}
	return k, nil
}

// NeedLeaderElection is false: every replica answers webhooks.
func (*Keeper) NeedLeaderElection() bool { return false }

// Start looks after the certificate until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	ticker := k.clock.NewTicker(every)
	defer ticker.Stop()
	for {
		err := k.look(ctx)
		for again := 0; again < attempts && errors.Is(err, errRaced); again++ {
			err = k.look(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).WithName("serving").Error(err, "cannot keep the webhooks' certificate; will look again", "after", every.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// GetCertificate is for tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.served == nil {
		return nil, fmt.Errorf("the webhooks have no certificate yet: %w", k.problem)
	}
	return k.served, nil
}

// Check is a healthz.Checker for readiness: red while there is no certificate to serve.
func (k *Keeper) Check(*http.Request) error {
	_, err := k.GetCertificate(nil)
	return err
}

func (k *Keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now := k.clock.Now()
	data, version, err := k.store.load(ctx)
	if err != nil {
		return k.failed(err)
	}
	m := parse(data)
	if version == "" {
		m = k.last
	}
	published := k.store.publish(ctx, m.bundle())
	if len(m.trusted) == 0 {
		published = errors.New("nothing to trust yet")
	}
	next, err := step(now, m, k.names, published == nil)
	if err != nil {
		return k.failed(err)
	}
	wanted, err := next.data()
	if err != nil {
		return k.failed(err)
	}
	if !maps.EqualFunc(wanted, data, bytes.Equal) {
		// Saved before it is served or published: what the Secret does not hold, the other replicas cannot serve.
		if err := k.store.save(ctx, wanted, version); err != nil {
			return k.failed(err)
		}
		published = k.store.publish(ctx, next.bundle())
	}
	k.last = next
	k.serve(next)
	return published
}

func (k *Keeper) serve(m material) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.served, k.problem = m.current.certificate(), nil
	k.ends.Set(float64(m.current.leaf.NotAfter.Unix()))
}

// failed keeps the reason for those who ask while there is no certificate. A certificate that there is goes on being served.
func (k *Keeper) failed(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.problem = err
	return err
}
