package database

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

const (
	// stuckPass is when a reconcile counts as one that does not end. Each of its calls has a time-out well below.
	stuckPass = 3 * time.Minute
	// staleCache is when a cache that does not show our own write counts as stuck.
	staleCache = time.Minute
	// maxExpected bounds the writes that the cache is checked for.
	maxExpected = 1024
)

// Health knows what is under way, for the readiness of the manager: a pass that does not end, and a cache that does not show what
// the manager itself wrote, are both invisible from the outside and would leave every Database alone.
type Health struct {
	now  func() time.Time
	read client.Reader

	mu       sync.Mutex
	passes   map[types.NamespacedName]time.Time
	expected map[types.NamespacedName]expectation
}

// expectation is a write to a Database: its cached version should soon be another one than it was before.
type expectation struct {
	before string
	at     time.Time
}

// NewHealth returns a Health that reads from the manager's cache.
func NewHealth(read client.Reader, now func() time.Time) *Health {
	return &Health{now: now, read: read, passes: map[types.NamespacedName]time.Time{}, expected: map[types.NamespacedName]expectation{}}
}

// pass notes the beginning of a pass and returns what notes its end.
func (h *Health) pass(key types.NamespacedName) func() {
	h.mu.Lock()
	h.passes[key] = h.now()
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		delete(h.passes, key)
		h.mu.Unlock()
	}
}

// wrote notes that a Database was changed which was seen in this version.
func (h *Health) wrote(seen *v1.Database) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(seen)
	if old, known := h.expected[key]; known && old.before == seen.ResourceVersion || !known && len(h.expected) >= maxExpected {
		return // the first of several writes on one version counts; at the bound, those that are there tell enough
	}
	h.expected[key] = expectation{before: seen.ResourceVersion, at: h.now()}
}

// behind says that the cache does not show yet what the manager wrote a moment ago: a pass on it would decide on, and might tell,
// what is no longer so. After a second it is let through all the same, for a write that changed nothing in the end.
func (h *Health) behind(seen *v1.Database) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	want, known := h.expected[client.ObjectKeyFromObject(seen)]
	return known && want.before == seen.ResourceVersion && h.now().Sub(want.at) < time.Second
}

// Check is the readiness check.
func (h *Health) Check(request *http.Request) error {
	return errors.Join(h.stuck(), h.stale(request.Context()))
}

func (h *Health) stuck() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, began := range h.passes {
		if h.now().Sub(began) > stuckPass {
			return fmt.Errorf("the reconcile of Database %s does not end", key)
		}
	}
	return nil
}

func (h *Health) stale(ctx context.Context) error {
	h.mu.Lock()
	due := map[types.NamespacedName]expectation{}
	for key, want := range h.expected {
		if h.now().Sub(want.at) > staleCache {
			due[key] = want
		}
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var problem error
	for key, want := range due {
		var got v1.Database
		err := h.read.Get(ctx, key, &got)
		if client.IgnoreNotFound(err) != nil {
			problem = fmt.Errorf("the cache does not answer for Database %s: %w", key, err)
			continue
		}
		if err == nil && got.ResourceVersion == want.before {
			problem = fmt.Errorf("the cache does not show a write to Database %s after %s", key, staleCache)
			continue
		}
		h.mu.Lock()
		if h.expected[key] == want {
			delete(h.expected, key)
		}
		h.mu.Unlock()
	}
	return problem
}
