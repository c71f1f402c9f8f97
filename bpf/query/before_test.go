package query

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// sum of calls by PostgreSQL in a database, and of what was counted; both once neither changes any more.
func (l *ledger) rest(t *testing.T, control *pgx.Conn, database string) (postgres, named, unknown uint64) {
	t.Helper()
	for still := 0; still < 10; time.Sleep(20 * time.Millisecond) {
		before := [3]uint64{postgres, named, unknown}
		postgres, named, unknown = 0, 0, 0
		for _, n := range statStatements(t, control, database) {
			postgres += n.Calls
		}
		succeeded, _ := l.counts(t, database)
		for name, n := range succeeded {
			if name == "not known" {
				unknown += n.Calls
			} else {
				named += n.Calls
			}
		}
		still++
		if before != [3]uint64{postgres, named, unknown} {
			still = 0
		}
	}
	return postgres, named, unknown
}

func TestPgbenchThatHasPreparedItsStatementsBefore(t *testing.T) {
	s := newServer(t)
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			const clients = 4
			database := "before_" + sslmode
			control := s.workplace(t, database)
			s.Pgbench(t, sslmode, database, "-i", "-q")
			cmd := exec.CommandContext(t.Context(), observed.Bin+"pgbench", "-n", "-b", "select-only", "-M", "prepared", "-c", strconv.Itoa(clients), "-T", "60", s.URL(sslmode, database))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
				_ = cmd.Wait() // it was killed
			})
			signal := func(s syscall.Signal) {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			for deadline := time.Now().Add(10 * time.Second); statStatements(t, control, database)["SELECT abalance FROM pgbench_accounts WHERE aid = ?"].Calls < 100; {
				if time.Now().After(deadline) {
					t.Fatal("pgbench does not begin")
				}
			}
			f := measure(t, s) // while pgbench runs
			l := newLedger(f)
			l.awaitMore(t, 100)
			signal(syscall.SIGSTOP)
			postgres, named, unknown := l.rest(t, control, database)
			if named > 0 || unknown == 0 {
				t.Errorf("%d calls of statements that nobody saw prepared have a text, %d have none", named, unknown)
			}
			lost := l.lost(t)
			// The statement that a connection is in the midst of is not followed.
			if lost["unsynced"] > 2*clients || lost["prepared"] < unknown {
				t.Errorf("lost %v", lost)
			}
			delete(lost, "unsynced")
			delete(lost, "prepared")
			if diff := cmp.Diff(map[string]uint64{}, lost); diff != "" {
				t.Errorf("lost: %s", diff)
			}
			// From here on each call is counted; those after Tend by their text, but for the first of each connection.
			if err := f.Tend(); err != nil {
				t.Fatal(err)
			}
			signal(syscall.SIGCONT)
			l.awaitMore(t, 1000)
			signal(syscall.SIGSTOP)
			postgres2, named2, unknown2 := l.rest(t, control, database)
			t.Logf("attached in the midst: %d calls without text; then %d calls by pg_stat_statements, counted %d with their text and %d without",
				unknown, postgres2-postgres, named2-named, unknown2-unknown)
			if got, want := named2+unknown2-named-unknown, postgres2-postgres; got != want {
				t.Errorf("counted %d calls, PostgreSQL %d", got, want)
			}
			if unknown2-unknown != clients {
				t.Errorf("%d calls were counted without their text, want the first of each connection", unknown2-unknown)
			}
			succeeded, _ := l.counts(t, database)
			if got := succeeded["SELECT abalance FROM pgbench_accounts WHERE aid = ?"].Calls; got != named2 {
				t.Errorf("%d calls of %d are of the text that was prepared: %v", got, named2, succeeded)
			}
		})
	}
}

// awaitMore waits until so many more calls have been counted.
func (l *ledger) awaitMore(t *testing.T, calls uint64) {
	t.Helper()
	sum := func() (n uint64) {
		for c := range l.family.Counts() {
			n += c.Calls
		}
		return n
	}
	before := sum()
	for deadline := time.Now().Add(20 * time.Second); sum() < before+calls; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d more calls were counted, want %d; lost %v", sum()-before, calls, l.lost(t))
		}
	}
}

func TestLearningRestsWhenItIsOfNoUse(t *testing.T) {
	var l learner
	var learned int
	for n := range uint64(learnRounds + restRounds) {
		if l.next(n + 1) {
			learned++
		}
	}
	if learned != learnRounds {
		t.Errorf("it learned in %d rounds of %d", learned, learnRounds+restRounds)
	}
	if !l.next(1000) {
		t.Error("it does not begin again")
	}
	if l.next(1000) {
		t.Error("it goes on although nothing is wanted")
	}
}

func TestATextOfAnyLengthIsLearned(t *testing.T) {
	d := newDriven(t)
	ask, answer := asks(bind("", "old"), execute(""), syncs()), says(bound(), done("SELECT 1"), ready())
	for _, size := range []int{1, 254, 255, 256, 257, 510, 511, 5000} {
		d.pid++
		d.say(t, startup()...)
		text := "SELECT " + strings.Repeat("a", size-min(size, len("SELECT ")))
		text = text[:size]
		d.say(t, ask, reports(text), answer, ask, answer)
		var c kernelConn
		if err := d.family.kernel.Conns.Lookup(d.pid, &c); err != nil {
			t.Fatal(err)
		}
		if want := d.print(t, text); c.Subject != want {
			t.Errorf("%d bytes: learned print %x, want %x", size, c.Subject, want)
		}
	}
	d.read(t)
	if len(d.texts) != 8 {
		t.Errorf("%d texts were sent", len(d.texts))
	}
}

func TestWhoSpeaksOnAConnectionThatWasThereBefore(t *testing.T) {
	for sentence, row := range map[string]struct {
		settings       []string
		user, database string
		local          bool
		want           event.Session
	}{
		"by the network":             {user: "ada", database: "shop", want: event.Session{User: "ada", Database: "shop"}},
		"by a socket":                {user: "ada", database: "shop", local: true, want: event.Session{User: "ada", Database: "shop"}},
		"of a cluster with a name":   {settings: []string{"cluster_name=main"}, user: "ada", database: "shop", want: event.Session{User: "ada", Database: "shop"}},
		"without titles of activity": {settings: []string{"update_process_title=off"}, user: "ada", database: "shop", want: event.Session{User: "ada", Database: "shop"}},
		"a name with a space":        {user: "ada l", database: "shop"},
		"the longest names": {
			user: strings.Repeat("u", 63), database: strings.Repeat("d", 63), want: event.Session{User: strings.Repeat("u", 63), Database: strings.Repeat("d", 63)},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newServer(t, row.settings...)
			s.Psql(t, "disable", `CREATE USER "`+row.user+`"`, "CREATE DATABASE "+row.database)
			config, err := pgx.ParseConfig(s.URL("disable", row.database))
			if err != nil {
				t.Fatal(err)
			}
			config.User = row.user
			if row.local {
				config.Host = s.Dir
			}
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			f := measure(t, s)
			for range 2 {
				if _, err := conn.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			all := called(f, 1)
			if len(all) != 1 || newLedger(f).session(t, all[0].Key.Who) != row.want {
				t.Errorf("counted %+v, want %+v", all, row.want)
			}
		})
	}
}
