package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/statement"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// program is a client that keeps a log of its errors.
type program struct {
	*pgx.Conn
	failed map[string]uint64
}

func (c *program) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	_, err := c.Exec(t.Context(), text, args...)
	c.note(t, text, err)
}

// note keeps an error of a statement, by its normal form and SQLSTATE.
func (c *program) note(t *testing.T, text string, err error) {
	t.Helper()
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		c.failed[statement.Forms(text)[0].Text+" "+refused.Code]++
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// everything is a program that uses what the protocol offers.
func (c *program) everything(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	c.exec(t, "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE d (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		for n := range 20 {
			c.exec(t, "INSERT INTO t VALUES ($1, $2)", mode, 100*int(mode)+n, "it's")
			c.exec(t, "SELECT v FROM t WHERE id <= $1", mode, 100*int(mode)+n)
		}
		c.exec(t, "INSERT INTO t VALUES ($1, $2)", mode, 100*int(mode), "again") // 23505
		c.exec(t, "SELECT $1::int / 0", mode, 1)                                 // 22012
		c.exec(t, "SELEC 1", mode)                                               // 42601
		c.exec(t, "SELECT missing FROM t", mode)                                 // 42703
	}

	var batch pgx.Batch
	for n := range 700 {
		batch.Queue("INSERT INTO t VALUES ($1, $2)", 10000+n, "batch")
	}
	if err := c.SendBatch(ctx, &batch).Close(); err != nil {
		t.Fatal(err)
	}
	// What comes behind an error of a batch is not executed.
	batch = pgx.Batch{}
	for n := range 100 {
		batch.Queue("UPDATE t SET v = $2 WHERE id = $1 + 0 / ($1 - 10050)", 10000+n, "batch")
	}
	c.note(t, batch.QueuedQueries[0].SQL, c.SendBatch(ctx, &batch).Close())

	var rows [][]any
	for n := range 20000 {
		rows = append(rows, []any{20000 + n, strings.Repeat("x", n%200)})
	}
	if _, err := c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "v"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	_, err := c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "v"}, pgx.CopyFromRows(rows[:10])) // 23505
	c.note(t, `copy "t" ( "id", "v" ) from stdin binary;`, err)
	var out bytes.Buffer
	if _, err := c.PgConn().CopyTo(ctx, &out, "COPY t TO STDOUT"); err != nil {
		t.Fatal(err)
	}

	c.exec(t, "SELECT repeat('x', 300000)")
	c.exec(t, "SELECT id, /* "+strings.Repeat("y", 3900)+" */ v FROM t WHERE id < 3", pgx.QueryExecModeSimpleProtocol)
	c.exec(t, "DO $$ BEGIN RAISE NOTICE 'it''s; a notice'; END $$")
	c.exec(t, "LISTEN c; NOTIFY c, 'p'; SELECT 1; SELECT 2/0; SELECT 3")
	delete(c.failed, "LISTEN c 22012")
	c.failed["SELECT ? / ? 22012"]++
	c.exec(t, "")
	c.exec(t, "CREATE TABLE copy AS SELECT * FROM t WHERE id < 500")
	c.exec(t, "BEGIN; DECLARE k CURSOR FOR SELECT * FROM t; FETCH 10 FROM k; FETCH 5 FROM k; COMMIT")
	c.exec(t, "BEGIN")
	c.exec(t, "INSERT INTO d VALUES (1)")
	c.exec(t, "INSERT INTO d VALUES (1)")
	c.exec(t, "COMMIT") // 23505
	c.exec(t, "SET statement_timeout = '30ms'")
	c.exec(t, "SELECT pg_sleep(5)") // 57014
	c.exec(t, "SELECT pg_sleep($1)", 5)
	c.exec(t, "RESET statement_timeout")
}

func TestClientsAreCountedAsTheyCountThemselves(t *testing.T) {
	s := newServer(t)
	l := newLedger(measure(t, s))
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			database := "app_" + sslmode
			control := s.workplace(t, database)
			conn, err := pgx.Connect(t.Context(), s.URL(sslmode, database))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			c := &program{Conn: conn, failed: map[string]uint64{}}
			c.everything(t)
			// PostgreSQL counts a COMMIT before it finds that it cannot; for the client it failed.
			l.agree(t, control, database, map[string]tally{"COMMIT": {Calls: 1}})
			if _, failed := l.counts(t, database); cmp.Diff(c.failed, failed) != "" {
				t.Errorf("errors by the client's log (-) and as they were counted (+): %s", cmp.Diff(c.failed, failed))
			}
			if lost := l.lost(t); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
		})
	}
}

// A backend that is a client of another server speaks to both; only what its own client says is its own.
func TestABackendThatIsAClientItself(t *testing.T) {
	s := newServer(t)
	l := newLedger(measure(t, s))
	for _, sslmode := range []string{"disable", "require", observed.Local} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			database, other := "outer_"+sslmode, "inner_"+sslmode
			control := s.workplace(t, database)
			s.workplace(t, other)
			conn, err := pgx.Connect(t.Context(), s.URL(sslmode, database))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			if _, err := conn.Exec(t.Context(), "CREATE EXTENSION dblink; SELECT dblink_connect('"+s.URL(sslmode, other)+"')"); err != nil {
				t.Fatal(err)
			}
			for n := range 20 {
				if _, err := conn.Exec(t.Context(), "SELECT * FROM dblink('SELECT g FROM generate_series(1, 3) g') AS t (g int) WHERE g <> $1", n); err != nil {
					t.Fatal(err)
				}
			}
			l.agree(t, control, database, nil)
			l.agree(t, control, other, nil)
			if lost := l.lost(t); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
		})
	}
}

