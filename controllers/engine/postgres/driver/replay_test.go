package driver

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestAReplicaTellsWhatItHasAppliedAndWhatHoldsIt(t *testing.T) {
	c := newCluster(t)
	c.db.Spec.Parameters["max_standby_streaming_delay"] = "-1"
	p := c.primary(false)
	m := c.replica(p, false)
	p.exec("CREATE TABLE a AS SELECT generate_series(1, 1000) i")
	m.follows(p)
	c.until("it has applied all", func() error {
		if r := m.report(); r.Applied != r.Position || r.Hold != nil || r.Effort == 0 {
			return fmt.Errorf("applied %+v of %+v, effort %d, held by %+v", r.Applied, r.Position, r.Effort, r.Hold)
		}
		return nil
	})

	reader, err := m.client(c.ctx(), "app", password)
	must(t, err)
	defer closeConn(reader)
	_, err = reader.Exec(c.ctx(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a")
	must(t, err)
	p.exec("DROP TABLE a")
	c.until("it says that a query holds it", func() error {
		r := m.report()
		if r.Hold == nil || r.Hold.Most != -1 || r.Applied.Bytes >= r.Position.Bytes {
			return fmt.Errorf("applied %+v of %+v, held by %+v", r.Applied, r.Position, r.Hold)
		}
		return nil
	})
	_, err = reader.Exec(c.ctx(), "COMMIT")
	must(t, err)
	m.follows(p)
	if got := m.report(); got.Hold != nil {
		t.Errorf("it is still held by %+v", got.Hold)
	}

	asSuper[string](m, "postgres", "SELECT pg_wal_replay_pause()::text")
	c.until("it says that it was paused", func() error {
		if got := m.report().Hold; got == nil || got.Most != -1 {
			return fmt.Errorf("held by %+v", got)
		}
		return nil
	})
	asSuper[string](m, "postgres", "SELECT pg_wal_replay_resume()::text")

	// One that hangs is held by nobody, does nothing, and goes on receiving.
	m.follows(p)
	startup := asSuper[int64](m, "postgres", "SELECT pid::int8 FROM pg_stat_activity WHERE backend_type = 'startup'")
	must(t, syscall.Kill(int(startup), syscall.SIGSTOP))
	before := m.report()
	p.exec("CREATE TABLE b AS SELECT generate_series(1, 100000) i")
	c.until("it receives what it does not apply", func() error {
		if r := m.report(); r.Position.Bytes <= before.Position.Bytes+1<<20 {
			return fmt.Errorf("it holds %+v", r.Position)
		}
		return nil
	})
	time.Sleep(time.Second)
	after := m.report()
	if after.Hold != nil || after.Applied != before.Applied || after.Effort-before.Effort > uint64(100*time.Millisecond) {
		t.Errorf("applied %+v after %+v, effort %d after %d, held by %+v", after.Applied, before.Applied, after.Effort, before.Effort, after.Hold)
	}
	must(t, syscall.Kill(int(startup), syscall.SIGCONT))
	m.follows(p)
}

// TestAReplicaThatStoodStillIsCopied although its log could go on from where it is.
func TestAReplicaThatStoodStillIsCopied(t *testing.T) {
	c := newCluster(t)
	p := c.primary(false)
	p.exec("CREATE TABLE a AS SELECT generate_series(1, 1000) i")
	m := c.replica(p, false)
	m.follows(p)
	m.stop()
	r := c.role(m, engine.Replica, 1, p)
	if s := m.plan(r); s != StepNone {
		t.Fatalf("plan %s for a replica that follows", s)
	}
	r.Anew = true
	if s := m.plan(r); s != StepRecopy {
		t.Fatalf("plan %s, want a new copy", s)
	}
	must(t, m.d.Prepare(c.ctx(), r))
	r.Anew = false
	m.launch(r)
	m.become(r)
	m.follows(p)
	if n := query[int64](m, "SELECT count(*) FROM a"); n != 1000 {
		t.Errorf("%d rows", n)
	}
	p.kill()
	m.stop()
	r.Anew = true
	if s := m.plan(r); s != StepNone {
		t.Errorf("plan %s without anybody to copy", s)
	}
}

func TestTitlesOfStartupProcessesAreRead(t *testing.T) {
	for title, want := range map[string]engine.Position{
		"postgres: orders-2: startup recovering 000000010000000000000003\x00": position(1, 3<<24),
		"postgres: startup waiting for 0000000A00000002000000FF":              position(10, 2<<32+0xFF<<24),
		"postgres: orders-2: startup ":                                        {},
	} {
		if diff := cmp.Diff(want, replaying(title)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", title, diff)
		}
	}
}

func TestEndsOfRecoveryAreCounted(t *testing.T) {
	const context = at + "00000\tstartup\t\t\t\tCONTEXT:  WAL redo at 0/40093E0 for Heap/INSERT: off 1 flags 0x00\n"
	for sentence, row := range map[string]struct {
		text string
		want int64
	}{
		"a file that cannot be read":  {at + "42501\tstartup\t\t\t\tFATAL:  could not open file \"base/16395/16396\": Permission denied\n" + context, 1},
		"pages that are not there":    {at + "XX000\tstartup\t\t\t\tPANIC:  WAL contains references to invalid pages\n" + context, 1},
		"a volume without room":       {at + "53100\tstartup\t\t\t\tFATAL:  could not extend file \"base/16395/16396\": No space left on device\n" + context, 0},
		"a setting that is too low":   {at + "22023\tstartup\t\t\t\tFATAL:  recovery aborted because of insufficient parameter settings\n" + context, 0},
		"no log to begin with":        {at + "F0000\tstartup\t\t\t\tFATAL:  could not find redo location\n", 1},
		"a warning within one":        {at + "01000\tstartup\t\t\t\tWARNING:  page is uninitialized\n" + context, 0},
		"a client that says the same": {at + "XX000\tclient backend\th\tu\td\tPANIC:  x\n" + at + "XX000\tclient backend\th\tu\td\tCONTEXT:  WAL redo at 0/1\n", 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			w, _ := pump(t, row.text)
			if got := w.Fell(); got != row.want {
				t.Errorf("%d, want %d", got, row.want)
			}
		})
	}
}

// TestAReceiverThatHangsIsTold: an election waits until this member receives no more.
func TestAReceiverThatHangsIsTold(t *testing.T) {
	c := newCluster(t)
	p := c.primary(false)
	m := c.replica(p, false)
	m.follows(p)
	receiver := asSuper[int64](m, "postgres", "SELECT pid::int8 FROM pg_stat_activity WHERE backend_type = 'walreceiver'")
	must(t, syscall.Kill(int(receiver), syscall.SIGSTOP))
	var receives *engine.StillReceives
	if err := m.d.Become(c.ctx(), c.role(m, engine.Replica, 1, nil)); !errors.As(err, &receives) {
		t.Errorf("got %v", err)
	}
	begin := time.Now()
	if r := m.report(); !r.Receiving {
		t.Errorf("it says that it receives nothing: %+v", r)
	}
	t.Logf("reported after %s", time.Since(begin))
	must(t, syscall.Kill(int(receiver), syscall.SIGCONT))
	m.become(c.role(m, engine.Replica, 1, nil))
}
