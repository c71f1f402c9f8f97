package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// watcher plays the agent of an instance.
type watcher struct {
	net.Conn
	lines chan view.Line
}

// newWatcher listens where an agent does, on a file system of its own, and gives back the next that comes.
func newWatcher(t *testing.T) func() *watcher {
	t.Helper()
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil { // the tests have their mounts for themselves
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/run", unix.MNT_DETACH) })
	if err := os.Mkdir(filepath.Dir(view.Socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", view.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() *watcher {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		w := &watcher{conn, make(chan view.Line, 1024)}
		lines := bufio.NewScanner(conn)
		lines.Buffer(nil, view.MaxLine)
		lines.Scan()
		if diff := cmp.Diff(`{"probe":"v1.2.3"}`, lines.Text()); diff != "" {
			t.Error(diff)
		}
		go func() {
			defer close(w.lines)
			for lines.Scan() {
				var line view.Line
				if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
					t.Error(err)
				}
				w.lines <- line
			}
		}()
		return w
	}
}

func (w *watcher) wants(t *testing.T, want view.Want) {
	t.Helper()
	if err := json.NewEncoder(w).Encode(want); err != nil {
		t.Fatal(err)
	}
}

// line that is like this.
func (w *watcher) line(t *testing.T, what string, like func(view.Line) bool) view.Line {
	t.Helper()
	end := time.After(30 * time.Second)
	for {
		select {
		case line, more := <-w.lines:
			if !more {
				t.Fatalf("the probe has ended the connection before %s", what)
			}
			if like(line) {
				return line
			}
		case <-end:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestWhoWatchesAnInstanceIsShownWhatItDoes(t *testing.T) {
	s := newServer(t, "orders-1", attribute.Container{Pod: "7f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("8b", 32)})
	next := newWatcher(t)
	r := &running{}
	r.set(s.Instance)
	// Nobody else is told of slow and failed statements.
	url := startWith(t, Options{Instances: r.get, Slow: 200 * time.Millisecond, Failed: true, Version: "v1.2.3", agents: []string{"postgres"}})
	w := next()
	await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
	s.Psql(t, "require", "SELECT 1", "SELECT 1/0")
	time.Sleep(3 * tellEvery)
	if len(w.lines) > 0 {
		t.Errorf("nobody watches, and this is sent: %+v", <-w.lines)
	}

	w.wants(t, view.Want{Table: true})
	first := w.line(t, "a table", func(l view.Line) bool { return l.Table != nil }).Table
	s.Psql(t, "require", "SELECT 1", "SELECT 1")
	row := func(table *view.Table, query string) (found view.Row) {
		for _, row := range table.Rows {
			if row.Text == query {
				found = row
			}
		}
		return found
	}
	later := w.line(t, "a table with what was said since", func(l view.Line) bool {
		return l.Table != nil && row(l.Table, "SELECT ?").Calls == row(first, "SELECT ?").Calls+2
	}).Table
	if !later.Began.Equal(first.Began) || !later.At.After(first.At) || later.State != Measured {
		t.Errorf("the first table is of %v since %v, a later one of %v since %v, %s", first.At, first.Began, later.At, later.Began, later.State)
	}
	got := row(later, "SELECT ?")
	var calls uint64
	for _, n := range got.Buckets {
		calls += n
	}
	if got.Role != "primary" || got.User != "postgres" || got.Rows != got.Calls || calls != got.Calls || got.Latency <= 0 || got.Query == "" {
		t.Errorf("%+v, with %d calls in its buckets", got, calls)
	}
	if failed := row(later, "SELECT ? / ?"); failed.Errors["22"] != 1 {
		t.Errorf("%+v", failed)
	}

	w.wants(t, view.Want{Told: true})
	within(t, "a failure to be told", func() bool {
		s.Psql(t, "require", "SELECT 2/0")
		for len(w.lines) > 0 {
			if line := <-w.lines; len(line.Told) > 0 {
				return true
			}
		}
		return false
	})
	s.Psql(t, "require", "SELECT pg_sleep(0.3)")
	told := w.line(t, "a slow statement", func(l view.Line) bool { return len(l.Told) > 0 && l.Told[0].Event == view.EventSlow }).Told[0]
	want := view.Statement{
		Event: view.EventSlow, Instance: "orders-1", Role: "primary", User: "postgres", Database: "postgres", Text: "SELECT pg_sleep(?)", Address: "127.0.0.1", Rows: 1,
	}
	if diff := cmp.Diff(want, told, cmpopts.IgnoreFields(view.Statement{}, "Time", "Query", "Duration", "Queue", "Service", "Transfer")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if told.Duration < 0.3 || told.Duration > 30 || time.Since(told.Time) > time.Minute || told.Query == "" {
		t.Errorf("%+v", told)
	}

	w.wants(t, view.Want{})
	within(t, "nothing to be sent any more", func() bool {
		for len(w.lines) > 0 {
			<-w.lines
		}
		s.Psql(t, "require", "SELECT 3/0")
		time.Sleep(lookEvery + 3*tellEvery)
		return len(w.lines) == 0
	})
	r.set()
	if _, more := <-w.lines; more {
		t.Error("something is sent of an instance that has ended")
	}
}

func TestATableThatIsTooLongKeepsItsSums(t *testing.T) {
	table := view.Table{State: Measured}
	for i := range 2000 {
		row := view.Row{Query: fmt.Sprintf("%016x", i), Text: strings.Repeat("x", 2000), Sums: view.Sums{Calls: uint64(i), Latency: time.Duration(i), Buckets: map[int64]uint64{}}}
		for slot := range 20 {
			row.Buckets[int64(event.Bound(slot))] = 1
		}
		table.Rows = append(table.Rows, row)
	}
	line, err := tableLine(table)
	if err != nil || len(line) >= view.MaxLine {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	var got view.Line
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	whole := 0
	for i, row := range got.Table.Rows {
		if want := 1999 - i; row.Calls != uint64(want) {
			t.Fatalf("row %d has %d calls", i, row.Calls)
		}
		if row.Text != "" && len(row.Buckets) == 20 {
			whole++
		}
	}
	if whole != 500 || got.Table.Rows[whole-1].Text == "" {
		t.Errorf("%d rows are whole", whole)
	}
}
