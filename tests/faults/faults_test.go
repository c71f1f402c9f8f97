package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBookGoesOnWhereItWasInterrupted(t *testing.T) {
	book := Book{Dir: t.TempDir()}
	if n, err := book.Next("freeze"); n != 1 || err != nil {
		t.Fatalf("the first run is number %d (%v)", n, err)
	}
	want := []Run{
		{Event: "freeze", Number: 1, At: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), Gap: 4.5, HandOvers: []HandOver{{Epoch: 3, From: "a", To: "b", Cause: "failover", Millis: 4100}}},
		{Event: "freeze", Number: 2, Problems: []string{"two writers"}},
	}
	for _, r := range want {
		if err := book.Keep(r); err != nil {
			t.Fatal(err)
		}
	}
	half := filepath.Join(book.Dir, "freeze", "003.json.part")
	if err := os.WriteFile(half, []byte(`{"event":"fre`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := book.Runs("freeze")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("runs (-want +got), %v:\n%s", err, diff)
	}
	if n, err := book.Next("freeze"); n != 3 || err != nil {
		t.Errorf("the next run is number %d (%v), want 3", n, err)
	}
	if err := os.WriteFile(filepath.Join(book.Dir, "freeze", "004.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := book.Runs("freeze"); err == nil {
		t.Error("a damaged run is passed over in silence")
	}
}

func TestReport(t *testing.T) {
	events := []Event{
		{Name: "freeze", Target: 6, Peer: 27, Note: "frozen"},
		{Name: "partition", Target: 6},
		{Name: "manager", Measured: true, Target: 5},
		{Name: "node-loss"},
		{Name: "drain"},
	}
	runs := map[string][]Run{
		"freeze":    {{Number: 1, Gap: 4, Whole: 9, HandOvers: make([]HandOver, 1)}, {Number: 2, Gap: 5, Stale: 0.25, HandOvers: make([]HandOver, 2)}},
		"partition": {{Number: 1, Gap: 7, Lost: 3, Second: 1, Problems: []string{"3 writes lost"}}},
		"drain":     {{Number: 1, Gap: 0.9, Parts: []float64{0.9, 0.1, 0.2}}},
		"manager":   {{Number: 1, Gap: 0.1, Measure: 2}},
	}
	page, err := Report(events, runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| freeze | 2 | 0 | 4.00 | 5.00 | 5.00 | 6, met | 27 | 0 | 0 | 0.25 | 9.0 | 1 to 2 |",
		"| partition | 1 | 1 | 7.00 | 7.00 | 7.00 | 6, **missed** |  | 3 | 1 | 0.00 | 0.0 | 0 |",
		"| manager | 1 | 0 | 2.00 | 2.00 | 2.00 | 5, met |",
		"| node-loss | 0 |",
		"| drain | 1 | 0 | 0.20 | 0.90 | 0.90 |",
		"partition, run 1:\n- 3 writes lost\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the report lacks %q:\n%s", want, page)
		}
	}
	if f := events[1].Figure(runs["partition"]); *f.Lost != 3 || !strings.Contains(f.Note, "1 acknowledgements of a second writer") || !strings.Contains(f.Note, "1 of 1 runs failed") {
		t.Errorf("the figure hides what went wrong: %+v", f)
	}
}
