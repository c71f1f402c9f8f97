package database

import (
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// gate keeps whoever comes to it while it is shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{}
	kept chan struct{}
}

func newGate() *gate { return &gate{kept: make(chan struct{}, 1)} }

// close the gate; it is open again at the test's end at the latest.
func (g *gate) close(t *testing.T) {
	g.mu.Lock()
	g.shut = make(chan struct{})
	g.mu.Unlock()
	t.Cleanup(g.open)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return
	}
	select {
	case g.kept <- struct{}{}:
	default:
	}
	<-shut
}

func (g *gate) wait(t *testing.T, what string) {
	t.Helper()
	select {
	case <-g.kept:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited for %s to be held", what)
	}
}

func (w *world) ready() string {
	if err := w.health.Check(httptest.NewRequest(http.MethodGet, "/readyz", nil)); err != nil {
		return err.Error()
	}
	return ""
}

// expects says whether the manager has written to that version, and waits for its cache to show another.
func (w *world) expects(name, version string) bool {
	w.health.mu.Lock()
	defer w.health.mu.Unlock()
	return w.health.expected[types.NamespacedName{Namespace: w.namespace, Name: name}].before == version
}

// green waits for the check to be content again, by a clock that is far ahead.
func (w *world) green() {
	w.Helper()
	w.ahead.Store(int64(time.Hour))
	for deadline := time.Now().Add(20 * time.Second); w.ready() != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("the check stays red: %s", w.ready())
		}
	}
}

// TestReadinessOfAReconcileThatHangs keeps a write of a real pass from ever being answered.
func TestReadinessOfAReconcileThatHangs(t *testing.T) {
	writes := newGate()
	w := newWorldWith(t, &requestLog{hold: func(r *http.Request) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/services/orders-rw") {
			writes.pass()
		}
	}})
	writes.close(t)
	w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	writes.wait(t, "the write of a Service")
	if why := w.ready(); why != "" {
		t.Errorf("red at once: %s", why)
	}
	w.ahead.Store(int64(stuckPass + time.Second))
	if got, want := w.ready(), "the reconcile of Database "+w.namespace+"/orders does not end"; got != want {
		t.Errorf("the check says %q, want %q", got, want)
	}
	writes.open()
	w.green()
	w.until("orders", "the instance, once the write is answered", running)
}

// TestReadinessOfACacheThatHangs lets the manager write, and keeps from it what it wrote.
func TestReadinessOfACacheThatHangs(t *testing.T) {
	watch := newGate()
	w := newWorldWith(t, &requestLog{slow: func(r *http.Request) {
		if r.URL.Query().Get("watch") == "true" && path.Base(r.URL.Path) == "databases" {
			watch.pass()
		}
	}})
	w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	w.until("orders", "one instance", running)
	time.Sleep(time.Second) // what that wrote has arrived
	version := w.get("orders").ResourceVersion
	watch.close(t)
	agent := w.fleet.of("orders-1")
	w.fleet.with(func() { agent.problem = "out of memory" })
	watch.wait(t, "the news of the status")
	for deadline := time.Now().Add(10 * time.Second); !w.expects("orders", version); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the manager expects nothing of the cache")
		}
	}
	if why := w.ready(); why != "" {
		t.Errorf("red at once: %s", why)
	}
	w.ahead.Store(int64(staleCache + 10*time.Second))
	if got, want := w.ready(), "the cache does not show a write to Database "+w.namespace+"/orders after 1m0s"; got != want {
		t.Errorf("the check says %q, want %q", got, want)
	}
	watch.open()
	w.green()
}
