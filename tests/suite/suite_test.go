package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/tests/summary"
)

func quiet(string, ...any) {}

func TestStepsWaitForWhatTheyNeedAndComeAfter(t *testing.T) {
	var lock sync.Mutex
	var order []string
	does := func(name string, err error) func(context.Context, io.Writer) error {
		return func(context.Context, io.Writer) error {
			lock.Lock()
			defer lock.Unlock()
			order = append(order, name)
			return err
		}
	}
	steps := []step{
		{name: "fails", limit: time.Minute, do: does("fails", errors.New("broken"))},
		{name: "needs it", needs: []string{"fails"}, limit: time.Minute, do: does("needs it", nil)},
		{name: "needs that", needs: []string{"needs it"}, limit: time.Minute, do: does("needs that", nil)},
		{name: "comes after", after: []string{"fails"}, limit: time.Minute, do: does("comes after", nil)},
	}
	results := runner{say: quiet, logs: t.TempDir()}.run(t.Context(), steps)
	if diff := cmp.Diff([]string{"fails", "comes after"}, order); diff != "" {
		t.Error(diff)
	}
	var s summary.Summary
	for _, r := range results {
		if err := r.addTo(&s); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int{1, 1, 2}, []int{s.Passed, s.Failed, s.Skipped}); diff != "" {
		t.Errorf("passed, failed, skipped: %s", diff)
	}
}

// TestTwoLanes: no more than two steps at once beside those that take no lane, the first of the list first, whatever each takes.
func TestTwoLanes(t *testing.T) {
	var busy, most atomic.Int32
	begun, gates := make(chan string, 10), map[string]chan struct{}{}
	does := func(name string, lane int32) func(context.Context, io.Writer) error {
		gate := make(chan struct{})
		gates[name] = gate
		return func(context.Context, io.Writer) error {
			most.Store(max(most.Load(), busy.Add(lane)))
			begun <- name
			<-gate
			busy.Add(-lane)
			return nil
		}
	}
	steps := []step{
		{name: "builds", do: does("builds", 1)},
		{name: "aside", aside: true, do: does("aside", 0)},
		{name: "needs what is built", needs: []string{"builds"}, do: does("needs what is built", 1)},
		{name: "first", do: does("first", 1)},
		{name: "second", do: does("second", 1)},
		{name: "third", after: []string{"aside"}, do: does("third", 1)},
	}
	for i := range steps {
		steps[i].limit = time.Minute
	}
	done := make(chan []result)
	go func() { done <- runner{say: quiet, logs: t.TempDir(), lanes: 2}.run(t.Context(), steps) }()
	for _, row := range []struct {
		ends   string
		begins []string
	}{
		{"", []string{"aside", "builds", "first"}},
		{"builds", []string{"needs what is built"}},
		{"needs what is built", []string{"second"}},
		{"first", nil},
		{"aside", []string{"third"}},
		{"second", nil},
		{"third", nil},
	} {
		if row.ends != "" {
			gates[row.ends] <- struct{}{}
		}
		var got []string
		for range row.begins {
			got = append(got, <-begun)
		}
		slices.Sort(got)
		if diff := cmp.Diff(row.begins, got); diff != "" {
			t.Errorf("after %q: %s", row.ends, diff)
		}
	}
	if results := <-done; len(results) != len(steps) || most.Load() != 2 || len(begun) > 0 {
		t.Errorf("%d results, %d steps at once, %d more have begun", len(results), most.Load(), len(begun))
	}
}

func TestAStepThatHangsIsEnded(t *testing.T) {
	w := &workspace{root: t.TempDir()}
	hang := step{name: "hangs", limit: 200 * time.Millisecond, do: func(ctx context.Context, log io.Writer) error {
		return w.command(ctx, log, nil, "sh", "-c", "echo begun; sleep 60 & wait")
	}}
	began := time.Now()
	results := runner{say: quiet, logs: t.TempDir()}.run(t.Context(), []step{hang})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if !errors.Is(results[0].err, context.DeadlineExceeded) {
		t.Errorf("error %v", results[0].err)
	}
	if text, err := os.ReadFile(results[0].log); err != nil || !strings.Contains(string(text), "begun") {
		t.Errorf("log %q, %v", text, err)
	}
}

