package query

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/statement"
)

// tally is what was counted of one normal form.
type tally struct{ Calls, Rows uint64 }

// ledger follows what a family counts in one database.
type ledger struct {
	family *Family
	texts  map[uint64]string
	who    map[uint64]event.Session // each look-up is a system call that bars programs from its CPU
	events []event.Event
}

func newLedger(f *Family) *ledger {
	return &ledger{family: f, texts: map[uint64]string{}, who: map[uint64]event.Session{}}
}

func (l *ledger) read(t *testing.T) {
	t.Helper()
	for _, drain := range []func() (event.Batch, error){l.family.Told, l.family.Read} {
		for more := true; more; {
			batch, err := drain()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range batch.Events {
				if e.Kind == event.Text {
					l.texts[e.Key.Print] = e.Text
				} else {
					l.events = append(l.events, e)
				}
			}
			more = len(batch.Events) == batchMost
		}
	}
}

// name is the normal form of what a key counts.
func (l *ledger) name(k event.Key) string {
	text, ok := l.texts[k.Print]
	forms := statement.Forms(text)
	switch {
	case k.Print == 0:
		return "not known"
	case !ok:
		return "text not seen"
	case int(k.Nth) >= len(forms):
		return "no such statement of " + text
	}
	return forms[k.Nth].Text
}

func (l *ledger) session(t *testing.T, who uint64) event.Session {
	t.Helper()
	if s, ok := l.who[who]; ok {
		return s
	}
	s, known, err := l.family.Session(who)
	if err != nil {
		t.Fatal(err)
	}
	if known {
		l.who[who] = s
	}
	return s
}

// await counts: what was sent is counted a moment after the client has its answer.
func (l *ledger) await(t *testing.T, database string, want map[string]tally) {
	t.Helper()
	var got map[string]tally
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline) && cmp.Diff(want, got) != ""; time.Sleep(20 * time.Millisecond) {
		got, _ = l.counts(t, database)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// counts of statements in a database that succeeded, and of errors by statement and SQLSTATE.
func (l *ledger) counts(t *testing.T, database string) (succeeded map[string]tally, failed map[string]uint64) {
	t.Helper()
	l.read(t)
	succeeded, failed = map[string]tally{}, map[string]uint64{}
	for c := range l.family.Counts() {
		if c.Calls == 0 && c.Rows == 0 || l.session(t, c.Key.Who).Database != database {
			continue
		}
		name := l.name(c.Key)
		if c.Key.State != 0 {
			failed[name+" "+c.Key.State.String()] += c.Calls
			continue
		}
		sum := succeeded[name]
		sum.Calls += c.Calls
		sum.Rows += c.Rows
		succeeded[name] = sum
	}
	return succeeded, failed
}

// statStatements is the same by PostgreSQL itself. The texts that it shows are brought to our normal form.
func statStatements(t *testing.T, control *pgx.Conn, database string) map[string]tally {
	t.Helper()
	rows, err := control.Query(t.Context(), `SELECT query, calls, rows FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE datname = $1 AND toplevel`, database)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]tally{}
	var text string
	var one tally
	if _, err := pgx.ForEachRow(rows, []any{&text, &one.Calls, &one.Rows}, func() error {
		for _, form := range statement.Forms(text) {
			sum := all[form.Text]
			sum.Calls += one.Calls
			sum.Rows += one.Rows
			all[form.Text] = sum
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// agree waits until what was counted in a database is what PostgreSQL counted: a client may have its answer a moment before it is counted.
// What is known better than by PostgreSQL is given as but.
func (l *ledger) agree(t *testing.T, control *pgx.Conn, database string, but map[string]tally) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		want := statStatements(t, control, database)
		maps.Copy(want, but)
		got, _ := l.counts(t, database)
		if diff = cmp.Diff(want, got); diff == "" {
			return
		}
	}
	t.Errorf("pg_stat_statements (-) and what was counted (+) differ:\n%s\nlost: %v", diff, l.lost(t))
}

// lost are the reasons that were met.
func (l *ledger) lost(t *testing.T) map[string]uint64 {
	t.Helper()
	lost, err := l.family.Lost()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(lost, func(_ string, n uint64) bool { return n == 0 })
	return lost
}
