package summary

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	type want struct {
		passed, failed, skipped int
		names                   []string
	}
	for name, row := range map[string]struct {
		stream string
		want   want
	}{
		"a passing package counts its tests and subtests": {
			stream: `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"pass","Package":"a","Test":"T/x"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`,
			want: want{passed: 2},
		},
		"a failed test fails once, not again for its package": {
			stream: `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"wrong\n"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"a"}`,
			want: want{failed: 1, names: []string{"a T"}},
		},
		"a package that does not build is a failure": {
			stream: `{"ImportPath":"a [a.test]","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"a [a.test]","Action":"build-fail"}
{"Action":"start","Package":"a"}
{"Action":"fail","Package":"a","FailedBuild":"a [a.test]"}`,
			want: want{failed: 1, names: []string{"a [a.test] does not build"}},
		},
		"a test that was running when its package died is a failure": {
			stream: `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"a"}`,
			want: want{failed: 1, names: []string{"a T did not end"}},
		},
		"a package that fails outside its tests is a failure": {
			stream: `{"Action":"output","Package":"a","Output":"goleak: found\n"}
{"Action":"fail","Package":"a"}`,
			want: want{failed: 1, names: []string{"a"}},
		},
		"a stream that breaks off is a failure": {
			stream: `{"Action":"run","Package":"a","Test":"T"}`,
			want:   want{failed: 1, names: []string{"a T did not end"}},
		},
		"a skipped test is told with its reason": {
			stream: `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"    a_test.go:3: no server here\n"}
{"Action":"output","Package":"a","Test":"T","Output":"--- SKIP: T (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`,
			want: want{skipped: 1, names: []string{"a T: a_test.go:3: no server here"}},
		},
		"a package without tests counts nothing": {
			stream: `{"Action":"start","Package":"a"}
{"Action":"skip","Package":"a"}`,
		},
		"words of the go command itself are a failure": {
			stream: `go: updates to go.mod needed`,
			want:   want{failed: 1, names: []string{"unit wrote what is no result"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s Summary
			if err := s.Read("unit", strings.NewReader(row.stream)); err != nil {
				t.Fatal(err)
			}
			got := want{passed: s.Passed, failed: s.Failed, skipped: s.Skipped, names: s.skips}
			for _, f := range s.failures {
				got.names = append(got.names, f.name)
			}
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPrintEndsWithTheCountAndShowsFailures(t *testing.T) {
	var s Summary
	s.Check("lint", errors.New("exit status 1"), "a.go:1: unused\n")
	s.Check("vet", nil, "")
	var out strings.Builder
	s.Print(&out)
	want := "\n--- FAIL lint: exit status 1\n    a.go:1: unused\n\nfailed:\n    lint: exit status 1\n\n1 passed, 1 failed, 0 skipped\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTheEndNamesWhatFailedAndWhatItSaid(t *testing.T) {
	var s Summary
	stream := `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"    a_test.go:1: first\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    a_test.go:2: second\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    [pod/x] a log line\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    a_test.go:3: third\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    a_test.go:4: fourth\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    a_test.go:5: fifth\n"}
{"Action":"fail","Package":"a","Test":"T"}`
	if err := s.Read("unit", strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s.Print(&out)
	_, got, _ := strings.Cut(out.String(), "\nfailed:\n")
	want := `    a T
        a_test.go:1: first
        a_test.go:2: second
        a_test.go:4: fourth
        a_test.go:5: fifth

0 passed, 1 failed, 0 skipped
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNothingRanIsNotOK(t *testing.T) {
	var s Summary
	if s.OK() {
		t.Error("an empty summary is OK")
	}
}

func TestALongFailureKeepsHeadAndTail(t *testing.T) {
	lines := strings.Split(strings.Repeat("x\n", 2*maxLines), "\n")
	lines[0], lines[len(lines)-1] = "head", "tail"
	got := shorten(lines)
	if len(got) != maxLines+1 || got[0] != "head" || got[len(got)-1] != "tail" {
		t.Errorf("kept %d lines from %q to %q", len(got), got[0], got[len(got)-1])
	}
}

func TestWhatPassesAloneWasLate(t *testing.T) {
	const first = `{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"output","Package":"a","Test":"T/x","Output":"    a_test.go:3: too late\n"}
{"Action":"fail","Package":"a","Test":"T/x"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"U"}
{"Action":"pass","Package":"a","Test":"U"}
{"Action":"fail","Package":"a"}`
	for name, row := range map[string]struct {
		again          string
		passed, failed int
	}{
		"it passes": {`{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"pass","Package":"a","Test":"T/x"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`, 3, 0},
		"it fails again":  {first, 1, 2},
		"it breaks off":   {`{"Action":"run","Package":"a","Test":"T"}`, 1, 2},
		"it does not run": {`{"Action":"pass","Package":"a"}`, 1, 2},
		"what comes with it breaks off": {`{"Action":"run","Package":"a","Test":"T"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Output":"goleak: found\n"}
{"Action":"fail","Package":"a"}`, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var s Summary
			if err := s.ReadAgain("a", strings.NewReader(first), strings.NewReader(row.again)); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			s.Print(&out)
			if s.Passed != row.passed || s.Failed != row.failed {
				t.Errorf("%d passed and %d failed, want %d and %d\n%s", s.Passed, s.Failed, row.passed, row.failed, &out)
			}
			if told := strings.Contains(out.String(), "failed beside others, passed alone:\n    a T/x\n        a_test.go:3: too late"); told != (row.failed == 0) {
				t.Errorf("it is told as late: %v\n%s", told, &out)
			}
		})
	}
}

func TestTestsThatFailedAreNamed(t *testing.T) {
	for stream, want := range map[string]map[string][]string{
		`{"Action":"fail","Package":"a","Test":"T/x"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"b","Test":"U"}`: {"a": {"T"}, "b": {"U"}},
		`{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"b"}`: nil,
	} {
		var s Summary
		if err := s.Read("a", strings.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.Tests()); diff != "" {
			t.Error(diff)
		}
	}
}
