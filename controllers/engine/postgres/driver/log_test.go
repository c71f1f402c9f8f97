package driver

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func pump(t *testing.T, text string) (*Watch, []Record) {
	t.Helper()
	w := NewWatch()
	var all []Record
	must(t, w.Pump(context.Background(), strings.NewReader(text), func(r Record) { all = append(all, r) }))
	return w, all
}

const at = "1764427215.123\t42\t"

func TestTheServersLogIsRead(t *testing.T) {
	when := time.UnixMilli(1764427215123).UTC()
	rows := map[string]struct {
		text string
		want []Record
	}{
		"a report outside of a session": {
			at + "00000\tcheckpointer\t\t\t\tLOG:  checkpoint starting: time\n",
			[]Record{{Time: when, PID: 42, SQLState: "00000", Backend: "checkpointer", Level: "LOG", Message: "checkpoint starting: time"}},
		},
		"a report of a session with what belongs to it": {
			at + "42P01\tclient backend\t10.0.0.1\tapp\torders\tERROR:  relation \"a\" does not exist\n" +
				at + "42P01\tclient backend\t10.0.0.1\tapp\torders\tSTATEMENT:  SELECT *\n\tFROM a\n",
			[]Record{{
				Time: when, PID: 42, SQLState: "42P01", Backend: "client backend", Host: "10.0.0.1", User: "app", Database: "orders", Level: "ERROR",
				Message: `relation "a" does not exist`, Details: map[string]string{"STATEMENT": "SELECT *\nFROM a"},
			}},
		},
		"a message of several lines": {
			at + "00000\tclient backend\t\ta\tb\tLOG:  one\n\ttwo\n\t\tthree\n",
			[]Record{{Time: when, PID: 42, SQLState: "00000", Backend: "client backend", User: "a", Database: "b", Level: "LOG", Message: "one\ntwo\n\tthree"}},
		},
		"a detail of another process stands for itself": {
			at + "00000\tx\t\t\t\tLOG:  one\n1764427215.123\t43\t00000\tx\t\t\t\tDETAIL:  two\n",
			[]Record{{Time: when, PID: 42, SQLState: "00000", Backend: "x", Level: "LOG", Message: "one"}, {Time: when, PID: 43, SQLState: "00000", Backend: "x", Level: "DETAIL", Message: "two"}},
		},
		"what no server wrote":            {"ld.so: cannot preload\n", []Record{{Message: "ld.so: cannot preload"}}},
		"no line end at the end":          {"half", []Record{{Message: "half"}}},
		"a name with a level in it":       {at + "28000\tclient backend\th\tx\tLOG:  forged\tdb\tFATAL:  no\n", []Record{{Message: at + "28000\tclient backend\th\tx\tLOG:  forged\tdb\tFATAL:  no"}}},
		"bytes that are no text":          {at + "00000\tx\t\t\t\tLOG:  \xff\xfe\x00z\n", []Record{{Time: when, PID: 42, SQLState: "00000", Backend: "x", Level: "LOG", Message: "\uFFFDz"}}},
		"a session that is not yet known": {at + "00000\tnot initialized\th\t[unknown]\t[unknown]\tLOG:  connection received\n", []Record{{Time: when, PID: 42, SQLState: "00000", Backend: "not initialized", Host: "h", Level: "LOG", Message: "connection received"}}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			_, got := pump(t, row.text)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheLogIsBounded(t *testing.T) {
	w := NewWatch()
	w.Feed([]byte(at + "00000\tx\t\t\t\tLOG:  " + strings.Repeat("x", 10*MaxLine)))
	for range 1000 {
		if _, ok := w.Feed([]byte("\t" + strings.Repeat("y", 1000))); ok {
			t.Fatal("a line that continues it ended the record")
		}
	}
	got, ok := w.Flush()
	if !ok || !got.Cut || len(got.Message) > MaxRecord || len(got.Message) < MaxRecord/2 || w.Cut() != 1 {
		t.Errorf("a record of %d bytes, cut %d", len(got.Message), w.Cut())
	}
}

func TestRefusedLoginsAreCounted(t *testing.T) {
	w, _ := pump(t, at+"28P01\tclient backend\th\tapp\tapp\tFATAL:  password authentication failed for user \"app\"\n"+
		at+"28P01\tclient backend\th\tapp\tapp\tDETAIL:  Connection matched\n"+at+"28000\tclient backend\th\tapp\tapp\tFATAL:  no pg_hba.conf entry\n"+at+"42P01\tclient backend\th\tapp\tapp\tERROR:  28P01\n")
	if got := w.AuthFailures(); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}

func TestWhyAReplicaCannotFollow(t *testing.T) {
	gone := at + "XX000\twalreceiver\t\t\t\tFATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed\n"
	rows := map[string]struct{ text, want string }{
		"its log is gone":  {gone, reasonLogRemoved},
		"it has forked":    {at + "XX000\twalreceiver\t\t\t\tFATAL:  could not start WAL streaming: ERROR:  requested starting point 0/7000000 on timeline 1 is not in this server's history\n", reasonForked},
		"it streams again": {gone + at + "00000\twalreceiver\t\t\t\tLOG:  started streaming WAL from primary at 0/3000000 on timeline 1\n", ""},
		"a client says so": {strings.ReplaceAll(gone, "walreceiver\t\t\t", "client backend\th\tu\td"), ""},
		"a client whose name says that it has none":   {at + "28000\tclient backend\th\t[unknown]\trequested WAL segment has already been removed\tFATAL:  no pg_hba.conf entry for database \"requested WAL segment has already been removed\"\n", ""},
		"the startup process says that it has forked": {at + "00000\tstartup\t\t\t\tLOG:  new timeline 4 forked off current database system timeline 1 before current recovery point 0/3000000\n", reasonForked},
		"the network is down":                         {at + "XX000\twalreceiver\t\t\t\tFATAL:  could not connect to the primary server: connection refused\n", ""},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			w, _ := pump(t, row.text)
			if got, _ := w.ReplicationProblem("", ""); got != row.want {
				t.Errorf("reason %q, want %q", got, row.want)
			}
		})
	}
}

func TestARecordDoesNotWaitForTheNext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r, w := io.Pipe()
	got := make(chan Record, 1)
	done := make(chan error)
	go func() { done <- NewWatch().Pump(context.Background(), r, func(r Record) { got <- r }) }()
	_, err := w.Write([]byte("hello\n"))
	must(t, err)
	select {
	case rec := <-got:
		if rec.Message != "hello" {
			t.Errorf("record %+v", rec)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	must(t, w.Close())
	must(t, <-done)
}

// FuzzLog: whatever is written, every record is bounded and valid text, and nothing is made up.
func FuzzLog(f *testing.F) {
	f.Add([]byte(at + "28P01\tclient backend\th\tu\td\tFATAL:  no\n\tmore\n" + at + "28P01\tclient backend\th\tu\td\tDETAIL:  x\n\ty"))
	f.Add([]byte("\t\n\t\n\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w := NewWatch()
		size := 0
		err := w.Pump(context.Background(), bytes.NewReader(text), func(r Record) {
			n := len(r.Message)
			for level, d := range r.Details {
				n += len(d)
				if !isLevel(level) {
					t.Errorf("detail %q", level)
				}
			}
			if n > 2*MaxRecord || strings.ContainsAny(r.Message, "\x00") || r.Message != strings.ToValidUTF8(r.Message, "") {
				t.Errorf("record of %d bytes: %q", n, r.Message)
			}
			size += n
		})
		if err != nil {
			t.Error(err)
		}
		if size > 3*len(text) {
			t.Errorf("%d bytes out of %d", size, len(text))
		}
	})
}
