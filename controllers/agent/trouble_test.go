package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

var (
	errStarting = errors.New("the database system is starting up")
	errOther    = errors.New("out of memory")
)

// TestProblemsAreToldWhileTheyLast: a server that starts has a state and no problem; a step that fails has one, and it is taken back
// at once when the step succeeds, without waiting for the next report of the clock.
func TestProblemsAreToldWhileTheyLast(t *testing.T) {
	for sentence, row := range map[string]struct {
		err   error
		tries int
		told  string
	}{
		// At the pace of a step that fails these would take 25 s.
		"a server that starts": {err: errStarting, tries: 10},
		"a step that fails":    {err: errOther, tries: quietFailures + 2, told: "become replica: out of memory"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBench(t, politeServer)
			tries := make(chan struct{}, 100)
			failing := make(chan struct{})
			b.driver.become = func(engine.Role) error {
				select {
				case <-failing:
					return nil
				case tries <- struct{}{}:
					return row.err
				}
			}
			b.k.engine.Starting = func(err error) bool { return errors.Is(err, errStarting) }
			began := time.Now()
			b.decide(following2())
			for range row.tries {
				<-tries
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it was tried %d times in %s", row.tries, took)
			}
			if got := b.report.wait(t, func(r engine.Report) bool { return r.Problem == row.told }); got.Converged {
				t.Error("a server that was not told its role is told to have converged")
			}
			close(failing)
			b.report.wait(t, func(r engine.Report) bool { return r.Problem == "" })
			b.until("it follows", obeys(1, lease.ServerReplica))
		})
	}
}

// TestAProblemOfAnEarlierDecisionIsDropped: an instance that had nobody to copy, and now copies somebody, does not go on saying that
// it has nobody, for the hours that the copy takes.
func TestAProblemOfAnEarlierDecisionIsDropped(t *testing.T) {
	b := newBench(t, politeServer)
	copying := make(chan struct{})
	b.driver.prepare = func(ctx context.Context) error {
		select {
		case <-copying:
			<-ctx.Done() // the copy takes hours
			return ctx.Err()
		default:
			return errors.New("there is no primary to copy")
		}
	}
	nobody := following2()
	nobody.Upstream, nobody.Leader = "", ""
	b.decide(nobody)
	b.report.wait(t, func(r engine.Report) bool { return r.Problem == "prepare as replica: there is no primary to copy" })
	close(copying)
	b.decide(following2())
	b.report.wait(t, func(r engine.Report) bool { return r.Problem == "" })
	b.until("it copies", func(w word, _ lease.Facts) bool { return w.Busy == prepare && w.Trouble == (trouble{}) })
}

// wait follows the reports as a watcher does, by their changes alone.
func (r *reporter) wait(t *testing.T, is func(engine.Report) bool) engine.Report {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		report, _, changed := r.get()
		if is(report) {
			return report
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("the newest report is %+v", report)
		}
	}
}

// TestAReplicaThatReceivesNothingIsNotReady, for as long as there is somebody to receive from.
func TestAReplicaThatReceivesNothingIsNotReady(t *testing.T) {
	clock := &setClock{now: 1000}
	r := newReporter(Config{Instance: "orders-1"}, clock, newCertificates(t.TempDir(), t.TempDir()), func() string { return "" })
	look := func(upstream string, lag int64) engine.Report {
		r.look(sample{
			Word:   word{Server: server{Life: up, Kind: engine.Replica}, Decision: lease.Decision{Role: lease.RoleReplica, Upstream: upstream}},
			Report: engine.Report{Role: engine.Replica, State: "running", Ready: true, LagBytes: lag},
		})
		now, _, _ := r.get()
		return now
	}
	for _, step := range []struct {
		what     string
		after    time.Duration
		upstream string
		lag      int64
		ready    bool
	}{
		{"it is new", 0, "orders-2", -1, true},
		{"it has not begun to receive", behindFor - time.Second, "orders-2", -1, true},
		{"it never began", 2 * time.Second, "orders-2", -1, false},
		{"it receives", time.Second, "orders-2", 4711, true},
		{"it lags, and receives", time.Minute, "orders-2", 1 << 40, true},
		{"its leader is gone", time.Second, "", -1, true},
		{"its leader is gone for long", time.Hour, "", -1, true},
		{"there is another, which it does not reach", time.Second, "orders-3", -1, true},
		{"it does not reach that one for long", behindFor, "orders-3", -1, false},
	} {
		clock.now = clock.now.Add(step.after)
		got := look(step.upstream, step.lag)
		if got.Ready != step.ready || (got.Reason == "NotFollowing") == step.ready {
			t.Errorf("%s: ready is %v, %s: %s", step.what, got.Ready, got.Reason, got.Problem)
		}
	}
}

