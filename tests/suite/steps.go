package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

// endToEndLimit of the tests on the cluster, in all.
const endToEndLimit = 32 * time.Minute

// all the steps, in the order in which their results are told and, of those that may, begin. What is built for the cluster comes before
// what tests, but for the checks: the first time it takes longer than all else. On the cluster nothing else runs.
func all(w *workspace) []step {
	const minute = time.Minute
	onCluster := []string{"operator", "e2e program"}
	return []step{
		{name: "packages", limit: 15 * minute, do: w.packages},
		{name: "tools", limit: 10 * minute, needs: []string{"packages"}, do: w.buildTools},

		{name: "API server", limit: 30 * minute, needs: []string{"tools"}, do: func(ctx context.Context, log io.Writer) error {
			return w.cluster(ctx, log, "build", "--api")
		}},
		{name: "binaries", limit: 50 * minute, needs: []string{"API server"}, do: func(ctx context.Context, log io.Writer) error {
			return w.cluster(ctx, log, "build")
		}},
		{name: "database images", limit: 15 * minute, needs: []string{"binaries"}, do: func(ctx context.Context, log io.Writer) error {
			return w.cluster(ctx, log, "images")
		}},
		{name: "generated files", limit: 10 * minute, needs: []string{"tools"}, do: w.make("verify")},
		// Not beside the compilers of the cluster's binaries, which would leave it nothing.
		{name: "protocol model", limit: 30 * minute, needs: []string{"packages"}, after: []string{"database images"}, aside: true, results: true, do: w.model},
		{name: "unit tests", limit: 40 * minute, needs: []string{"packages"}, after: []string{"generated files"}, results: true, do: w.unit, again: w.alone(goTest{flags: []string{"-race"}})},
		{name: "kernel tests", limit: 25 * minute, needs: []string{"packages"}, after: []string{"unit tests"}, results: true, do: w.kernel, again: w.alone(goTest{env: kernelTests(), flags: []string{"-race"}})},
		{name: "API tests", limit: 35 * minute, needs: []string{"API server"}, after: []string{"generated files"}, results: true, do: w.api, again: w.alone(goTest{flags: []string{"-race"}})},
		{name: "lint", limit: 25 * minute, needs: []string{"tools"}, after: []string{"generated files"}, do: w.make("lint")},
		{name: "image", limit: 10 * minute, needs: []string{"tools"}, after: []string{"generated files"}, do: func(ctx context.Context, log io.Writer) error {
			if w.upgrades() {
				if err := install.BuildNext(ctx, log, w.root); err != nil {
					return err
				}
			}
			return install.Build(ctx, log, w.root)
		}},

		{name: "e2e program", limit: 25 * minute, needs: []string{"packages"}, after: []string{"generated files"}, do: w.buildEndToEnd},

		// A control plane of its own beside the API tests' would make both late.
		{name: "cluster proof", limit: 12 * minute, needs: []string{"database images"}, after: []string{"image", "API tests"}, results: true, do: w.prove},
		{name: "cluster", limit: 10 * minute, needs: []string{"image", "database images"}, after: []string{"cluster proof", "unit tests", "kernel tests", "lint", "protocol model", "e2e program"}, do: w.up},
		{name: "operator", limit: 5 * minute, needs: []string{"cluster"}, do: w.operator},
		{name: "e2e", limit: endToEndLimit + 2*minute, needs: onCluster, results: true, do: w.endToEnd(endToEndLimit, nil, "-test.skip=^TestBench", "-test.run="+w.tests), again: w.endToEndAlone},
		{name: "bench", limit: endToEndLimit + 2*minute, needs: onCluster, after: []string{"e2e"}, results: true, do: w.endToEnd(endToEndLimit, []string{"PLIMSOLL_BENCH_RUNS=" + strconv.Itoa(w.runs)}, "-test.run=^TestBench"+w.tests)},
		{name: faultMatrix, limit: longLimit, needs: onCluster, after: []string{"bench"}, results: true, do: w.faults},
		{name: randomFaults, limit: longLimit, needs: onCluster, after: []string{faultMatrix}, results: true, do: w.endToEnd(longLimit, []string{
			"PLIMSOLL_FAULT_MINUTES=" + strconv.Itoa(w.minutes), "PLIMSOLL_FAULT_SEED=" + w.seed,
		}, "-test.run=^TestRandomFaults$")},
		{name: manyDatabases, limit: longLimit, needs: []string{"API server"}, after: []string{randomFaults}, results: true, do: func(ctx context.Context, log io.Writer) error {
			return w.command(ctx, log, []string{"PLIMSOLL_BENCH_DATABASES=" + strconv.Itoa(w.databases)}, "go", "test", "-json", "-count=1", "-timeout="+longLimit.String(), "./tests/scale")
		}},
		{name: probeCosts, limit: longLimit, needs: []string{"packages"}, after: []string{manyDatabases}, results: true, do: func(ctx context.Context, log io.Writer) error {
			return w.command(ctx, log, append(kernelTests(), "PLIMSOLL_BENCH_RUNS="+strconv.Itoa(w.runs)), "go", "test", "-json", "-count=1", "-timeout="+longLimit.String(), "-run=^TestBench", "./bpf/node")
		}},
		{name: besideCrowd, limit: longLimit, needs: onCluster, after: []string{manyDatabases}, results: true, do: w.beside},
	}
}

