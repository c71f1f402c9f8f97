package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarise(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, tc := range map[string]struct {
		figure Figure
		want   Figure
		err    string
	}{
		"one run is every percentile":               {figure: Figure{Name: "g/one", Better: "lower", Raw: []float64{7}}, want: Figure{N: 1, P50: 7, P95: 7, P99: 7, Max: 7}},
		"percentiles are values that were measured": {figure: Figure{Name: "g/many", Better: "lower", Raw: hundred}, want: Figure{N: 100, P50: 50, P95: 95, P99: 99, Max: 100}},
		"no runs":                  {figure: Figure{Name: "g/none", Better: "lower"}, err: "no runs"},
		"a name without a group":   {figure: Figure{Name: "one", Better: "lower", Raw: []float64{1}}, err: "group/what"},
		"a direction that is none": {figure: Figure{Name: "g/one", Better: "best", Raw: []float64{1}}, err: "not lower or higher"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.figure.Summarise()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff([]float64{float64(tc.want.N), tc.want.P50, tc.want.P95, tc.want.P99, tc.want.Max}, []float64{float64(got.N), got.P50, got.P95, got.P99, got.Max}); err != nil || diff != "" {
				t.Errorf("error %v, n, p50, p95, p99, max (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAMachineIsToldByWhatItsKernelCosts(t *testing.T) {
	var cores int
	var arch string
	var call, touch, start float64
	_, err := fmt.Sscanf(strings.ReplaceAll(Machine(), ",", ""), "%d cores %s a system call takes %f us there a page's first touch %f us a program's start and end %f ms", &cores, &arch, &call, &touch, &start)
	if err != nil || call <= 0 || touch <= 0 || start <= 0 {
		t.Errorf("%q: %v", Machine(), err)
	}
}

func TestRecordReplacesAndPageJudges(t *testing.T) {
	dir := t.TempDir()
	one := 1.0
	none := 0
	for _, f := range []Figure{
		{Name: "postgres/switchover", Unit: "s", Better: "lower", Raw: []float64{9}, Target: &one},
		{Name: "postgres/switchover", Unit: "s", Better: "lower", Raw: []float64{0.5, 0.6}, Target: &one, Lost: &none},
		{Name: "postgres/late", Unit: "s", Better: "lower", Raw: []float64{2}, Target: &one},
	} {
		if err := Record(dir, f); err != nil {
			t.Fatal(err)
		}
	}
	page, err := Page(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| switchover | s | 2 | 0.5 | 0.6 | 0.6 | 0.6 | 1, met (p95 0.6, max 0.6) |  | 0 |", "| late | s | 1 | 2 | 2 | 2 | 2 | 1, **missed** (p95 2, max 2) |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no row %q:\n%s", want, page)
		}
	}
}