func TestAStatementOfManyReadsIsCountedOnce(t *testing.T) {
	s := newServer(t)
	l := newLedger(measure(t, s))
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			database := "long_" + sslmode
			s.workplace(t, database)
			conn, err := pgx.Connect(t.Context(), s.URL(sslmode, database))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			text := "SELECT length('" + strings.Repeat("y", 50000) + "'), g FROM generate_series(1, 3) g"
			for range 3 {
				if _, err := conn.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			// So much of the text is copied; the fingerprint is of all.
			want := map[string]tally{"SELECT length(?": {3, 9}}
			l.await(t, database, want)
		})
	}
}

func TestPipelinesOfLibpqAreCountedAsPgStatStatementsCountsThem(t *testing.T) {
	s := newServer(t)
	l := newLedger(measure(t, s))
	script := filepath.Join(t.TempDir(), "pipeline.sql")
	text := "\\set n random(1, 1000)\n\\startpipeline\n" + strings.Repeat("SELECT :n;\nSELECT generate_series(1, 3), :n;\n", 100) + "\\endpipeline\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sslmode := range []string{"disable", "require"} {
		for _, mode := range []string{"extended", "prepared"} {
			t.Run(fmt.Sprintf("sslmode %s, %s", sslmode, mode), func(t *testing.T) {
				database := "pipeline_" + sslmode + "_" + mode
				control := s.workplace(t, database)
				s.Pgbench(t, sslmode, database, "-n", "-f", script, "-M", mode, "-c", "4", "-t", "5")
				l.agree(t, control, database, nil)
				got, _ := l.counts(t, database)
				if want := uint64(4 * 5 * 100); got["SELECT ?"].Calls != want {
					t.Errorf("%d calls, want %d", got["SELECT ?"].Calls, want)
				}
			})
		}
	}
	if lost := l.lost(t); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

func TestConnectionsThatWereThereBeforeAreCountedFromTheirSecondStatementOn(t *testing.T) {
	s := newServer(t)
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), s.URL(sslmode, "postgres"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			if _, err := conn.Exec(t.Context(), "SELECT before_it FROM (VALUES (1)) v (before_it)"); err != nil {
				t.Fatal(err)
			}
			l := newLedger(measure(t, s))
			for range 10 {
				if _, err := conn.Exec(t.Context(), "SELECT a FROM generate_series(1, 2) a"); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]tally{"SELECT a FROM generate_series(?) a": {9, 18}}
			l.await(t, "postgres", want)
		})
	}
}

// sealed is a connection over TLS until the test ends.
func (s *server) sealed(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("require", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func TestAProgramThatIsLeftAloneForAWhileIsFollowedAnew(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	l := newLedger(f)
	conn := s.sealed(t)
	three := func() {
		for range 3 {
			if _, err := conn.Exec(t.Context(), "SELECT a FROM generate_series(1, 2) a", pgx.QueryExecModeExec); err != nil {
				t.Fatal(err)
			}
		}
	}
	three()
	id, err := f.AttachBinary(observed.Bin + "postgres") // which it is already
	if err != nil {
		t.Fatal(err)
	}
	if err := f.DetachBinary(id); err != nil {
		t.Fatal(err)
	}
	three()
	if _, err := f.AttachBinary(observed.Bin + "postgres"); err != nil {
		t.Fatal(err)
	}
	three()
	want := map[string]tally{"SELECT a FROM generate_series(?) a": {5, 10}}
	l.await(t, "postgres", want)
}

// Two images may hold the same program in layers of their own: to the kernel these are two files.
func TestTheSameProgramInTwoFilesIsProbedInBoth(t *testing.T) {
	s := newServer(t)
	program, err := os.ReadFile(observed.Bin + "postgres")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "postgres")
	if err := os.WriteFile(other, program, 0o700); err != nil {
		t.Fatal(err)
	}
	f := watching(t, s, Options{BinariesAlone: true})
	ids := map[string]bool{}
	for _, path := range []string{other, observed.Bin + "postgres", other} {
		id, err := f.AttachBinary(path)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		t.Errorf("two files are known as %v", ids)
	}
	s.Psql(t, "require", "SELECT 1")
	if all := called(f, 1); len(all) != 1 || all[0].Calls != 1 {
		t.Errorf("counted %+v", all)
	}
}

func TestAProgramThatIsLeftAloneTakesNothingFromAnother(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	l := newLedger(f)
	conn := s.sealed(t)
	program, err := os.ReadFile(observed.Bin + "postgres")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		other := filepath.Join(t.TempDir(), "postgres")
		if err := os.WriteFile(other, program, 0o700); err != nil {
			t.Fatal(err)
		}
		id, err := f.AttachBinary(other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT a FROM generate_series(1, 2) a", pgx.QueryExecModeExec); err != nil {
			t.Fatal(err)
		}
		if err := f.DetachBinary(id); err != nil {
			t.Fatal(n, err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT a FROM generate_series(1, 2) a", pgx.QueryExecModeExec); err != nil {
			t.Fatal(err)
		}
	}
	l.await(t, "postgres", map[string]tally{"SELECT a FROM generate_series(?) a": {6, 12}})
	if lost := l.lost(t); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}