// packages that the checks need beside those that the cluster tool installs, each with a file that proves it is there.
func (w *workspace) packages(ctx context.Context, log io.Writer) error {
	// Only the programs are wanted: no database cluster may be made or started by the package.
	const dir = "/etc/postgresql-common/createcluster.d"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep the postgresql package from starting a server: %w", err)
	}
	if err := os.WriteFile(dir+"/plimsoll.conf", []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return fmt.Errorf("keep the postgresql package from starting a server: %w", err)
	}
	return cluster.InstallPackages(ctx, func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }, map[string]string{
		"make": "/usr/bin/make", "git": "/usr/bin/git", "gcc": "/usr/bin/gcc", "libc6-dev": "/usr/include/stdio.h",
		"buildah": "/usr/bin/buildah", "ca-certificates": "/etc/ssl/certs/ca-certificates.crt", "openssl": "/usr/bin/openssl",
		"postgresql-15": "/usr/lib/postgresql/15/bin/postgres", "spin": "/usr/bin/spin",
		"clang-14": "/usr/bin/clang-14", "llvm-14": "/usr/bin/llvm-strip-14", "redis-tools": "/usr/bin/redis-benchmark", "prometheus": "/usr/bin/promtool",
	})
}

func (w *workspace) buildTools(ctx context.Context, log io.Writer) error {
	return errors.Join(
		w.command(ctx, log, nil, "go", "build", "-buildvcs=false", "-o", w.tool(), "./tests/cluster/cmd/cluster"),
		w.command(ctx, log, nil, "make", "controller-gen", "kustomize"),
	)
}

func (w *workspace) make(target string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, log io.Writer) error { return w.command(ctx, log, nil, "make", target) }
}

// ownModules are modules of their own that have tests: "./..." of the root does not reach them.
func ownModules() []string { return []string{"tests/cluster/csi"} }

// unit tests are those of packages that use neither the API server nor the cluster nor the kernel.
func (w *workspace) unit(ctx context.Context, log io.Writer) error {
	packages, err := w.tested(ctx, func(p tested) bool { return !p.needsAPI && !p.needsKernel && p.path != modelPackage })
	if err != nil {
		return err
	}
	// Tests that say that they may run side by side wait most of the time.
	err = w.goTest(ctx, log, goTest{packages: packages, flags: []string{"-race", "-parallel=3"}})
	for _, dir := range ownModules() {
		err = errors.Join(err, w.goTest(ctx, log, goTest{dir: dir, packages: []string{"./..."}, flags: []string{"-race"}}))
	}
	return err
}

// modelPackage searches the protocol's states for minutes and waits for nothing.
const modelPackage = "github.com/plimsoll-dev/plimsoll-operator/tests/model"

// model takes the processor's idle time alone: others run tests meanwhile that look at the clock.
func (w *workspace) model(ctx context.Context, log io.Writer) error {
	idle := []string{"chrt", "--idle", "0"}
	return w.goTest(ctx, log, goTest{under: idle, packages: []string{modelPackage}, known: true, flags: []string{"-timeout=28m", "-trimpath"}})
}

// kernel tests load programs into the kernel, which takes root. Without it they say what they leave out; with it whatever is missing fails.
func (w *workspace) kernel(ctx context.Context, log io.Writer) error {
	packages, err := w.tested(ctx, func(p tested) bool { return p.needsKernel })
	if err != nil {
		return err
	}
	// Two that trace the machine at once would only make each other late.
	return w.goTest(ctx, log, goTest{env: kernelTests(), packages: packages, flags: []string{"-race", "-p=1"}})
}

func kernelTests() []string { return []string{"PLIMSOLL_KERNEL_TESTS=1"} }

// alone runs tests one after the other, while other steps may run.
func (w *workspace) alone(g goTest) func(context.Context, io.Writer, map[string][]string) error {
	return func(ctx context.Context, log io.Writer, tests map[string][]string) error {
		var err error
		for _, path := range slices.Sorted(maps.Keys(tests)) {
			these, run := *w, g
			these.tests, run.packages = only(tests[path]), []string{path}
			run.flags = append(slices.Clone(g.flags), "-parallel=1")
			err = errors.Join(err, these.goTest(ctx, log, run))
		}
		return err
	}
}

