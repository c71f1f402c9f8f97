package agent

import (
	"context"
	"errors"
	"testing"
	"time"

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
		err  error
		told string
	}{
		"a server that starts": {err: errStarting},
		"a step that fails":    {err: errOther, told: "become replica: out of memory"},
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
			b.decide(following2())
			for range quietFailures + 2 {
				<-tries
			}
			if got := b.report.wait(t, func(r engine.Report) bool { return r.Problem == row.told }); got.Converged {
				t.Error("a server that was not told its role is told to have converged")
			}
			close(failing)
			began := time.Now()
			b.report.wait(t, func(r engine.Report) bool { return r.Problem == "" })
			b.until("it follows", obeys(1, lease.ServerReplica))
			if took := time.Since(began); row.told == "" && took > 900*time.Millisecond {
				t.Errorf("a server that is up was told its role %s late", took)
			}
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
	deadline := time.After(10 * time.Second)
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
