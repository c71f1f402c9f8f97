// Package bench keeps measured figures: docs/benchmarks/*.json, and the page that is drawn from them.
package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Figure is one measurement of many runs. Every number is in Unit.
type Figure struct {
	// Name as group/what; the group names the file.
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Better is "lower" or "higher".
	Better string  `json:"better"`
	N      int     `json:"n"`
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
	// Target that the p95 should reach; nil where there is none. Peer is the best known of others, with its source in Note.
	Target *float64 `json:"target,omitempty"`
	Peer   *float64 `json:"peer,omitempty"`
	// Lost acknowledged writes in all runs; nil where nothing was written.
	Lost    *int      `json:"lost,omitempty"`
	Machine string    `json:"machine"`
	Commit  string    `json:"commit"`
	Note    string    `json:"note,omitempty"`
	Raw     []float64 `json:"raw"`
}

// Summarise fills N and the percentiles from Raw, which it keeps in the order of the runs.
func (f Figure) Summarise() (Figure, error) {
	group, what, found := strings.Cut(f.Name, "/")
	switch {
	case !found || group == "" || what == "":
		return f, fmt.Errorf("figure %q: a name is group/what", f.Name)
	case f.Better != "lower" && f.Better != "higher":
		return f, fmt.Errorf("figure %s: better is %q, not lower or higher", f.Name, f.Better)
	case len(f.Raw) == 0:
		return f, fmt.Errorf("figure %s: no runs", f.Name)
	}
	sorted := slices.Sorted(slices.Values(f.Raw))
	f.N, f.Max = len(sorted), sorted[len(sorted)-1]
	f.P50, f.P95, f.P99 = percentile(sorted, 50), percentile(sorted, 95), percentile(sorted, 99)
	return f, nil
}

// percentile is the nearest-rank percentile of sorted values: a value that was measured.
func percentile(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// Record puts a figure into its group's file in a directory, in place of an older one of the same name.
func Record(dir string, f Figure) error {
	f, err := f.Summarise()
	if err != nil {
		return err
	}
	group, _, _ := strings.Cut(f.Name, "/")
	path := filepath.Join(dir, group+".json")
	all, err := read(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	all = append(slices.DeleteFunc(all, func(old Figure) bool { return old.Name == f.Name }), f)
	slices.SortFunc(all, func(a, b Figure) int { return cmp.Compare(a.Name, b.Name) })
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a directory of the documentation
		return fmt.Errorf("record %s: %w", f.Name, err)
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.Name, err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil { //nolint:gosec // figures are public
		return fmt.Errorf("record %s: %w", f.Name, err)
	}
	return nil
}

func read(path string) ([]Figure, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	var all []Figure
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("read figures of %s: %w", path, err)
	}
	return all, nil
}