// only is the pattern of these tests.
func only(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

func (w *workspace) api(ctx context.Context, log io.Writer) error {
	packages, err := w.tested(ctx, func(p tested) bool { return p.needsAPI })
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return errNothingToDo
	}
	// Two servers at once would only make each other late. The proof is a step of its own.
	return w.goTest(ctx, log, goTest{packages: packages, flags: []string{"-race", "-p", "1", "-skip=^TestProve$"}})
}

// goTest is a run of packages of the module in a directory of the checkout.
type goTest struct {
	env      []string
	under    []string // a program that runs it, with its arguments
	dir      string
	packages []string
	flags    []string
	// known results of the same program count: of a test that looks at nothing else. With -trimpath it is the same in any directory.
	known bool
}

func (w *workspace) goTest(ctx context.Context, log io.Writer, g goTest) error {
	args := slices.Concat(g.under, []string{"go", "-C", filepath.Join(w.root, g.dir), "test", "-json", "-timeout=15m"}, g.flags)
	if !g.known {
		args = append(args, "-count=1")
	}
	if w.tests != "" {
		args = append(args, "-run="+w.tests)
	}
	args = append(args, g.packages...)
	return w.command(ctx, log, g.env, args[0], args[1:]...)
}

// tested is a package with tests.
type tested struct {
	path        string
	needsAPI    bool
	needsKernel bool
}

// tested lists the packages that go test runs on this side of the cluster.
func (w *workspace) tested(ctx context.Context, want func(tested) bool) ([]string, error) {
	var list strings.Builder
	err := w.command(ctx, &list, nil, "go", "list", "-f", "{{.ImportPath}} {{.TestGoFiles}}{{.XTestGoFiles}} {{.TestImports}}{{.XTestImports}} {{.EmbedPatterns}}", "./...")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, list.String())
	}
	var found []string
	for line := range strings.Lines(list.String()) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(rest, "[][]") || strings.HasSuffix(path, "/tests/e2e") {
			continue
		}
		if want(tested{
			path: path, needsAPI: strings.Contains(rest, "/tests/cluster") || strings.HasSuffix(path, "/tests/cluster"),
			// It holds programs for the kernel, or loads them.
			needsKernel: strings.Contains(rest, "_bpfel.o") || strings.HasSuffix(path, "/bpf/node"),
		}) {
			found = append(found, path)
		}
	}
	return found, nil
}

// prove shows that the cluster itself does what tests ask of it. It starts and ends one of its own.
func (w *workspace) prove(ctx context.Context, log io.Writer) error {
	if err := w.claim(ctx); err != nil {
		return err
	}
	return w.command(ctx, log, []string{"PLIMSOLL_PROVE=1"}, "go", "test", "-json", "-race", "-count=1", "-timeout=11m", "-run=^TestProve$", "./tests/cluster")
}

func (w *workspace) up(ctx context.Context, log io.Writer) error {
	if !w.keep {
		if err := w.claim(ctx); err != nil {
			return err
		}
	}
	return w.cluster(ctx, log, "up")
}

// claim makes sure that the machine's one cluster is nobody else's, and that this run takes it down.
func (w *workspace) claim(ctx context.Context) error {
	if _, err := cluster.Open(); err == nil && !w.startedCluster {
		if os.Getenv("CI") == "" {
			return errors.New("a cluster is up already, of `make demo` perhaps: run `make demo-down` first")
		}
		if err := w.cluster(ctx, io.Discard, "down", "--fresh"); err != nil {
			return err
		}
	}
	w.startedCluster = true
	return nil
}

func (w *workspace) takeDown(ctx context.Context, say func(string, ...any)) error {
	if !w.startedCluster {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var log strings.Builder
	if err := w.cluster(ctx, &log, "down", "--fresh"); err != nil {
		return fmt.Errorf("%w\n%s", err, log.String())
	}
	say("cluster: taken down")
	return nil
}

func (w *workspace) operator(ctx context.Context, log io.Writer) error {
	c, err := cluster.Open()
	if err != nil {
		return err
	}
	if w.upgrades() {
		if w.next, err = install.PushNext(ctx, log, w.root, c); err != nil {
			return err
		}
	}
	return install.OnLocal(ctx, log, w.root, c)
}

// upgrades says that the test of an upgrade of the operator is among those that run: it needs a second build.
func (w *workspace) upgrades() bool {
	match, err := regexp.MatchString(w.tests, "TestOperatorUpgrade")
	return err == nil && match
}

// buildEndToEnd makes tests/e2e a program before it runs where there is no way to the module proxy.
// Without -race: its clients would take the processor from the databases, and what it shares with others is tested by itself.
func (w *workspace) buildEndToEnd(ctx context.Context, log io.Writer) error {
	return w.command(ctx, log, nil, "go", "test", "-c", "-o", w.endToEndProgram(), "./tests/e2e")
}

func (w *workspace) endToEndProgram() string { return filepath.Join(w.tmp, "e2e.test") }

// endToEnd runs tests/e2e as a program in the control plane's network, from which pods and Services can be reached.
func (w *workspace) endToEnd(limit time.Duration, env []string, flags ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, log io.Writer) error {
		args := append([]string{
			"in-control", "--", "go", "tool", "test2json", "-t", "-p", "tests/e2e", w.endToEndProgram(), "-test.v=test2json", "-test.timeout=" + limit.String(),
			"-test.parallel=" + strconv.Itoa(sideBySide()),
		}, flags...)
		inside := *w
		inside.root = filepath.Join(w.root, "tests", "e2e") // as go test does
		return inside.command(ctx, log, append(env, "PLIMSOLL_KUBECTL_PLUGIN="+filepath.Join(w.root, "bin", "kubectl-plimsoll"), "PLIMSOLL_NEXT_IMAGE="+w.next), w.tool(), args...)
	}
}

