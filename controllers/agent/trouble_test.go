package agent

import (
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
			t.Logf("taken back after %s", time.Since(began))
		})
	}
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