func TestAGoTestThatFailsWithoutAResultIsAFailure(t *testing.T) {
	broken := step{name: "unit", limit: time.Minute, results: true, do: func(_ context.Context, log io.Writer) error {
		fmt.Fprintln(log, `{"Action":"start","Package":"a"}`)
		return errors.New("exit status 2")
	}}
	results := runner{say: quiet, logs: t.TempDir()}.run(t.Context(), []step{broken})
	var s summary.Summary
	if err := results[0].addTo(&s); err != nil {
		t.Fatal(err)
	}
	if s.Failed != 1 || s.OK() {
		t.Errorf("%d failed", s.Failed)
	}
}

func TestChooseTakesWhatIsNeededAlong(t *testing.T) {
	var names []string
	chosen, err := choose(all(&workspace{}), []string{"e2e"})
	for _, s := range chosen {
		names = append(names, s.name)
	}
	want := []string{"packages", "tools", "API server", "binaries", "database images", "image", "e2e program", "cluster", "operator", "e2e"}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := choose(all(&workspace{}), []string{"nothing"}); err == nil {
		t.Error("a step that there is not was found")
	}
}

// A module of its own whose tests nobody runs would be green for ever.
func TestEveryModuleWithTestsIsRun(t *testing.T) {
	const root = "../.."
	tested := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.Dir(path)
		for ; dir != root; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				tested[strings.TrimPrefix(dir, root+"/")] = true
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(tested)), ownModules()); diff != "" {
		t.Error(diff)
	}
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "OWN_MODULES := " + strings.Join(ownModules(), " ") + "\n"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile, which vets and lints them, has no line %q", want)
	}
}

// A name that no step has would be waited for in vain by nobody: the run would be in another order than it says.
func TestStepsNameEarlierSteps(t *testing.T) {
	var known []string
	for _, s := range all(&workspace{}) {
		for _, name := range slices.Concat(s.needs, s.after) {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %q, which no earlier step is called", s.name, name)
			}
		}
		if s.limit <= 0 {
			t.Errorf("%s has no limit", s.name)
		}
		known = append(known, s.name)
	}
	// On the cluster nothing else runs: its tests look at the clock.
	cluster := slices.Index(known, "cluster")
	steps := all(&workspace{})
	for i, name := range known[:cluster] {
		if !reaches(steps, "cluster", name) {
			t.Errorf("step %d, %s, may still run beside the cluster", i, name)
		}
	}
	if slices.ContainsFunc(standard(all(&workspace{})), func(s step) bool { return strings.HasPrefix(s.name, "bench") }) {
		t.Error("make test would measure")
	}
}

// reaches says whether a step waits for another one, itself or by others.
func reaches(steps []step, from, to string) bool {
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == from })
	return slices.ContainsFunc(slices.Concat(steps[i].needs, steps[i].after), func(name string) bool {
		return name == to || reaches(steps, name, to)
	})
}

// TestAFewThatFailAreRunAgainAlone, and what passes then was late; more of them, or what breaks off, is not.
func TestAFewThatFailAreRunAgainAlone(t *testing.T) {
	failing := func(n int) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf(`{"Action":"fail","Package":"a","Test":"T%d"}`+"\n", i)
		}
		return text
	}
	for name, row := range map[string]struct {
		stream         string
		asked          int
		passed, failed int
	}{
		"a few":                {failing(2), 2, 2, 0},
		"many":                 {failing(mostAgain + 1), 0, 0, mostAgain + 1},
		"a package breaks off": {failing(1) + `{"Action":"fail","Package":"b"}`, 0, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := step{
				name: "tests", limit: time.Minute, results: true,
				do: func(_ context.Context, log io.Writer) error {
					_, err := io.WriteString(log, row.stream)
					return errors.Join(err, errors.New("exit status 1"))
				},
				again: func(_ context.Context, log io.Writer, tests map[string][]string) error {
					for _, test := range tests["a"] {
						asked++
						if _, err := fmt.Fprintf(log, `{"Action":"pass","Package":"a","Test":%q}`+"\n", test); err != nil {
							return err
						}
					}
					return nil
				},
			}
			results := runner{say: quiet, logs: t.TempDir()}.run(t.Context(), []step{s})
			var sum summary.Summary
			if err := results[0].addTo(&sum); err != nil {
				t.Fatal(err)
			}
			if asked != row.asked || sum.Passed != row.passed || sum.Failed != row.failed || (results[0].err == nil) != (row.failed == 0) {
				t.Errorf("%d run again, %d passed, %d failed, %v; want %+v", asked, sum.Passed, sum.Failed, results[0].err, row)
			}
		})
	}
}