// sideBySide is how many tests run at one time: they wait most of it, but for the kernel where that is slow.
func sideBySide() int {
	if bench.Slowness() > 2 {
		return 2
	}
	return 3
}

// endToEndAlone runs tests of tests/e2e one after the other.
func (w *workspace) endToEndAlone(ctx context.Context, log io.Writer, tests map[string][]string) error {
	var names []string
	for _, of := range tests {
		names = append(names, of...)
	}
	return w.endToEnd(endToEndLimit, nil, "-test.parallel=1", "-test.run="+only(names))(ctx, log)
}

// Steps that only a name asks for: the whole fault matrix many times, random faults for a while, one manager with many Databases, failovers
// beside these, and what a probe costs.
const (
	faultMatrix   = "bench-ha"
	randomFaults  = "bench-random"
	manyDatabases = "bench-scale"
	besideCrowd   = "bench-beside"
	probeCosts    = "bench-probe"
)

// faults runs the matrix until every event has had its runs, those of earlier calls on the same commit among them.
func (w *workspace) faults(ctx context.Context, log io.Writer) error {
	book, err := w.book(ctx)
	if err != nil {
		return err
	}
	err = w.endToEnd(longLimit, []string{
		"PLIMSOLL_FAULT_RUNS=" + strconv.Itoa(w.runs), "PLIMSOLL_FAULT_EVENTS=" + w.events, "PLIMSOLL_FAULT_BOOK=" + book,
	}, "-test.run=^TestFaults$")(ctx, log)
	if page, missing := os.ReadFile(filepath.Join(book, "report.md")); missing == nil {
		fmt.Printf("\n%s\nEvery run is in %s.\n", page, book)
	}
	return err
}

// beside plays events to a Database alone and beside a crowd. The runs go to a directory of this call alone: what is compared was measured
// one after the other.
func (w *workspace) beside(ctx context.Context, log io.Writer) error {
	book := filepath.Join(w.logs, besideCrowd)
	if err := os.MkdirAll(book, 0o755); err != nil {
		return fmt.Errorf("keep the runs: %w", err)
	}
	err := w.endToEnd(longLimit, []string{
		"PLIMSOLL_BESIDE_DATABASES=" + strconv.Itoa(w.databases), "PLIMSOLL_FAULT_RUNS=" + strconv.Itoa(w.runs), "PLIMSOLL_FAULT_EVENTS=" + w.events,
		"PLIMSOLL_FAULT_BOOK=" + book,
	}, "-test.run=^TestBesideCrowd$")(ctx, log)
	if page, missing := os.ReadFile(filepath.Join(book, "report.md")); missing == nil {
		fmt.Printf("\n%s\nEvery run is in %s.\n", page, book)
	}
	return err
}

// book is the directory for the runs of this build. Those of a build that was never committed are not gone on with: the next may differ.
func (w *workspace) book(ctx context.Context) (string, error) {
	cache, err := cluster.CacheDir()
	if err != nil {
		return "", err
	}
	var commit, changes strings.Builder
	err = errors.Join(
		w.command(ctx, &commit, nil, "git", "rev-parse", "--short", "HEAD"),
		// What the runs themselves write is no change.
		w.command(ctx, &changes, nil, "git", "status", "--porcelain", "--", ".", ":!docs/benchmarks", ":!docs/benchmarks.md"),
	)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, faultMatrix, strings.TrimSpace(commit.String()))
	if changes.Len() > 0 {
		dir += "-changed"
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("forget the runs of an earlier uncommitted build: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("keep the runs: %w", err)
	}
	return dir, nil
}

// standard leaves out what only a name asks for.
func standard(steps []step) []step {
	return slices.DeleteFunc(steps, func(s step) bool {
		return slices.Contains([]string{"bench", faultMatrix, randomFaults, manyDatabases, besideCrowd, probeCosts}, s.name)
	})
}
