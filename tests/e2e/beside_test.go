package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

// envBeside is how many Databases one is to fail over beside.
const envBeside = "PLIMSOLL_BESIDE_DATABASES"

// besideEvents are played where nobody names others.
const besideEvents = "pod-delete,switchover"

// TestBesideCrowd plays events to a Database alone, and as many again beside a crowd of idle ones, which the same manager looks after:
// their pods and agents are simulated (tests/crowd). What they say of the other Database is figures; that nothing is lost and nobody
// writes beside another is the test.
func TestBesideCrowd(t *testing.T) {
	most, err := strconv.Atoi(os.Getenv(envBeside))
	if err != nil {
		t.Skip("an hour or two: make bench-beside runs it")
	}
	runs, err := strconv.Atoi(os.Getenv(envRuns))
	if err != nil {
		t.Fatalf("%s: %v", envRuns, err)
	}
	chosen, err := choose(everyEvent(), cmp.Or(os.Getenv(envEvents), besideEvents), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range chosen {
		if !e.inside {
			t.Fatalf("the event %s hurts more than a Database's own pods, which the crowd does not bear", e.Name)
		}
	}
	if err := whole(t.Context()); err != nil {
		t.Fatalf("the cluster is not whole: %v", err)
	}
	withoutPolicyAgents(t)
	dir := cmp.Or(os.Getenv("PLIMSOLL_FAULT_BOOK"), t.TempDir())
	a := &arena{t: t, name: "beside-", keep: true, beside: true}
	play := func(where string) faults.Book {
		a.book = faults.Book{Dir: filepath.Join(dir, where)}
		for _, e := range chosen {
			t.Run(where+"-"+e.Name, func(t *testing.T) { a.repeat(t, e, runs) })
		}
		return a.book
	}
	alone := play("alone")
	n := gather(t, most)
	if n == 0 {
		t.Fatal("no Database of the crowd became Ready")
	}
	beside := play("beside")
	page := "| event | runs | alone p50, p95, max s | beside others p50, p95, max s | p50, p95 of alone | lost |\n|---|---|---|---|---|---|\n"
	for _, e := range chosen {
		page += compare(t, e.Event, alone, beside, n)
	}
	page += fmt.Sprintf("\nBeside %d idle Databases, of %d that were asked for.\n", n, most)
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(page), 0o644); err != nil { //nolint:gosec // a report is public
		t.Error(err)
	}
	t.Log("\n" + page)
}

// withoutPolicyAgents for the time of the test, alone and beside the crowd alike: those of the local cluster go through every policy at
// every change of a pod, which is no matter of the manager's.
func withoutPolicyAgents(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := lateContext(time.Minute)
		defer cancel()
		if err := shared.cluster.StartPolicyAgents(ctx); err != nil {
			t.Errorf("start the NetworkPolicy agents again: %v", err)
		}
	})
	if err := shared.cluster.StopPolicyAgents(t.Context()); err != nil {
		t.Fatalf("stop the NetworkPolicy agents: %v", err)
	}
}

// compare the runs of an event, record the figures if there are enough of them, and draw a line.
func compare(t *testing.T, e faults.Event, alone, beside faults.Book, crowd int) string {
	t.Helper()
	before, err := alone.Runs(e.Name)
	if err != nil {
		t.Fatal(err)
	}
	after, err := beside.Runs(e.Name)
	if err != nil {
		t.Fatal(err)
	}
	first, second, err := faults.Beside(e, before, after, crowd)
	if err != nil {
		t.Error(err)
		return ""
	}
	if min(len(before), len(after)) >= figureOf {
		record(t, first)
		record(t, second)
	}
	middle := func(f bench.Figure) string { return fmt.Sprintf("%.2f, %.2f, %.2f", f.P50, f.P95, f.Max) }
	_, ratio, _ := strings.Cut(second.Note, "; of alone, ")
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %d |\n", e.Name, len(after), middle(first), middle(second), ratio, *first.Lost+*second.Lost)
}
