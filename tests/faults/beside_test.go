package faults

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

func TestBesideComparesWithAlone(t *testing.T) {
	runs := func(gaps ...float64) []Run {
		var all []Run
		for i, gap := range gaps {
			all = append(all, Run{Event: "pod-delete", Number: i + 1, Gap: gap})
		}
		return all
	}
	e := Event{Name: "pod-delete", Target: 5, Peer: 22.6, Note: "the primary's pod deleted; best known: somebody's"}
	first, second, err := Beside(e, runs(2, 1, 4), runs(1, 3, 5), 1000)
	if err != nil {
		t.Fatal(err)
	}
	type told struct {
		name     string
		p50, p95 float64
	}
	of := func(f bench.Figure) told { return told{f.Name, f.P50, f.P95} }
	want := []told{{"manager/failover-alone-pod-delete", 2, 4}, {"manager/failover-beside-1000-pod-delete", 3, 5}}
	if diff := cmp.Diff(want, []told{of(first), of(second)}, cmp.AllowUnexported(told{})); diff != "" {
		t.Error(diff)
	}
	for _, words := range []string{"beside 1000 idle Databases", "the p50 is 1.50 times and the p95 1.25 times"} {
		if !strings.Contains(second.Note, words) {
			t.Errorf("the note %q does not say %q", second.Note, words)
		}
	}
	if first.Peer != nil || strings.Contains(first.Note+second.Note, "best known") {
		t.Errorf("it is compared with another operator, which was not measured so: %+v, %+v", first, second)
	}
	if *second.Target != 5 || *second.Lost != 0 {
		t.Errorf("target %g, lost %d", *second.Target, *second.Lost)
	}
	if _, _, err := Beside(e, runs(1), nil, 1000); err == nil {
		t.Error("no runs beside a crowd compare with any")
	}
}
