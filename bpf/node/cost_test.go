package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// envRuns makes it a benchmark of so many runs.
const envRuns = "PLIMSOLL_BENCH_RUNS"

// workloads of pgbench: one client that reads one row by its key.
type workload struct{ name, sslmode, protocol, note string }

func workloads() []workload {
	return []workload{
		{"plain", "disable", "prepared", "prepared statements, plain"},
		{"literals", "disable", "simple", "the simple protocol with ever new literals, plain"},
		{"tls", "require", "prepared", "prepared statements through TLS"},
	}
}

// burst is how long pgbench runs at a time, and bursts how many follow each other in a run.
const (
	burst  = "1"
	bursts = 5
)

// cost of one burst.
type cost struct {
	perStatement float64 // of the server's processor time, in microseconds
	perSecond    float64 // statements
}

// TestBenchWhatItCosts compares two servers at work at the same moment, each on a processor of its own with its client: one as it is, and one that a
// probe measures, or that has pg_stat_statements, or that logs each statement. What the machine does to both is then in neither difference. Which of two
// like servers is measured, and which processor is whose, changes from run to run.
func TestBenchWhatItCosts(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(envRuns))
	if err != nil {
		t.Skip(envRuns + " is not set: this takes minutes, and needs a machine that does nothing else")
	}
	if runtime.NumCPU() < 2 {
		t.Fatal("this needs two processors")
	}
	twins := []*server{costly(t, "orders-1", "9a"), costly(t, "orders-2", "9b")}
	others := map[string]*server{
		"pg-stat-statements": costly(t, "orders-3", "9c", "shared_preload_libraries=pg_stat_statements"),
		"log-all":            costly(t, "orders-4", "9d", "log_min_duration_statement=0", "log_min_messages=log", "log_min_error_statement=log", "logging_collector=on"),
	}
	unrelated := unrelatedCalls(t, twins[0])
	r := &running{}
	url := start(t, r)
	more := map[string][]float64{} // microseconds a statement more than the other, by what and workload
	less := map[string][]float64{} // percent of the statements a second less
	var untilShown, own []float64
	for run := range runs {
		measured, plain := twins[run%2], twins[1-run%2]
		r.set()
		await(t, map[string]float64{"measured": 0, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
		r.set(measured.Instance)
		await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
		used, began := processorTime(t), time.Now()
		for _, w := range workloads() {
			for what, s := range map[string]*server{"probe": measured, "pg-stat-statements": others["pg-stat-statements"], "log-all": others["log-all"]} {
				var a, b []cost
				for n := range bursts {
					one, other := beside(t, s, plain, w, (run/2+n)%2)
					a, b = append(a, one), append(b, other)
				}
				mine, theirs := medians(a), medians(b)
				more[what+"-"+w.name] = append(more[what+"-"+w.name], mine.perStatement-theirs.perStatement)
				less[what+"-"+w.name] = append(less[what+"-"+w.name], 100*(1-mine.perSecond/theirs.perSecond))
				t.Logf("run %d, %s, %s: %.2f us a statement and %.0f a second, without %.2f and %.0f", run+1, w.name, what, mine.perStatement, mine.perSecond, theirs.perStatement, theirs.perSecond)
			}
		}
		own = append(own, 100*(processorTime(t)-used).Seconds()/time.Since(began).Seconds())
		untilShown = append(untilShown, measured.untilShown(t, url)...)
	}
	machine, at := bench.Machine(), commit(t)
	keep := func(f bench.Figure) {
		f.Better, f.Machine, f.Commit = "lower", machine, at
		if err := bench.Record("../../docs/benchmarks", f); err != nil {
			t.Error(err)
		}
	}
	targets := map[string]float64{"plain": 0.7, "literals": 2.2, "tls": 2.5}
	for _, w := range workloads() {
		note := "pgbench with one client, " + w.note + ", beside a like server without, at the same time and each on a processor of its own; medians of " +
			strconv.Itoa(bursts) + " seconds, roles and processors change from run to run"
		keep(bench.Figure{Name: "probe/cpu-per-statement-" + w.name, Unit: "us", Raw: more["probe-"+w.name], Target: new(targets[w.name]), Note: "the server's processor time, by its cgroup; " + note})
		keep(bench.Figure{Name: "probe/throughput-loss-" + w.name, Unit: "%", Raw: less["probe-"+w.name], Target: new(3.0), Note: "statements a second; " + note})
		for what := range others {
			keep(bench.Figure{Name: "probe/" + what + "-cpu-per-statement-" + w.name, Unit: "us", Raw: more[what+"-"+w.name], Note: "for comparison, a server with that setting; " + note})
			keep(bench.Figure{Name: "probe/" + what + "-throughput-loss-" + w.name, Unit: "%", Raw: less[what+"-"+w.name], Note: "for comparison, a server with that setting; " + note})
		}
	}
	keep(bench.Figure{Name: "probe/unrelated-syscall", Unit: "ns", Raw: unrelated, Target: new(15.0), Note: "getppid by a process that is not measured, with a probe on the node and without; the least of some means each"})
	keep(bench.Figure{Name: "probe/event-to-metric", Unit: "ms", Raw: untilShown, Target: new(1000.0), Note: "from the answer to a statement, as its client has it, until a scrape that began then and shows it has ended"})
	keep(bench.Figure{Name: "probe/own-cpu", Unit: "% of a core", Raw: own, Note: "processor time of the probe's process while pgbench runs as fast as it can"})
}

// costly is a server with a table of pgbench.
func costly(t *testing.T, name, id string, settings ...string) *server {
	t.Helper()
	s := newServer(t, name, attribute.Container{Pod: "9f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab" + id, ID: strings.Repeat(id, 32)}, settings...)
	s.Pgbench(t, "disable", "postgres", "-i", "-q")
	if len(settings) > 0 {
		s.Psql(t, "disable", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	}
	for _, w := range workloads() {
		if _, err := s.burst(t.Context(), w, 0); err != nil { // what is loaded at first is loaded then
			t.Fatal(err)
		}
	}
	return s
}

// beside has two servers work at the same time, the first of them on this processor.
func beside(t *testing.T, a, b *server, w workload, processor int) (ofA, ofB cost) {
	t.Helper()
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() { ofA, failed[0] = a.burst(t.Context(), w, processor) })
	both.Go(func() { ofB, failed[1] = b.burst(t.Context(), w, 1-processor) })
	both.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		t.Fatal(err)
	}
	return ofA, ofB
}

