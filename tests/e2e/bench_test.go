package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

// runs is how many runs of each event `make bench` asks for; without it the benchmarks are skipped.
func runs(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("PLIMSOLL_BENCH_RUNS"))
	if err != nil {
		t.Skip("a benchmark: make bench runs it")
	}
	return n
}

// record writes a figure into the checkout.
func record(t *testing.T, f bench.Figure) {
	t.Helper()
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		t.Fatalf("ask git for the commit: %v", err)
	}
	f.Commit = strings.TrimSpace(string(commit))
	f.Machine = fmt.Sprintf("%d cores, three nodes of the local cluster on one machine, %s", runtime.NumCPU(), runtime.GOARCH)
	if err := bench.Record("../../docs/benchmarks", f); err != nil {
		t.Fatal(err)
	}
}

// TestBenchProvision measures create to Ready with three replicas and images present.
func TestBenchProvision(t *testing.T) {
	n := runs(t)
	var raw []float64
	for i := range n {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			began := time.Now()
			d := shared.create(t, orders(shared.namespace(t), 3))
			d.awaitReady(readyLimit)
			raw = append(raw, time.Since(began).Seconds())
		})
	}
	record(t, bench.Figure{Name: "postgres/provision-3", Unit: "s", Better: "lower", Raw: raw, Target: ptr.To(30.0), Peer: ptr.To(68.0), Note: "create to Ready; best known: CloudNativePG on the same kind of cluster"})
}

// TestBenchSwitchover measures the gap in writes of a planned switchover.
func TestBenchSwitchover(t *testing.T) {
	n := runs(t)
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	var began []time.Time
	for range n {
		now, err := d.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		target := ""
		for _, i := range now.Status.Instances {
			if i.Role == v1.RoleReplica {
				target = i.Name
			}
		}
		began = append(began, time.Now())
		if answer := d.ask(v1.AnnotationSwitchover, target, time.Minute); answer.State != v1.RequestDone {
			t.Fatalf("switchover to %s: %s: %s", target, answer.State, answer.Message)
		}
		d.awaitReady(time.Minute)
		w.moves(10 * time.Second)
	}
	began = append(began, time.Now())
	account, _ := w.settle(time.Time{})
	var raw []float64
	for i := range n {
		raw = append(raw, account.Between(began[i], began[i+1]).LongestGap(began[i]).Length().Seconds())
	}
	record(t, bench.Figure{Name: "postgres/switchover", Unit: "s", Better: "lower", Raw: raw, Target: ptr.To(1.0), Peer: ptr.To(8.9), Lost: ptr.To(0), Note: "longest gap between two acknowledged writes of two clients that write every 20 ms, synchronous; best known: CloudNativePG, synchronous, on the same kind of cluster"})
}