// TestAHandOverKnowsWhoLedBefore, although this member has promised itself to an epoch without a leader meanwhile.
func TestAHandOverKnowsWhoLedBefore(t *testing.T) {
	for sentence, row := range map[string]struct{ before, want string }{
		"another one led":           {"orders-2", "orders-2"},
		"this one led, and goes on": {"orders-1", ""},
		"nobody ever led":           {"", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newReporter(Config{Instance: "orders-1"}, &setClock{now: 1000}, newCertificates(t.TempDir(), t.TempDir()), func() string { return "" })
			record := lease.Record{Epoch: 6, Leader: row.before}
			follows := lease.Decision{Role: lease.RoleReplica, Epoch: 6, Leader: row.before, Record: record}
			if row.before == "orders-1" {
				follows.Role = lease.RolePrimary
			}
			waits := lease.Decision{Role: lease.RoleReplica, Epoch: 7, Record: record}
			won := lease.Decision{Role: lease.RoleReplica, Epoch: 7, Record: lease.Record{Epoch: 7, Leader: "orders-1"}}
			for _, d := range []lease.Decision{follows, waits, won} {
				r.look(sample{Word: word{Server: server{Life: up, Kind: engine.Replica}, Decision: d}})
			}
			r.event(lease.Event{Kind: lease.EventElected, Epoch: 7, Cause: "failover"})
			if now, _, _ := r.get(); now.HandOver == nil || now.HandOver.From != row.want {
				t.Errorf("the hand-over is %+v, want one from %q", now.HandOver, row.want)
			}
		})
	}
}

// TestTheReportSaysWhatIsWaitedFor, and what was when it is over.
func TestTheReportSaysWhatIsWaitedFor(t *testing.T) {
	clock := &setClock{now: lease.Time(time.Hour)}
	r := newReporter(Config{Instance: "orders-1"}, clock, newCertificates(t.TempDir(), t.TempDir()), func() string { return "" })
	r.look(sample{Wait: lease.Wait{For: lease.WaitAPIServer, Since: 5}})
	got, _, changed := r.get()
	want := &engine.Wait{For: "APIServerAway", Text: "the API server does not answer, and nobody is elected without it"}
	if diff := cmp.Diff(want, got.Waits); diff != "" {
		t.Error(diff)
	}
	r.look(sample{Wait: lease.Wait{For: lease.WaitAPIServer, Since: 6}})
	select {
	case <-changed:
		t.Error("watchers are woken though nothing changed")
	default:
	}
	r.event(lease.Event{Kind: lease.EventElected, Epoch: 7, Cause: "failover", Line: lease.Line{
		Seen: clock.now.Add(-20 * time.Second), Expired: clock.now.Add(-17 * time.Second), Elected: clock.now,
		Waited: map[lease.WaitFor]time.Duration{lease.WaitAPIServer: 14200 * time.Millisecond, lease.WaitGrant: 2 * time.Second, lease.WaitAside: 300 * time.Millisecond},
	}})
	r.look(sample{})
	got, _, _ = r.get()
	if h := got.HandOver; got.Waits != nil || h.Waited != "14.2 s for the API server, 2.0 s for a grant to run out" || h.Released != 0 || h.Elected-h.Expired != 17000 {
		t.Errorf("it waits for %+v, and tells of %+v", got.Waits, h)
	}
}
