package query

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// workplace makes a database for a test's statements and gives back a connection to another, from which they are looked at.
func (s *server) workplace(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	control, err := pgx.Connect(t.Context(), s.URL("disable", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close(context.Background()) })
	if _, err := control.Exec(t.Context(), "CREATE DATABASE "+database); err != nil {
		t.Fatal(err)
	}
	return control
}

func TestPgbenchIsCountedAsPgStatStatementsCountsIt(t *testing.T) {
	s := newServer(t)
	l := newLedger(measure(t, s))
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			database := "bench_" + sslmode
			control := s.workplace(t, database)
			s.Pgbench(t, sslmode, database, "-i", "-q")
			l.agree(t, control, database, nil)
			var begun uint64
			for _, run := range []struct {
				script, mode string
				clients      int
			}{
				{"select-only", "simple", 1},
				{"select-only", "extended", 8},
				{"select-only", "prepared", 64},
				{"tpcb-like", "simple", 8},
				{"tpcb-like", "extended", 1},
				{"tpcb-like", "prepared", 8},
			} {
				t.Run(run.script+", "+run.mode, func(t *testing.T) {
					transactions := 640 / run.clients
					s.Pgbench(t, sslmode, database, "-n", "-b", run.script, "-M", run.mode, "-c", strconv.Itoa(run.clients), "-j", "2",
						"-t", strconv.Itoa(transactions))
					but := map[string]tally{}
					if run.script == "tpcb-like" {
						begun += uint64(transactions * run.clients)
						// PostgreSQL 15 counts a prepared BEGIN only the first time: it marks the kept plan as counted.
						but["BEGIN"], but["END"] = tally{Calls: begun}, tally{Calls: begun}
					}
					l.agree(t, control, database, but)
				})
			}
			if lost := l.lost(t); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
		})
	}
}

func TestTheFunctionsOfAServerAreEnough(t *testing.T) {
	s := newServer(t)
	l := newLedger(measureBinary(t, s, Options{BinariesAlone: true}))
	for _, sslmode := range []string{"require", "disable", observed.Local} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			database := "alone_" + sslmode
			control := s.workplace(t, database)
			s.Pgbench(t, sslmode, database, "-i", "-q")
			s.Pgbench(t, sslmode, database, "-n", "-S", "-M", "prepared", "-c", "8", "-t", "100")
			l.agree(t, control, database, nil)
			if lost := l.lost(t); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
		})
	}
}
