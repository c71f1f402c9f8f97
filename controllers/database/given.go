package database

import (
	"bytes"
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// givenFor is how long the Secrets that a person or cert-manager keeps are good for. Nothing hints at a change of these: a server
// certificate that was renewed must be served long before the old one ends, and a client that trusts only the new authority does
// not come as far as a refused login.
const givenFor = time.Minute

// given are the Secrets of others that a Database names, as they were read.
type given struct {
	at                   time.Time
	credentials, foreign rawSecret
}

// givenTo says whether the Database names any.
func givenTo(d *v1.Database) bool {
	_, foreign := foreignName(d)
	return foreign != "" || d.Spec.Bootstrap.CredentialsSecret != ""
}

// unchanged looks at the given Secrets, and at these alone, when they are due. It costs a read of each in a minute, and nothing for
// a Database that names none.
func (v *Vault) unchanged(ctx context.Context, key types.NamespacedName, d *v1.Database, h *holding, now time.Time) (bool, error) {
	if !givenTo(d) || now.Sub(h.given.at) < givenFor {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	next := given{at: now}
	_, foreign := foreignName(d)
	for name, into := range map[string]*rawSecret{d.Spec.Bootstrap.CredentialsSecret: &next.credentials, foreign: &next.foreign} {
		if name == "" {
			continue
		}
		var err error
		if *into, err = v.secret(ctx, d.Namespace, name); err != nil {
			return false, err
		}
	}
	if !next.credentials.same(h.given.credentials) || !next.foreign.same(h.given.foreign) {
		return false, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if held := v.held[key]; held != nil {
		copied := *held
		copied.given.at = now
		v.held[key] = &copied
	}
	return true, nil
}

// same says that a Secret says what another did.
func (s rawSecret) same(other rawSecret) bool {
	return s.found == other.found && maps.EqualFunc(s.data, other.data, bytes.Equal)
}
