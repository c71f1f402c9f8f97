package scale

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

// TestTheNextManagerActs kills the acting one of two managers, so that it releases nothing, and asks for a change in the same moment. How
// long it takes is a figure; that it comes at all is the test.
func TestTheNextManagerActs(t *testing.T) {
	runs, record := 1, os.Getenv(envDatabases) != ""
	if record {
		runs = 20
	}
	s := newStage(t)
	both := map[string]*manager{}
	for range 2 {
		m := s.manage(t, "--operator-namespace=plimsoll-system")
		both[m.name] = m
	}
	s.grow(t, 2)
	var took []time.Duration
	for n := range runs {
		acting := s.acting(t, both)
		time.Sleep(2 * time.Second) // the other has had its look at the Lease
		acting.end(t, syscall.SIGKILL)
		delete(both, acting.name)
		took = append(took, s.change(t, n%2, fmt.Sprintf("%dMB", 5+n), time.Minute))
		if n+1 < runs {
			m := s.manage(t, "--operator-namespace=plimsoll-system")
			both[m.name] = m
		}
	}
	t.Logf("from the end of the acting manager until the next has carried a change to all agents: %s", took)
	if record {
		s.keepNext(t, took)
	}
}

// acting is the manager that the Lease names, once that is one of those that run.
func (s *stage) acting(t *testing.T, among map[string]*manager) *manager {
	t.Helper()
	var found *manager
	eventually(t, time.Minute, "a manager acts, and another stands by", func() error {
		var lease coordinationv1.Lease
		if err := s.direct.Get(t.Context(), client.ObjectKey{Namespace: "plimsoll-system", Name: "plimsoll-manager"}, &lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || among[*lease.Spec.HolderIdentity] == nil {
			return errors.New("none of those that run holds the Lease")
		}
		for _, m := range among {
			raw, _ := os.ReadFile(s.dir + "/" + m.name + ".log")
			if !strings.Contains(string(raw), "attempting to acquire leader lease") && !strings.Contains(string(raw), "Attempting to acquire leader lease") {
				return fmt.Errorf("%s has not begun yet", m.name)
			}
		}
		found = among[*lease.Spec.HolderIdentity]
		return nil
	})
	return found
}

func (s *stage) keepNext(t *testing.T, took []time.Duration) {
	t.Helper()
	f := s.figure(t)
	f.Name, f.Unit, f.Raw, f.Target = "manager/next-acts", "s", seconds(took), new(5.0)
	f.Note = "from SIGKILL of the acting one of two managers until the other has carried a change, asked for in that moment, to all three agents of a Database"
	if err := bench.Record("../../docs/benchmarks", f); err != nil {
		t.Error(err)
	}
	if slices.Max(took) > time.Minute {
		t.Errorf("the next took %s", slices.Max(took))
	}
}
