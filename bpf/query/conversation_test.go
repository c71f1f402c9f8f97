package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"
)

// conversation is what client and server say after the startup, and what of it is to be counted.
type conversation struct {
	pieces    []piece
	succeeded map[string]tally
	failed    map[string]uint64
	lost      map[string]uint64
}

func repeat[T any](n int, some ...T) []T { return slices.Repeat(some, n) }

func conversations() map[string]conversation {
	one := map[string]tally{"SELECT ?": {1, 1}}
	copied := map[string]tally{"COPY t FROM STDIN": {1, 2}, "SELECT ?": {1, 1}}
	return map[string]conversation{
		"a simple query": {
			pieces:    []piece{asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready())},
			succeeded: one,
		},
		"rows in many writes": {
			pieces: []piece{
				asks(query("SELECT a FROM t")), says(&pgproto3.RowDescription{}, row("1"), row("2", "two")), says(row("3")), says(done("SELECT 3"), ready()),
			},
			succeeded: map[string]tally{"SELECT a FROM t": {1, 3}},
		},
		"statements of one text, of which the third fails": {
			pieces: []piece{
				asks(query("INSERT INTO t VALUES (1); /* ; */ UPDATE t SET a = ';'; SELECT 1/0; SELECT 4")),
				says(done("INSERT 0 1"), done("UPDATE 12"), failure("22012")), says(ready()),
			},
			succeeded: map[string]tally{"INSERT INTO t VALUES (?)": {1, 1}, "UPDATE t SET a = ?": {1, 12}},
			failed:    map[string]uint64{"SELECT ? / ? 22012": 1},
		},
		"a text that cannot be parsed": {
			pieces: []piece{asks(query("SELEC 1")), says(failure("42601")), says(ready())},
			failed: map[string]uint64{"SELEC ? 42601": 1},
		},
		"an empty text": {
			pieces: []piece{asks(query("")), says(&pgproto3.EmptyQueryResponse{}, ready()), asks(query(" ;")), says(&pgproto3.EmptyQueryResponse{}, ready())},
		},
		"messages that are no answer": {
			pieces: []piece{
				asks(query("SELECT 1")), says(&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: "C"}, row("1"), done("SELECT 1"),
					&pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, ready()), says(&pgproto3.NotificationResponse{PID: 1, Channel: "c", Payload: "p"}),
			},
			succeeded: one,
		},
		"the extended protocol, all at once": {
			pieces: []piece{
				asks(parse("", "SELECT $1"), bind("", ""), describe(""), execute(""), syncs()),
				says(parsed(), bound(), noData(), row("42"), done("SELECT 1"), ready()),
			},
			succeeded: one,
		},
		"a prepared statement, many times": {
			pieces: slices.Concat(
				[]piece{asks(parse("s1", "SELECT $1"), &pgproto3.Describe{ObjectType: 'S', Name: "s1"}, syncs()), says(parsed(), &pgproto3.ParameterDescription{}, noData(), ready())},
				repeat(5, asks(bind("", "s1"), execute(""), syncs()), says(bound(), row("42"), done("SELECT 1"), ready())),
			),
			succeeded: map[string]tally{"SELECT ?": {5, 5}},
		},
		"a name that is given anew": {
			pieces: []piece{
				asks(parse("s1", "SELECT $1"), syncs()), says(parsed(), ready()),
				asks(&pgproto3.Close{ObjectType: 'S', Name: "s1"}, parse("s1", "SELECT $1, 2"), bind("p1", "s1"), execute("p1"), syncs()),
				says(&pgproto3.CloseComplete{}, parsed(), bound(), row("42", "2"), done("SELECT 1"), ready()),
			},
			succeeded: map[string]tally{"SELECT ?, ?": {1, 1}},
		},
		"a statement that was prepared before": {
			pieces:    []piece{asks(bind("", "old"), execute(""), syncs()), says(bound(), done("SELECT 3"), ready())},
			succeeded: map[string]tally{"not known": {1, 3}},
			lost:      map[string]uint64{"prepared": 1},
		},
		"a statement that was prepared before, whose text the server reports": {
			pieces: []piece{
				asks(parse("", "SELECT a"), bind("", "old"), describe(""), execute(""), syncs()), reports("SELECT a"), reports("SELECT $1 FROM t"), says(parsed(), bound(), noData(), done("SELECT 3"), ready()),
				asks(bind("", "old"), execute(""), syncs()), reports("not wanted"), says(bound(), done("SELECT 4"), ready()),
			},
			succeeded: map[string]tally{"not known": {1, 3}, "SELECT ? FROM t": {1, 4}},
			lost:      map[string]uint64{"prepared": 1},
		},
		"a statement that was prepared before, behind an error": {
			pieces: []piece{
				asks(parse("", "SELEC"), bind("", "old"), execute(""), syncs(), query("SELECT a")), reports("SELEC"), says(failure("42601")), says(ready()), reports("SELECT a"), says(done("SELECT 1"), ready()),
				asks(bind("", "old"), execute(""), syncs()), says(bound(), done("SELECT 4"), ready()),
			},
			succeeded: map[string]tally{"not known": {1, 4}, "SELECT a": {1, 1}},
			failed:    map[string]uint64{"SELEC 42601": 1},
			lost:      map[string]uint64{"prepared": 2},
		},
		"a pipeline deeper than the FIFO": {
			pieces: []piece{
				asks(append(append([]pgproto3.FrontendMessage{parse("s1", "INSERT INTO t VALUES ($1)")}, repeat(100, bind("", "s1"), execute(""))...), syncs())...),
				says(append(append([]pgproto3.BackendMessage{parsed()}, repeat(100, bound(), done("INSERT 0 1"))...), ready())...),
			},
			succeeded: map[string]tally{"INSERT INTO t VALUES (?)": {100, 100}},
		},
		"a pipeline of different statements": {
			pieces: []piece{
				asks(parse("", "SELECT $1"), bind("", ""), execute(""), parse("", "UPDATE t SET a = $1"), bind("", ""), execute(""), syncs(), query("SELECT 1")),
				says(parsed(), bound(), row("42"), done("SELECT 1"), parsed(), bound(), done("UPDATE 7"), ready(), row("1"), done("SELECT 1"), ready()),
			},
			succeeded: map[string]tally{"SELECT ?": {2, 2}, "UPDATE t SET a = ?": {1, 7}},
		},
		"an error in a pipeline, whose rest is passed over": {
			pieces: []piece{
				asks(parse("s1", "INSERT INTO t VALUES ($1)"), bind("", "s1"), execute(""), bind("", "s1"), execute(""), bind("", "s1"), execute("")),
				says(parsed(), bound(), done("INSERT 0 1"), bound(), failure("23505")),
				asks(bind("", "s1"), execute(""), syncs(), bind("", "s1"), execute(""), syncs()),
				says(ready()), says(bound(), done("INSERT 0 1"), ready()),
			},
			succeeded: map[string]tally{"INSERT INTO t VALUES (?)": {2, 2}},
			failed:    map[string]uint64{"INSERT INTO t VALUES (?) 23505": 1},
		},
		"a name that is given while the server passes over": {
			pieces: []piece{
				asks(parse("s1", "SELECT $1"), syncs()), says(parsed(), ready()),
				asks(bind("", "s1"), execute("")), says(bound(), failure("22012")),
				asks(parse("s1", "UPDATE t SET a = $1"), query("SELECT 1"), syncs()), says(ready()),
				asks(bind("", "s1"), execute(""), syncs()), says(bound(), row("42"), done("SELECT 1"), ready()),
			},
			succeeded: one,
			failed:    map[string]uint64{"SELECT ? 22012": 1},
		},
		"an error in a pipeline deeper than the FIFO": {
			pieces: []piece{
				asks(append(append([]pgproto3.FrontendMessage{parse("s1", "INSERT INTO t VALUES ($1)")}, repeat(50, bind("", "s1"), execute(""))...),
					syncs(), bind("", "s1"), execute(""), syncs())...),
				says(append(append([]pgproto3.BackendMessage{parsed()}, repeat(20, bound(), done("INSERT 0 1"))...), bound(), failure("23505"))...),
				says(ready()), says(bound(), done("INSERT 0 1"), ready()),
			},
			succeeded: map[string]tally{"INSERT INTO t VALUES (?)": {21, 21}},
			failed:    map[string]uint64{"INSERT INTO t VALUES (?) 23505": 1},
		},
		"a statement that cannot be prepared": {
			pieces: []piece{
				asks(parse("s1", "SELEC 1"), &pgproto3.Describe{ObjectType: 'S', Name: "s1"}, syncs()), says(failure("42601")), says(ready()),
				asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: one,
			failed:    map[string]uint64{"SELEC ? 42601": 1},
		},
		"the first of two that are prepared at once fails": {
			pieces: []piece{asks(parse("s1", "SELEC 1"), parse("s2", "SELECT $1"), syncs()), says(failure("42601")), says(ready())},
			failed: map[string]uint64{"SELEC ? 42601": 1},
		},
		"parameters that cannot be bound": {
			pieces: []piece{
				asks(parse("s1", "SELECT $1"), syncs()), says(parsed(), ready()),
				asks(bind("", "s1"), &pgproto3.Flush{}), says(failure("22P02")), asks(query("SELECT 1"), execute(""), syncs()), says(ready()),
				asks(bind("", "s1"), execute(""), syncs()), says(failure("22P02")), says(ready()),
				asks(query("UPDATE t SET a = 1")), says(done("UPDATE 3"), ready()),
			},
			succeeded: map[string]tally{"UPDATE t SET a = ?": {1, 3}},
			failed:    map[string]uint64{"SELECT ? 22P02": 2},
		},
		"a commit that fails at Sync": {
			pieces: []piece{
				asks(parse("", "INSERT INTO t VALUES ($1)"), bind("", ""), execute(""), syncs()),
				says(parsed(), bound(), done("INSERT 0 1"), failure("23503")), says(ready()),
			},
			succeeded: map[string]tally{"INSERT INTO t VALUES (?)": {1, 1}},
			failed:    map[string]uint64{"INSERT INTO t VALUES (?) 23503": 1},
		},
		"rows that are fetched in parts": {
			pieces: []piece{
				asks(parse("", "SELECT $1"), bind("c1", ""), &pgproto3.Execute{Portal: "c1", MaxRows: 2}, &pgproto3.Flush{}),
				says(parsed(), bound(), row("1"), row("2"), &pgproto3.PortalSuspended{}),
				asks(&pgproto3.Execute{Portal: "c1", MaxRows: 2}, syncs()), says(row("3"), done("SELECT 1"), ready()),
			},
			succeeded: map[string]tally{"SELECT ?": {1, 3}},
		},
		"as many rows as were asked for, and no more": {
			pieces: slices.Concat(
				[]piece{asks(parse("s1", "SELECT $1"), syncs()), says(parsed(), ready())},
				repeat(3, asks(bind("", "s1"), &pgproto3.Execute{MaxRows: 1}, syncs()), says(bound(), row("1"), &pgproto3.PortalSuspended{}, ready())),
				[]piece{
					asks(parse("", "SELECT $1, 2"), bind("", ""), &pgproto3.Execute{MaxRows: 1}, syncs()),
					says(parsed(), bound(), row("1", "2"), &pgproto3.PortalSuspended{}, ready()),
				},
			),
			succeeded: map[string]tally{"SELECT ?": {3, 3}, "SELECT ?, ?": {1, 1}},
		},
		"rows that are fetched in parts, by a statement that was prepared before": {
			pieces: []piece{
				asks(bind("c1", "old"), &pgproto3.Execute{Portal: "c1", MaxRows: 2}, &pgproto3.Flush{}), says(bound(), row("1"), row("2"), &pgproto3.PortalSuspended{}),
				asks(&pgproto3.Execute{Portal: "c1", MaxRows: 2}, syncs()), says(row("3"), done("SELECT 1"), ready()),
			},
			succeeded: map[string]tally{"not known": {1, 3}},
			lost:      map[string]uint64{"prepared": 1},
		},
		"rows that are fetched in parts, of which the second fails": {
			pieces: []piece{
				asks(parse("", "SELECT $1"), bind("", ""), &pgproto3.Execute{MaxRows: 1}, &pgproto3.Flush{}), says(parsed(), bound(), row("1"), &pgproto3.PortalSuspended{}),
				asks(&pgproto3.Execute{MaxRows: 1}, syncs()), says(failure("22012")), says(ready()),
			},
			succeeded: one,
			failed:    map[string]uint64{"SELECT ? 22012": 1},
		},
		"COPY to the server": {
			pieces: []piece{
				asks(query("COPY t FROM STDIN")), says(&pgproto3.CopyInResponse{}), asks(&pgproto3.CopyData{Data: []byte("1\n2\n")}, &pgproto3.CopyDone{}),
				says(done("COPY 2"), ready()), asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: copied,
		},
		"COPY to the server, prepared, with a Sync that it passes over": {
			pieces: []piece{
				asks(parse("", "COPY t FROM STDIN"), bind("", ""), execute(""), syncs()), says(parsed(), bound(), &pgproto3.CopyInResponse{}),
				asks(&pgproto3.CopyData{Data: []byte("1\n")}, &pgproto3.CopyData{Data: []byte("2\n")}, &pgproto3.CopyDone{}, syncs()),
				says(done("COPY 2"), ready()), asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: copied,
		},
		"COPY to the server, all at once": {
			pieces: []piece{
				asks(parse("", "COPY t FROM STDIN"), bind("", ""), execute(""), syncs(), &pgproto3.CopyData{Data: []byte("1\n2\n")}, &pgproto3.CopyDone{}, syncs(), query("SELECT 1")),
				says(parsed(), bound(), &pgproto3.CopyInResponse{}, done("COPY 2"), ready(), row("1"), done("SELECT 1"), ready()),
			},
			succeeded: copied,
		},
		"COPY to the server, with a Sync among its data": {
			pieces: []piece{
				asks(query("COPY t FROM STDIN")), says(&pgproto3.CopyInResponse{}),
				asks(&pgproto3.CopyData{Data: []byte("1\n")}, syncs(), &pgproto3.CopyData{Data: []byte("2\n")}, &pgproto3.CopyDone{}), says(done("COPY 2"), ready()),
				asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: copied,
		},
		"COPY to the server that the client ends": {
			pieces: []piece{
				asks(query("COPY t FROM STDIN")), says(&pgproto3.CopyInResponse{}), asks(&pgproto3.CopyData{Data: []byte("1\n2\n")}, &pgproto3.CopyFail{Message: "no"}),
				says(failure("57014")), says(ready()),
			},
			failed: map[string]uint64{"COPY t FROM STDIN 57014": 1},
		},
		"COPY to the server that the server ends, while the client goes on": {
			pieces: []piece{
				asks(query("COPY t FROM STDIN")), says(&pgproto3.CopyInResponse{}), asks(&pgproto3.CopyData{Data: []byte("x\n")}), says(failure("22P02")), says(ready()),
				asks(&pgproto3.CopyData{Data: []byte("2\n")}, &pgproto3.CopyDone{}), asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: one,
			failed:    map[string]uint64{"COPY t FROM STDIN 22P02": 1},
		},
		"COPY from the server": {
			pieces: []piece{
				asks(query("COPY t TO STDOUT")), says(&pgproto3.CopyOutResponse{}, &pgproto3.CopyData{Data: []byte("C\n")}), says(&pgproto3.CopyData{Data: []byte("E\n")}, &pgproto3.CopyDone{}, done("COPY 2"), ready()),
			},
			succeeded: map[string]tally{"COPY t TO STDOUT": {1, 2}},
		},
		"a call of a function": {
			pieces: []piece{
				asks(&pgproto3.FunctionCall{Function: 1598}), says(&pgproto3.FunctionCallResponse{Result: []byte("1")}, ready()),
				asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: one,
		},
		"an end by the administrator, at rest": {
			pieces:    []piece{asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()), says(fatal("57P01"))},
			succeeded: one, failed: map[string]uint64{"not known 57P01": 1},
		},
		"an end by the administrator, in a statement": {
			pieces: []piece{asks(query("SELECT 1")), says(fatal("57P01")), {what: exit}},
			failed: map[string]uint64{"SELECT ? 57P01": 1},
		},
		"an end by the administrator, in a prepared statement": {
			pieces: []piece{asks(parse("", "SELECT $1"), bind("", ""), execute(""), syncs()), says(parsed(), bound()), says(fatal("57P01")), {what: exit}},
			failed: map[string]uint64{"SELECT ? 57P01": 1},
		},
		"a process that ends in a statement": {
			pieces: []piece{asks(query("SELECT 1")), {what: exit}},
			lost:   map[string]uint64{"aborted": 1},
		},
		"a process that ends at rest": {
			pieces:    []piece{asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()), asks(&pgproto3.Terminate{}), {what: exit}},
			succeeded: one,
		},
		"a long text": {
			pieces: []piece{
				asks(query("SELECT '" + strings.Repeat("x", 3000) + "', a FROM t")), says(row("1"), done("SELECT 1"), ready()),
			},
			succeeded: map[string]tally{"SELECT ?, a FROM t": {1, 1}},
		},
	}
}

// run lets a conversation happen on a fresh connection, in pieces that cut makes of each.
func (d *driven) run(t *testing.T, c conversation, cut func(n int, b []byte) [][]byte) {
	t.Helper()
	for n, p := range append(startup(), c.pieces...) {
		d.now += p.after
		if p.what == exit {
			d.drive(t, exit, nil)
			continue
		}
		for _, b := range cut(n, p.bytes) {
			if len(b) > 0 {
				d.drive(t, p.what, b)
			}
		}
	}
	if err := d.family.kernel.Conns.Delete(d.pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	d.pid++
}

// check compares what a conversation counted since before.
func (d *driven) check(t *testing.T, how string, c conversation, before map[string]uint64) {
	t.Helper()
	succeeded, failed := d.counts(t, "shop")
	if c.succeeded == nil {
		c.succeeded = map[string]tally{}
	}
	if c.failed == nil {
		c.failed = map[string]uint64{}
	}
	lost := map[string]uint64{}
	for reason, n := range d.lost(t) {
		if n -= before[reason]; n > 0 {
			lost[reason] = n
		}
	}
	if c.lost == nil {
		c.lost = map[string]uint64{}
	}
	if diff := cmp.Diff([]any{c.succeeded, c.failed, c.lost}, []any{succeeded, failed, lost}); diff != "" {
		t.Errorf("%s: %s", how, diff)
	}
}

func TestConversations(t *testing.T) {
	d := newDriven(t)
	for sentence, c := range conversations() {
		t.Run(sentence, func(t *testing.T) {
			d.forget(t)
			d.reset(t)
			before := d.lost(t)
			d.run(t, c, func(_ int, b []byte) [][]byte { return [][]byte{b} })
			d.check(t, "as it is", c, before)
		})
	}
}

func TestConversationsMayBeCutAnywhere(t *testing.T) {
	d := newDriven(t)
	for sentence, c := range conversations() {
		t.Run(sentence, func(t *testing.T) {
			all := append(startup(), c.pieces...)
			if slices.ContainsFunc(all, func(p piece) bool { return p.what == report }) {
				t.Skip("a server reports what it is at work on between two reads, and not behind them")
			}
			for n := range all {
				for at := 1; at < len(all[n].bytes); at++ {
					d.forget(t)
					d.reset(t)
					before := d.lost(t)
					d.run(t, c, func(m int, b []byte) [][]byte {
						if m != n {
							return [][]byte{b}
						}
						return [][]byte{b[:at], b[at:]}
					})
					d.check(t, fmt.Sprintf("piece %d cut at %d", n, at), c, before)
					if t.Failed() {
						return
					}
				}
			}
			d.forget(t)
			d.reset(t)
			before := d.lost(t)
			d.run(t, c, func(_ int, b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 1)) })
			d.check(t, "byte by byte", c, before)
		})
	}
}
