package database

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// shelf is a cache that shows one version of every Database, none, or an error.
type shelf struct {
	client.Reader
	version string
	err     error
	hangs   bool
}

func (s *shelf) Get(ctx context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	obj.SetResourceVersion(s.version)
	return s.err
}

// watched is a Health on a clock that a test moves.
type watched struct {
	*Health
	cache shelf
	now   time.Time
}

func (w *watched) after(d time.Duration) { w.now = w.now.Add(d) }

func versioned(version string) *v1.Database {
	return &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", ResourceVersion: version}}
}

func TestReadiness(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "orders"}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "databases"}, "orders")
	const stale = "the cache does not show a write to Database shop/orders after 1m0s"
	for sentence, row := range map[string]struct {
		happens func(*watched)
		want    string
	}{
		"nothing under way": {happens: func(*watched) {}},
		"a pass that takes as long as it may": {
			happens: func(w *watched) { w.pass(key); w.after(stuckPass) },
		},
		"a pass that does not end": {
			happens: func(w *watched) { w.pass(key); w.after(stuckPass + 1) },
			want:    "the reconcile of Database shop/orders does not end",
		},
		"a long pass that has ended": {
			happens: func(w *watched) { end := w.pass(key); w.after(time.Hour); end() },
		},
		"a later pass of a Database whose long one has ended": {
			happens: func(w *watched) { end := w.pass(key); w.after(time.Hour); end(); w.pass(key) },
		},
		"a write that the cache shows": {
			happens: func(w *watched) { w.wrote(versioned("1")); w.cache.version = "2"; w.after(time.Hour) },
		},
		"a write that the cache has some time for": {
			happens: func(w *watched) { w.wrote(versioned("1")); w.cache.version = "1"; w.after(staleCache) },
		},
		"a write that the cache does not show": {
			happens: func(w *watched) { w.wrote(versioned("1")); w.cache.version = "1"; w.after(staleCache + 1) },
			want:    stale,
		},
		"the first of two writes on one version counts": {
			happens: func(w *watched) {
				w.wrote(versioned("1"))
				w.cache.version = "1"
				w.after(staleCache)
				w.wrote(versioned("1"))
				w.after(1)
			},
			want: stale,
		},
		"a write on a version that the cache has come to is a new one": {
			happens: func(w *watched) {
				w.wrote(versioned("1"))
				w.after(staleCache)
				w.wrote(versioned("2"))
				w.cache.version = "2"
				w.after(staleCache)
			},
		},
		"a Database that is gone": {
			happens: func(w *watched) { w.wrote(versioned("1")); w.cache.err = gone; w.after(time.Hour) },
		},
		"a cache that does not answer": {
			happens: func(w *watched) {
				w.wrote(versioned("1"))
				w.cache.err = errors.New("not started")
				w.after(time.Hour)
			},
			want: "the cache does not answer for Database shop/orders: not started",
		},
		"a cache that hangs": {
			happens: func(w *watched) { w.wrote(versioned("1")); w.cache.hangs = true; w.after(time.Hour) },
			want:    "the cache does not answer for Database shop/orders: context deadline exceeded",
		},
		"a cache that has caught up is no longer asked": {
			happens: func(w *watched) {
				w.wrote(versioned("1"))
				w.after(time.Hour)
				w.cache.version = "2"
				_ = w.stale(context.Background())
				w.cache.version = "1" // what is not expected any more cannot be missed
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := &watched{now: noon()}
			w.Health = NewHealth(&w.cache, func() time.Time { return w.now })
			row.happens(w)
			got := ""
			if err := w.Check(httptest.NewRequest("GET", "/readyz", nil)); err != nil {
				got = err.Error()
			}
			if got != row.want {
				t.Errorf("got  %q\nwant %q", got, row.want)
			}
		})
	}
}

func TestAPassWaitsForItsOwnWriteToShow(t *testing.T) {
	w := &watched{now: noon()}
	w.Health = NewHealth(&w.cache, func() time.Time { return w.now })
	w.wrote(versioned("1"))
	if !w.behind(versioned("1")) {
		t.Error("a pass on what was there before its own write is let through")
	}
	if w.behind(versioned("2")) {
		t.Error("a pass on the newest is held up")
	}
	w.after(time.Second)
	if w.behind(versioned("1")) {
		t.Error("a write that changed nothing holds the Database up for ever")
	}
}

func TestExpectationsAreBounded(t *testing.T) {
	w := &watched{now: noon()}
	w.Health = NewHealth(&w.cache, func() time.Time { return w.now })
	for n := range 2 * maxExpected {
		d := versioned("1")
		d.Name = fmt.Sprintf("d%d", n)
		w.wrote(d)
	}
	if len(w.expected) != maxExpected {
		t.Errorf("%d writes are kept in mind, want %d", len(w.expected), maxExpected)
	}
}
