package query

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// tells begins to measure another container, of which this is told.
func (d *driven) tells(t *testing.T, of Target) {
	t.Helper()
	d.container(t)
	of.Cgroup, of.Port = d.cgroup, 5432
	if err := d.family.Watch(of); err != nil {
		t.Fatal(err)
	}
}

// toldTexts are the texts of what was told, in order.
func (d *driven) toldTexts(t *testing.T) (all []string) {
	t.Helper()
	d.events = nil
	d.read(t)
	for _, e := range d.events {
		all = append(all, e.Text)
	}
	return all
}

func TestLiteralsAreToldOfWhatAskedForThemAlone(t *testing.T) {
	d := newDriven(t)
	fails := says(failure("22012"))
	for sentence, row := range map[string]struct {
		pieces []piece
		want   []string
		lost   uint64 // literals
	}{
		"a simple query": {
			pieces: []piece{asks(query("SELECT 1/0, 'secret'")), fails, says(ready())},
			want:   []string{"SELECT 1/0, 'secret'"},
		},
		"a text that is known by its bytes": {
			pieces: slices.Repeat([]piece{asks(query("SELECT a FROM t")), fails, says(ready())}, 3),
			want:   []string{"SELECT a FROM t", "SELECT a FROM t", "SELECT a FROM t"},
		},
		"the extended protocol, all at once": {
			pieces: []piece{asks(parse("", "SELECT 1/$1, 'secret'"), bind("", ""), describe(""), execute(""), syncs()), says(parsed(), bound(), failure("22012")), says(ready())},
			want:   []string{"SELECT 1/$1, 'secret'"},
		},
		"the extended protocol, of a text that is known by its bytes": {
			pieces: slices.Repeat([]piece{asks(parse("", "SELECT a/$1"), bind("", ""), execute(""), syncs()), says(parsed(), bound(), failure("22012")), says(ready())}, 2),
			want:   []string{"SELECT a/$1", "SELECT a/$1"},
		},
		"a portal with a name": {
			pieces: []piece{asks(parse("s", "SELECT 1/$1"), bind("p", "s"), execute("p"), syncs()), says(parsed(), bound(), failure("22012")), says(ready())},
			want:   []string{"SELECT 1/$1"},
		},
		"a statement that cannot be prepared": {
			pieces: []piece{asks(parse("", "SELEC 'secret'"), bind("", ""), execute(""), syncs()), says(failure("42601")), says(ready())},
			want:   []string{"SELEC 'secret'"},
		},
		"a prepared statement, behind another text": {
			pieces: []piece{
				asks(parse("s", "SELECT 1/$1"), syncs()), says(parsed(), ready()), asks(query("SELECT 5")), says(done("SELECT 1"), ready()),
				asks(bind("", "s"), execute(""), syncs()), says(bound(), failure("22012")), says(ready()),
			},
			want: []string{""}, lost: 1,
		},
		"two texts of one form under way at once": {
			pieces: []piece{asks(query("SELECT 1/0"), query("SELECT 2/0")), fails, says(ready()), fails, says(ready())},
			want:   []string{"", "SELECT 2/0"}, lost: 1,
		},
		"the portal of another statement": {
			pieces: []piece{
				asks(parse("a", "SELECT 1/$1"), bind("a", "a"), parse("b", "SELECT 2/$1"), bind("b", "b"), execute("a"), syncs()),
				says(parsed(), bound(), parsed(), bound(), failure("22012")), says(ready()),
			},
			want: []string{""},
		},
		"a text in pieces": {
			pieces: func() []piece {
				ask := asks(query("SELECT 1/0, '" + strings.Repeat("x", 600) + "'"))
				return []piece{{what: read, bytes: ask.bytes[:5]}, {what: read, bytes: ask.bytes[5:300]}, {what: read, bytes: ask.bytes[300:]}, fails, says(ready())}
			}(),
			want: []string{"SELECT 1/0, '" + strings.Repeat("x", 600) + "'"},
		},
		"a text that begins in a read of its own": {
			pieces: func() []piece {
				ask := asks(query("SELECT 1/0"))
				return []piece{{what: read, bytes: ask.bytes[:5]}, {what: read, bytes: ask.bytes[5:]}, fails, says(ready())}
			}(),
			want: []string{"SELECT 1/0"},
		},
		"a text that is too long": {
			pieces: []piece{asks(query("SELECT 1/0, '" + strings.Repeat("x", 5000) + "'")), fails, says(ready())},
			want:   []string{("SELECT 1/0, '" + strings.Repeat("x", 5000))[:4096]},
		},
		"copy data that overwrite the server's buffer": {
			pieces: []piece{
				asks(query("COPY t FROM STDIN")), says(&pgproto3.CopyInResponse{}), asks(&pgproto3.CopyData{Data: bytes.Repeat([]byte("y"), 100)}, &pgproto3.CopyDone{}),
				says(failure("22P04")), says(ready()),
			},
			want: []string{"COPY t FROM STDIN"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			for literals, want := range map[bool][]string{true: row.want, false: make([]string, len(row.want))} {
				before := d.lost(t)
				d.tells(t, Target{Failed: true, Literals: literals})
				d.say(t, startup()...)
				d.say(t, row.pieces...)
				if diff := cmp.Diff(want, d.toldTexts(t)); diff != "" {
					t.Errorf("literals %v: -want +got\n%s", literals, diff)
				}
				for _, e := range d.events {
					if cut := e.Whole > len(e.Text); cut != (len(e.Text) == 4096) {
						t.Errorf("a text of %d bytes is said to be of %d", len(e.Text), e.Whole)
					}
				}
				lost := maps.Clone(before)
				if literals {
					lost["literals"] += row.lost
				}
				maps.DeleteFunc(lost, func(_ string, n uint64) bool { return n == 0 })
				if diff := cmp.Diff(lost, d.lost(t)); diff != "" {
					t.Errorf("literals %v: lost %s", literals, diff)
				}
				d.say(t, piece{what: exit})
				if n := entries(t, d.family.kernel.Literals); n > 0 {
					t.Errorf("%d texts are kept when the process has ended", n)
				}
			}
		})
	}
}

