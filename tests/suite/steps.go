package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

// endToEndLimit of the tests on the cluster, in all.
const endToEndLimit = 30 * time.Minute

// all the steps, in the order in which their results are told. Two chains run side by side, one for each core of a small
// machine: the cluster's binaries and images are built while the checks and unit tests run.
func all(w *workspace) []step {
	const minute = time.Minute
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
		{name: "protocol model", limit: 20 * minute, needs: []string{"packages"}, after: []string{"database images"}, results: true, do: w.model},

		{name: "generated files", limit: 10 * minute, needs: []string{"tools"}, do: w.make("verify")},
		{name: "unit tests", limit: 25 * minute, needs: []string{"packages"}, after: []string{"generated files"}, results: true, do: w.unit},
		{name: "lint", limit: 15 * minute, needs: []string{"tools"}, after: []string{"unit tests"}, do: w.make("lint")},
		{name: "API tests", limit: 20 * minute, needs: []string{"API server"}, after: []string{"lint"}, results: true, do: w.api},
		{name: "image", limit: 10 * minute, needs: []string{"tools"}, after: []string{"API tests"}, do: func(ctx context.Context, log io.Writer) error {
			if w.upgrades() {
				if err := install.BuildNext(ctx, log, w.root); err != nil {
					return err
				}
			}
			return install.Build(ctx, log, w.root)
		}},

		{name: "cluster proof", limit: 12 * minute, needs: []string{"database images"}, after: []string{"image", "protocol model"}, results: true, do: w.prove},
		{name: "cluster", limit: 10 * minute, needs: []string{"image", "database images"}, after: []string{"cluster proof"}, do: w.up},
		{name: "operator", limit: 5 * minute, needs: []string{"cluster"}, do: w.operator},
		{name: "e2e", limit: endToEndLimit + 2*minute, needs: []string{"operator"}, results: true, do: w.endToEnd(endToEndLimit, nil, "-test.skip=^TestBench", "-test.run="+w.tests)},
		{name: "bench", limit: endToEndLimit + 2*minute, needs: []string{"operator"}, after: []string{"e2e"}, results: true, do: w.endToEnd(endToEndLimit, []string{"PLIMSOLL_BENCH_RUNS=" + strconv.Itoa(w.runs)}, "-test.run=^TestBench"+w.tests)},
		{name: faultMatrix, limit: longLimit, needs: []string{"operator"}, after: []string{"bench"}, results: true, do: w.faults},
		{name: randomFaults, limit: longLimit, needs: []string{"operator"}, after: []string{faultMatrix}, results: true, do: w.endToEnd(longLimit, []string{
			"PLIMSOLL_FAULT_MINUTES=" + strconv.Itoa(w.minutes), "PLIMSOLL_FAULT_SEED=" + w.seed,
		}, "-test.run=^TestRandomFaults$")},
		{name: manyDatabases, limit: longLimit, needs: []string{"API server"}, after: []string{randomFaults}, results: true, do: func(ctx context.Context, log io.Writer) error {
			return w.command(ctx, log, []string{"PLIMSOLL_BENCH_DATABASES=" + strconv.Itoa(w.databases)}, "go", "test", "-json", "-count=1", "-timeout="+longLimit.String(), "./tests/scale")
		}},
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

// unit tests are those of packages that use neither the API server nor the cluster.
func (w *workspace) unit(ctx context.Context, log io.Writer) error {
	packages, err := w.tested(ctx, func(p tested) bool { return !p.needsAPI && p.path != modelPackage })
	if err != nil {
		return err
	}
	err = w.goTest(ctx, log, "", packages, "-race")
	for _, dir := range ownModules() {
		err = errors.Join(err, w.goTest(ctx, log, dir, []string{"./..."}, "-race"))
	}
	return err
}

// modelPackage searches the protocol's states for minutes, on one core.
const modelPackage = "github.com/plimsoll-dev/plimsoll-operator/tests/model"

func (w *workspace) model(ctx context.Context, log io.Writer) error {
	return w.goTest(ctx, log, "", []string{modelPackage})
}

func (w *workspace) api(ctx context.Context, log io.Writer) error {
	packages, err := w.tested(ctx, func(p tested) bool { return p.needsAPI })
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return errNothingToDo
	}
	// Two servers at once would only make each other late. The proof is a step of its own.
	return w.goTest(ctx, log, "", packages, "-race", "-p", "1", "-skip=^TestProve$")
}

// goTest runs the tests of packages of the module in a directory of the checkout.
func (w *workspace) goTest(ctx context.Context, log io.Writer, dir string, packages []string, flags ...string) error {
	args := append([]string{"-C", filepath.Join(w.root, dir), "test", "-json", "-count=1", "-timeout=15m"}, flags...)
	if w.tests != "" {
		args = append(args, "-run="+w.tests)
	}
	return w.command(ctx, log, nil, "go", append(args, packages...)...)
}

// tested is a package with tests.
type tested struct {
	path     string
	needsAPI bool
}

// tested lists the packages that go test runs on this side of the cluster.
func (w *workspace) tested(ctx context.Context, want func(tested) bool) ([]string, error) {
	var list strings.Builder
	err := w.command(ctx, &list, nil, "go", "list", "-f", "{{.ImportPath}} {{.TestGoFiles}}{{.XTestGoFiles}} {{.TestImports}}{{.XTestImports}}", "./...")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, list.String())
	}
	var found []string
	for line := range strings.Lines(list.String()) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(rest, "[][]") || strings.HasSuffix(path, "/tests/e2e") {
			continue
		}
		if want(tested{path: path, needsAPI: strings.Contains(rest, "/tests/cluster") || strings.HasSuffix(path, "/tests/cluster")}) {
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

// endToEnd runs tests/e2e as a program in the control plane's network, from which pods and Services can be reached. It is built
// before: there is no way to the module proxy in there.
func (w *workspace) endToEnd(limit time.Duration, env []string, flags ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, log io.Writer) error {
		dir := filepath.Join(w.root, "tests", "e2e")
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return errNothingToDo
		}
		binary := filepath.Join(w.tmp, "e2e.test")
		if err := w.command(ctx, log, nil, "go", "test", "-c", "-race", "-o", binary, "./tests/e2e"); err != nil {
			return err
		}
		args := append([]string{
			"in-control", "--", "go", "tool", "test2json", "-t", "-p", "tests/e2e", binary, "-test.v=test2json", "-test.timeout=" + limit.String(),
			// Those that may run side by side wait most of the time.
			"-test.parallel=4",
		}, flags...)
		inside := *w
		inside.root = dir // as go test does
		return inside.command(ctx, log, append(env, "PLIMSOLL_KUBECTL_PLUGIN="+filepath.Join(w.root, "bin", "kubectl-plimsoll"), "PLIMSOLL_NEXT_IMAGE="+w.next), w.tool(), args...)
	}
}

// Steps that only a name asks for: the whole fault matrix many times, random faults for a while, and one manager with many Databases.
const (
	faultMatrix   = "bench-ha"
	randomFaults  = "bench-random"
	manyDatabases = "bench-scale"
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
		return slices.Contains([]string{"bench", faultMatrix, randomFaults, manyDatabases}, s.name)
	})
}
