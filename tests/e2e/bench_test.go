package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

// runs is how many runs of each event `make bench` asks for; without it the benchmarks are skipped.
func runs(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("PLIMSOLL_BENCH_RUNS"))
	if err != nil {
		t.Skip("a benchmark: make bench runs it")
	}
	t.Log(bench.Machine())
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
	f.Machine = "three nodes of the local cluster on one machine: " + bench.Machine()
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
	record(t, bench.Figure{Name: "postgres/provision-3", Unit: "s", Better: "lower", Raw: raw, Target: ptr.To(30.0), Peer: ptr.To(68.0), Note: "create to Ready; best known: CloudNativePG, create to three ready, the number of runs was not kept"})
}
