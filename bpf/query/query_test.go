package query

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// called waits for so many calls and gives back all keys that have some: a client may have its answer a moment before it is counted.
func called(f *Family, calls uint64) (all []event.Counts) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all = nil
		var sum uint64
		for c := range f.Counts() {
			if c.Calls > 0 {
				all = append(all, c)
				sum += c.Calls
			}
		}
		if sum >= calls || time.Now().After(deadline) {
			return all
		}
	}
}

func TestAStatementOfPsqlIsSeenWithItsTextLatencyAndRows(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	for i, sslmode := range []string{"require", "disable", observed.Local} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			text := "SELECT i, pg_sleep(0.05) FROM generate_series(1, 3) i -- " + sslmode
			s.Psql(t, sslmode, text)
			batch, err := f.Read()
			if err != nil {
				t.Fatal(err)
			}
			var print uint64
			for _, e := range batch.Events {
				if e.Kind == event.Text && e.Text == text {
					print = e.Key.Print
				}
			}
			if print == 0 && sslmode == "require" {
				t.Fatalf("no event has the text: %+v; lost %v", batch.Events, newLedger(f).lost(t))
			}
			n := uint64(i + 1)
			all := called(f, n)
			if len(all) != 1 {
				t.Fatalf("counted %d keys: %+v; lost %v", len(all), all, newLedger(f).lost(t))
			}
			c := all[0]
			if c.Calls != n || c.Rows != 3*n {
				t.Errorf("%d calls and %d rows, want %d and %d", c.Calls, c.Rows, n, 3*n)
			}
			if p := c.Quantile(0.5); p < 130*time.Millisecond || p > 5*time.Second {
				t.Errorf("latency %v, want more than 150 ms", p)
			}
			who, known, err := f.Session(c.Key.Who)
			if err != nil || !known {
				t.Fatalf("nobody knows who spoke: %v", err)
			}
			if diff := cmp.Diff(event.Session{User: "postgres", Database: "postgres"}, who); diff != "" {
				t.Error(diff)
			}
		})
	}
}
