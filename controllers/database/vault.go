package database

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

const (
	// secretsFor is how long Secrets that were read are good for when nothing hints at a change.
	secretsFor = 10 * time.Minute
	// retrySecrets is how often Secrets with a problem are read again.
	retrySecrets = 10 * time.Second
	// Refused logins that bring no news are looked into at a pause that doubles between these.
	minHint = time.Second
	maxHint = time.Minute
)

// Vault keeps what the Secrets of each Database said. There is no watch of Secrets: the manager has no right to list them, and an
// idle Database costs the API server nothing. They are read by name when something hints that they changed.
type Vault struct {
	live client.Reader

	mu   sync.Mutex
	held map[types.NamespacedName]*holding
}

type holding struct {
	uid     types.UID
	secrets Secrets
	given   given
	hint    time.Duration // pause until refused logins are looked into again
	// manager's client certificate, in memory only, and what it was issued from.
	client certificate.Pair
	stale  bool
}

// NewVault returns a Vault that reads by name from live, which must be no cache.
func NewVault(live client.Reader) *Vault {
	return &Vault{live: live, held: map[types.NamespacedName]*holding{}}
}

// secrets of a Database, read again if they may have changed. Failures is the sum of refused logins that its agents report.
func (v *Vault) secrets(ctx context.Context, d *v1.Database, instances []string, failures int64, now time.Time) (Secrets, error) {
	key := client.ObjectKeyFromObject(d)
	refs := refsOf(d, instances)
	v.mu.Lock()
	h := v.held[key]
	v.mu.Unlock()
	if h != nil && h.uid == d.UID && !v.due(h, refs, failures, now) {
		if same, err := v.unchanged(ctx, key, d, h, now); same || err != nil {
			return h.secrets, err
		}
	}
	raw, err := v.read(ctx, d, instances)
	if err != nil {
		return Secrets{}, err
	}
	s := interpret(d, raw, now)
	s.Refs, s.Failures = refs, failures
	v.keep(key, d.UID, s, given{at: now, credentials: raw.credentials, foreign: raw.foreign})
	return s, nil
}

// due says whether the Secrets have to be read again.
func (v *Vault) due(h *holding, refs string, failures int64, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	age := now.Sub(h.secrets.ReadAt)
	switch {
	case h.stale || h.secrets.Refs != refs || age >= secretsFor:
		return true
	case h.secrets.wanting() && age >= retrySecrets:
		return true
	default:
		return failures != h.secrets.Failures && age >= h.hint
	}
}

// lookAgain is when refused logins, a problem or given Secrets have to be looked into next; 0 if there are none.
func (v *Vault) lookAgain(d *v1.Database, failures int64, now time.Time) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.held[client.ObjectKeyFromObject(d)]
	if h == nil {
		return 0
	}
	if failures != h.secrets.Failures {
		return max(h.secrets.ReadAt.Add(h.hint).Sub(now), time.Millisecond)
	}
	if h.secrets.wanting() {
		return retrySecrets
	}
	if givenTo(d) {
		return max(h.given.at.Add(givenFor).Sub(now), time.Millisecond)
	}
	return 0
}

func (v *Vault) keep(key types.NamespacedName, uid types.UID, s Secrets, g given) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.held[key]
	if old == nil || old.uid != uid {
		v.held[key] = &holding{uid: uid, secrets: s, given: g, hint: minHint}
		return
	}
	hint := min(2*old.hint, maxHint)
	if old.secrets.Password != s.Password || s.Failures == old.secrets.Failures {
		hint = minHint
	}
	v.held[key] = &holding{uid: uid, secrets: s, given: g, hint: hint, client: old.client}
}

// wanting says that something is missing that others are to supply.
func (s Secrets) wanting() bool { return s.Problem != nil || s.Unissued }

// wrote replaces what is held by what the manager itself has just written.
func (v *Vault) wrote(key types.NamespacedName, change func(*Secrets)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := v.held[key]; h != nil {
		next := *h
		change(&next.secrets)
		v.held[key] = &next
	}
}