var (
	processed = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	tps       = regexp.MustCompile(`tps = ([0-9.]+) \(without initial connection time\)`)
)

// burst of statements by one client; it and the server's process for it are on one processor.
func (s *server) burst(ctx context.Context, w workload, processor int) (cost, error) {
	postmaster, err := os.ReadFile(filepath.Join(s.Dir, "data", "postmaster.pid"))
	if err != nil {
		return cost{}, err
	}
	first, _, _ := strings.Cut(string(postmaster), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return cost{}, err
	}
	var on unix.CPUSet
	on.Set(processor)
	if err := unix.SchedSetaffinity(pid, &on); err != nil { // what it forks has the same
		return cost{}, fmt.Errorf("keep the server on processor %d: %w", processor, err)
	}
	before, err := s.used()
	if err != nil {
		return cost{}, err
	}
	said, err := exec.CommandContext(ctx, "taskset", "--cpu-list", strconv.Itoa(processor),
		observed.Bin+"pgbench", "-n", "-S", "-M", w.protocol, "-c", "1", "-T", burst, s.URL(w.sslmode, "postgres")).CombinedOutput()
	if err != nil {
		return cost{}, fmt.Errorf("pgbench: %w\n%s", err, said)
	}
	after, err := s.used()
	if err != nil {
		return cost{}, err
	}
	n, err := number(processed, said)
	if err != nil {
		return cost{}, err
	}
	perSecond, err := number(tps, said)
	return cost{(after - before) / n, perSecond}, err
}

func number(of *regexp.Regexp, said []byte) (float64, error) {
	found := of.FindSubmatch(said)
	if found == nil {
		return 0, fmt.Errorf("pgbench does not say %s:\n%s", of, said)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

func medians(all []cost) cost {
	var statement, second []float64
	for _, c := range all {
		statement, second = append(statement, c.perStatement), append(second, c.perSecond)
	}
	return cost{middle(statement), middle(second)}
}

// used processor time of the server until now, in microseconds.
func (s *server) used() (float64, error) {
	raw, err := os.ReadFile(filepath.Join(s.group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "usage_usec "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat says nothing of usage_usec:\n%s", s.group, raw)
}

// unrelatedCalls is how much longer a system call takes that nobody looks at while a probe is on the node, in nanoseconds.
func unrelatedCalls(t *testing.T, s *server) (more []float64) {
	t.Helper()
	for range 5 {
		without := unrelatedCall()
		t.Run("unrelated", func(t *testing.T) {
			r := &running{}
			r.set(s.Instance)
			url := start(t, r)
			await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
			more = append(more, unrelatedCall()-without)
		})
	}
	return more
}

// unrelatedCall is what a system call takes that nobody looks at, in nanoseconds.
func unrelatedCall() float64 {
	const calls = 200_000
	least := time.Hour
	for range 20 {
		began := time.Now()
		for range calls {
			unix.Getppid()
		}
		least = min(least, time.Since(began))
	}
	return float64(least.Nanoseconds()) / calls
}

// processorTime of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// untilShown is how long some statements took to be seen in metrics, in milliseconds.
func (s *server) untilShown(t *testing.T, url string) (took []float64) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), s.URL("require", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	count := func() float64 { return scrape(t, url, "plimsoll_instance_statements_total", "role")["primary"] }
	for range 10 {
		before := count()
		if _, err := c.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		within(t, "a statement to be shown", func() bool { return count() > before })
		took = append(took, float64(time.Since(answered).Microseconds())/1000)
	}
	return took
}

func commit(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func middle(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