func TestLiteralsThatAreAskedForNoMoreAreNotTold(t *testing.T) {
	d := newDriven(t)
	d.tells(t, Target{Failed: true, Literals: true})
	d.say(t, startup()...)
	d.say(t, asks(query("SELECT 1/0")), says(failure("22012")), says(ready()))
	// A real connection looks at its container when it next reads; here a new one stands for it.
	if err := d.family.Watch(Target{Cgroup: d.cgroup, Port: 5432, Failed: true}); err != nil {
		t.Fatal(err)
	}
	d.pid++
	d.say(t, startup()...)
	d.say(t, asks(query("SELECT 2/0")), says(failure("22012")), says(ready()))
	if diff := cmp.Diff([]string{"SELECT 1/0", ""}, d.toldTexts(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAStormOfErrorsIsCountedWholeAndToldInPart(t *testing.T) {
	d := newDriven(t)
	d.tells(t, Target{Failed: true, SlowNS: uint64(time.Second)})
	d.say(t, startup()...)
	ask, fails := asks(query("SELECT 1/0")), says(failure("22012"), ready())
	ask.after, fails.after = 0, 0
	storm := func(n int) {
		for range n {
			d.say(t, ask, fails)
		}
	}
	told := func(kind event.Kind) (n int) {
		d.events = nil
		d.read(t)
		for _, e := range d.events {
			if e.Kind == kind {
				n++
			}
		}
		return n
	}
	storm(5000)
	if n := told(event.Failed); n != 1000 {
		t.Errorf("%d were told at once, want 1000", n)
	}
	// A statement that is slow is told all the same, and so is what fails in another container.
	slow := says(done("SELECT 1"), ready())
	slow.after = time.Second
	d.say(t, asks(query("SELECT a")), slow)
	if n := told(event.Slow); n != 1 {
		t.Errorf("%d slow statements were told, want 1", n)
	}
	// A second later there is room again; half a second after that, for half as many.
	d.now += time.Second
	storm(2000)
	d.now += 500 * time.Millisecond
	storm(2000)
	if n := told(event.Failed); n != 1500 {
		t.Errorf("%d were told in 1.5 s, want 1500", n)
	}
	_, failed := d.counts(t, "shop")
	if diff := cmp.Diff(map[string]uint64{"SELECT ? / ? 22012": 9000}, failed); diff != "" {
		t.Errorf("counted: %s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"suppressed": 9000 - 2500}, d.lost(t)); diff != "" {
		t.Errorf("lost: %s", diff)
	}
	d.pid++
	d.tells(t, Target{Failed: true})
	d.say(t, startup()...)
	storm(10)
	if n := told(event.Failed); n != 10 {
		t.Errorf("of another container %d were told, want 10", n)
	}
}

func TestWhatFindsNoRoomInItsRingIsCounted(t *testing.T) {
	d := newDriven(t)
	d.tells(t, Target{Failed: true, Literals: true})
	d.say(t, startup()...)
	const most = 1000
	for n := range most {
		d.say(t, asks(query(fmt.Sprintf("SELECT %d, '%s'", n, strings.Repeat("x", 3000)))), says(failure("22012")), says(ready()))
	}
	d.read(t)
	lost := d.lost(t)
	if n := uint64(len(d.events)); lost["records"] == 0 || n+lost["records"] != most {
		t.Errorf("%d were told, and lost %v, of %d", n, lost, most)
	}
}

// TestSlowAndFailedStatementsOfARealServer holds each connection to what its client knows of itself.
func TestSlowAndFailedStatementsOfARealServer(t *testing.T) {
	s := newServer(t)
	for name, load := range map[string]func(*testing.T) *Family{
		"system calls and functions": func(t *testing.T) *Family { return measure(t, s) },
		"functions alone":            func(t *testing.T) *Family { return measureBinary(t, s, Options{BinariesAlone: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(load(t))
			for _, literals := range []bool{false, true} {
				of := Target{Cgroup: s.cgroup, Port: uint16(s.Port), SlowNS: uint64(50 * time.Millisecond), Failed: true, Literals: literals}
				if err := l.family.Watch(of); err != nil {
					t.Fatal(err)
				}
				for _, sslmode := range []string{"require", "disable", observed.Local} {
					l.events = nil
					s.tellsWhatItsClientKnows(t, l, sslmode, literals)
				}
			}
		})
	}
}

func (s *server) tellsWhatItsClientKnows(t *testing.T, l *ledger, sslmode string, literals bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(sslmode, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	exec := func(mode pgx.QueryExecMode, text string, args ...any) {
		if _, err := conn.Exec(t.Context(), text, append([]any{mode}, args...)...); err != nil && !strings.Contains(err.Error(), "22012") {
			t.Fatal(err)
		}
	}
	exec(pgx.QueryExecModeSimpleProtocol, "SELECT 41")
	exec(pgx.QueryExecModeSimpleProtocol, "SELECT 'secret', pg_sleep(0.1)")
	exec(pgx.QueryExecModeSimpleProtocol, "SELECT 'secret', 1/0")
	exec(pgx.QueryExecModeExec, "SELECT 'secret', 1/$1::int", 0)
	exec(pgx.QueryExecModeExec, "SELECT pg_sleep($1), generate_series(1, 3)", 0.1)
	for deadline := time.Now().Add(10 * time.Second); len(l.events) < 4 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		l.read(t)
		// On a busy machine the first one may be slow, too.
		l.events = slices.DeleteFunc(l.events, func(e event.Event) bool { return l.name(e.Key) == "SELECT ?" })
	}
	// Of what is known of them, what a test can know.
	type told struct {
		Kind        event.Kind
		State, Name string
		Text        string
		Rows        uint64
		Client      string
		Local       bool
		Session     event.Session
	}
	client, local := "", sslmode == observed.Local
	if !local {
		client = conn.PgConn().Conn().LocalAddr().String()
	}
	text := func(s string) string {
		if literals {
			return s
		}
		return ""
	}
	who := event.Session{User: "postgres", Database: "postgres"}
	want := []told{
		{event.Slow, "00000", "SELECT ?, pg_sleep(?)", text("SELECT 'secret', pg_sleep(0.1)"), 1, client, local, who},
		{event.Failed, "22012", "SELECT ?, ? / ?", text("SELECT 'secret', 1/0"), 0, client, local, who},
		{event.Failed, "22012", "SELECT ?, ? / ?::int", text("SELECT 'secret', 1/$1::int"), 0, client, local, who},
		{event.Slow, "00000", "SELECT pg_sleep(?), generate_series(?)", text("SELECT pg_sleep($1), generate_series(1, 3)"), 3, client, local, who},
	}
	var got []told
	for _, e := range l.events {
		one := told{Kind: e.Kind, State: e.Key.State.String(), Name: l.name(e.Key), Text: e.Text, Rows: e.Rows, Local: e.Local, Session: l.session(t, e.Key.Who)}
		if e.Client != (netip.AddrPort{}) {
			one.Client = e.Client.String()
		}
		got = append(got, one)
		if e.Latency != e.Queue+e.Service+e.Transfer || e.Kind == event.Slow && (e.Latency < 100*time.Millisecond || e.Service < 50*time.Millisecond) {
			t.Errorf("%s took %v: %v, %v and %v", l.name(e.Key), e.Latency, e.Queue, e.Service, e.Transfer)
		}
		if e.BytesIn == 0 || e.BytesOut == 0 || e.PID == 0 || e.PID == uint32(os.Getpid()) {
			t.Errorf("%+v", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sslmode %s, literals %v: -want +got\n%s\nlost %v", sslmode, literals, diff, l.lost(t))
	}
}