// doubt makes the next pass read the Secrets again, after a write whose outcome is not known.
func (v *Vault) doubt(key types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := v.held[key]; h != nil {
		next := *h
		next.stale = true
		v.held[key] = &next
	}
}

func (v *Vault) forget(key types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.held, key)
}

// refsOf names all that is read, so that a change of a name in the spec reads anew.
func refsOf(d *v1.Database, instances []string) string {
	_, foreign := foreignName(d)
	refs := []string{d.Spec.Bootstrap.CredentialsSecret, d.Spec.Bootstrap.Owner, foreign, strings.Join(instances, ",")}
	if !bootstrapped(d) {
		for _, s := range d.Spec.Bootstrap.SQL {
			kind, ref := sourceOf(s)
			refs = append(refs, kind, ref.Name, ref.Key)
		}
	}
	return strings.Join(refs, "\x00")
}

func (v *Vault) read(ctx context.Context, d *v1.Database, instances []string) (rawSecrets, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	raw := rawSecrets{members: map[string]rawSecret{}}
	var err error
	get := func(name string) rawSecret {
		if err != nil || name == "" {
			return rawSecret{}
		}
		var s rawSecret
		s, err = v.secret(ctx, d.Namespace, name)
		return s
	}
	_, foreign := foreignName(d)
	raw.authority = get(desired.AuthorityName(d.Name))
	raw.server = get(desired.ServerName(d.Name))
	raw.app = get(desired.ConnectionName(d.Name))
	raw.credentials = get(d.Spec.Bootstrap.CredentialsSecret)
	raw.foreign = get(foreign)
	for _, instance := range instances {
		raw.members[instance] = get(desired.MemberName(instance))
	}
	if err != nil || bootstrapped(d) {
		return raw, err
	}
	for _, source := range d.Spec.Bootstrap.SQL {
		s, err := v.source(ctx, d.Namespace, source)
		if err != nil {
			return raw, err
		}
		raw.sources = append(raw.sources, s)
	}
	return raw, nil
}

func (v *Vault) secret(ctx context.Context, namespace, name string) (rawSecret, error) {
	var s corev1.Secret
	err := v.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return rawSecret{}, nil
	case err != nil:
		return rawSecret{}, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	return rawSecret{found: true, uid: s.UID, labels: s.Labels, notes: s.Annotations, owners: s.OwnerReferences, data: s.Data}, nil
}

func (v *Vault) source(ctx context.Context, namespace string, source v1.SQLSource) (rawSecret, error) {
	kind, ref := sourceOf(source)
	if kind == "Secret" {
		return v.secret(ctx, namespace, ref.Name)
	}
	var c corev1.ConfigMap
	err := v.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &c)
	switch {
	case apierrors.IsNotFound(err):
		return rawSecret{}, nil
	case err != nil:
		return rawSecret{}, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, ref.Name, err)
	}
	data := map[string][]byte{}
	for k, text := range c.Data {
		data[k] = []byte(text)
	}
	return rawSecret{found: true, data: data}, nil
}

// clientCertificate is the manager's own for a Database's agents, issued in memory and kept until it is due.
func (v *Vault) clientCertificate(key types.NamespacedName, issue func(certificate.Material, certificate.Pair) (certificate.Pair, error)) (certificate.Pair, []byte, error) {
	v.mu.Lock()
	h := v.held[key]
	v.mu.Unlock()
	if h == nil || len(h.secrets.Material.Trusted) == 0 {
		return certificate.Pair{}, nil, fmt.Errorf("the authority of Database %s is not known yet", key)
	}
	pair, err := issue(h.secrets.Material, h.client)
	if err != nil {
		return certificate.Pair{}, nil, fmt.Errorf("issue the manager's certificate for Database %s: %w", key, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.held[key]; now != nil && now.uid == h.uid {
		next := *now
		next.client = pair
		v.held[key] = &next
	}
	return pair, h.secrets.Material.Trusted, nil
}
