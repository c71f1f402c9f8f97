// Command suite runs every check and test of the project on this machine, as CI does: what `make test` calls.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/summary"
)

// limit of the whole run, and of one that a person asks for that may go on for days; each step has its own.
const (
	limit     = 85 * time.Minute
	longLimit = 14 * 24 * time.Hour
)

// lanes is how many steps run at once: one for each core of a small machine.
const lanes = 2

func main() {
	only := flag.String("only", "", "run these steps alone, comma-separated, with what they need")
	tests := flag.String("run", "", "regular expression of the tests to run in these steps")
	runs := flag.Int("runs", 20, "how many runs of each benchmark")
	events := flag.String("events", "", "the events of the fault matrix, comma-separated; empty for all")
	minutes := flag.Int("minutes", 30, "how long random faults go on")
	databases := flag.Int("databases", 1000, "how many one manager is given, or one Database is beside")
	seed := flag.String("seed", "", "the seed of random faults; empty for a new one")
	keep := flag.Bool("keep", false, "use a cluster that is up already, and leave it up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ok, err := run(ctx, *only, workspace{tests: *tests, runs: *runs, events: *events, minutes: *minutes, seed: *seed, databases: *databases, keep: *keep})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, asked workspace) (bool, error) {
	most := limit
	if only == faultMatrix || only == randomFaults || only == besideCrowd {
		most = longLimit
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	w, err := newWorkspace(asked)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(w.tmp)
	steps := standard(all(w))
	if only != "" {
		if steps, err = choose(all(w), strings.Split(only, ",")); err != nil {
			return false, err
		}
	}
	// What is built for a cluster takes half an hour: not in vain.
	if slices.ContainsFunc(steps, func(s step) bool { return s.name == "binaries" }) {
		if err := cluster.Fits(); err != nil {
			return false, fmt.Errorf("%w. Without a cluster: make test-unit", err)
		}
	}
	r := runner{say: say(time.Now()), logs: w.logs, lanes: lanes}
	results := r.run(ctx, steps)
	// Whatever happened, even when ctx is over: nothing may be left running.
	if err := w.takeDown(context.WithoutCancel(ctx), r.say); err != nil {
		results = append(results, result{step: step{name: "take the cluster down"}, err: err})
	}
	var s summary.Summary
	for _, result := range results {
		if err := result.addTo(&s); err != nil {
			return false, err
		}
	}
	s.Print(os.Stdout)
	return s.OK(), ctx.Err()
}

// say prints plain lines with the time since the start.
func say(start time.Time) func(string, ...any) {
	return func(format string, args ...any) {
		d := time.Since(start).Round(time.Second)
		fmt.Printf("%02d:%02d  %s\n", int(d.Minutes()), int(d.Seconds())%60, fmt.Sprintf(format, args...))
	}
}

// workspace is where the steps work and what they hand on.
type workspace struct {
	root, logs, tmp string
	tests           string // regular expression; empty for all
	runs            int    // of each benchmark
	events          string // of the fault matrix
	minutes         int    // of random faults
	seed            string
	databases       int // of one manager
	keep            bool
	startedCluster  bool
	next            string // image of a second build; empty unless the test of an upgrade runs
}

func newWorkspace(asked workspace) (*workspace, error) {
	cache, err := cluster.CacheDir()
	if err != nil {
		return nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the checkout: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, "tests", "suite")); err != nil {
		return nil, errors.New("call it from the root of the checkout: make test")
	}
	w := &asked
	w.root, w.logs = root, filepath.Join(cache, "logs", "suite")
	// Logs of an older run would be taken for this one's.
	if err := errors.Join(os.RemoveAll(w.logs), os.MkdirAll(w.logs, 0o755)); err != nil {
		return nil, fmt.Errorf("make the directory of logs: %w", err)
	}
	if w.tmp, err = os.MkdirTemp("", "plimsoll-suite-"); err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	return w, nil
}
