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
	want := []string{"packages", "tools", "API server", "binaries", "database images", "image", "cluster", "operator", "e2e"}
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
	if slices.ContainsFunc(standard(all(&workspace{})), func(s step) bool { return strings.HasPrefix(s.name, "bench") }) {
		t.Error("make test would measure")
	}
}
