package names

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLookup(t *testing.T) { synctest.Test(t, lookups) }

func lookups(t *testing.T) {
	var answer atomic.Value
	var hangs atomic.Bool
	answer.Store([]string{"10.0.0.1"})
	b := newBook(func(ctx context.Context, host string) ([]string, error) {
		if hangs.Load() {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(400 * time.Millisecond):
				return nil, errors.New("timed out")
			}
		}
		found, _ := answer.Load().([]string)
		if len(found) == 0 {
			return nil, fmt.Errorf("no such host: %s", host)
		}
		return found, nil
	})
	look := func(what, host string, want ...string) {
		t.Helper()
		began := time.Now()
		got, err := b.Lookup(t.Context(), host)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s (%v, -want +got):\n%s", what, err, diff)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("%s took %s", what, took)
		}
	}
	look("a number", "192.0.2.7", "192.0.2.7")
	look("a name", "one", "10.0.0.1")
	answer.Store([]string{"10.0.0.2"})
	look("a name that moved", "one", "10.0.0.2")
	hangs.Store(true)
	look("a name while DNS hangs", "one", "10.0.0.2")
	look("the same again", "one", "10.0.0.2")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := b.Lookup(short, "two"); err == nil {
		t.Errorf("a name that was never known is %v while DNS hangs", got)
	}
	time.Sleep(500 * time.Millisecond)
	hangs.Store(false)
	answer.Store([]string{})
	look("a name that DNS has forgotten", "one", "10.0.0.2")
	b.Learn("one", "10.0.0.2")
	look("a name whose host says the same", "one", "10.0.0.2")
	b.Learn("one", "10.0.0.3")
	look("a name whose host says otherwise", "one", "10.0.0.3", "10.0.0.2")
	hangs.Store(true)
	b.Learn("three", "10.0.0.5")
	look("a host that only said itself where it is", "three", "10.0.0.5")
	time.Sleep(500 * time.Millisecond) // the question ends
	hangs.Store(false)
	if all := b.All(); all["one"] != "10.0.0.3" || all["three"] != "10.0.0.5" {
		t.Errorf("all that is known is %v", all)
	}
	for i := range 2 * most {
		b.Learn(fmt.Sprintf("host-%d", i), "10.0.0.9")
	}
	if len(b.told) > most {
		t.Errorf("it remembers what %d hosts said, want %d at most", len(b.told), most)
	}
}
