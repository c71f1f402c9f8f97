package database

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// stuckPass is when a reconcile counts as one that does not end. Each of its calls has a time-out well below.
	stuckPass = 3 * time.Minute
	// staleCache is when a cache that does not show our own write counts as stuck.
	staleCache = time.Minute
	// maxExpected bounds the writes that the caches are checked for.
	maxExpected = 1024
)

// Health knows what is under way, for the readiness of the manager: a pass that does not end, and a cache that does not show what
// the manager itself wrote, are both invisible from the outside and would leave every Database alone.
type Health struct {
	now  func() time.Time
	read client.Reader

	mu       sync.Mutex
	passes   map[types.NamespacedName]time.Time
	expected map[expectedKey]expectation
}

type expectedKey struct {
	kind schema.GroupVersionKind
	name types.NamespacedName
}

type expectation struct {
	version uint64
	uid     types.UID
	at      time.Time
}

// NewHealth returns a Health that reads from the manager's cache.
func NewHealth(read client.Reader, now func() time.Time) *Health {
	return &Health{now: now, read: read, passes: map[types.NamespacedName]time.Time{}, expected: map[expectedKey]expectation{}}
}

// pass notes the beginning of a pass and returns what notes its end.
func (h *Health) pass(name types.NamespacedName) func() {
	h.mu.Lock()
	h.passes[name] = h.now()
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		delete(h.passes, name)
		h.mu.Unlock()
	}
}

// wrote notes a write that the cache of its kind should show soon.
func (h *Health) wrote(kind schema.GroupVersionKind, obj client.Object) {
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return // a resource version is the server's own business where it is no number
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := expectedKey{kind, client.ObjectKeyFromObject(obj)}
	if _, known := h.expected[key]; !known && len(h.expected) >= maxExpected {
		return // the ones that are there tell enough
	}
	h.expected[key] = expectation{version: version, uid: obj.GetUID(), at: h.now()}
}

// Check is the readiness check.
func (h *Health) Check(request *http.Request) error {
	return errors.Join(h.stuck(), h.stale(request.Context()))
}

func (h *Health) stuck() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, began := range h.passes {
		if h.now().Sub(began) > stuckPass {
			return fmt.Errorf("the reconcile of Database %s does not end", name)
		}
	}
	return nil
}

func (h *Health) stale(ctx context.Context) error {
	h.mu.Lock()
	due := map[expectedKey]expectation{}
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
		if behind, known := h.behind(ctx, key, want); known && behind {
			problem = fmt.Errorf("the cache of %s does not show a write of %s ago", key.kind.Kind, staleCache)
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

// behind says whether the cache shows an older state than was written. An object that is gone tells nothing.
func (h *Health) behind(ctx context.Context, key expectedKey, want expectation) (behind, known bool) {
	got := &metav1.PartialObjectMetadata{}
	got.SetGroupVersionKind(key.kind)
	if err := h.read.Get(ctx, key.name, got); err != nil || got.UID != want.uid {
		return false, false
	}
	version, err := strconv.ParseUint(got.ResourceVersion, 10, 64)
	if err != nil {
		return false, false
	}
	return version < want.version, true
}
