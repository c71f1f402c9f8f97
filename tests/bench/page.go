package bench

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Page draws every figure of a directory as Markdown.
func Page(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return "", fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(files)
	var page strings.Builder
	page.WriteString("# Figures\n\nDrawn by `make bench-report` from `docs/benchmarks/*.json`, which hold every run. The machines are small and shared: compare\nwithin a row, not with another machine's figures. The percentiles are values that were measured (nearest rank): of 20 runs, p95 is the\nsecond worst and p99 the worst. It is the p95 that meets or misses its target; one run may miss it, so the max of all runs stands beside.\n\n\"Best known\" is the best figure of another operator for the same event. CloudNativePG's are of its main branch of August 2026, with three\ninstances and its defaults, on the same kind of cluster; the note below a table says of how many runs. Compare medians with the p50.\n")
	for _, file := range files {
		all, err := read(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, "\n## %s\n\n| figure | unit | n | p50 | p95 | p99 | max | target for p95 | best known | lost | commit |\n|---|---|---|---|---|---|---|---|---|---|---|\n", strings.TrimSuffix(filepath.Base(file), ".json"))
		for _, f := range all {
			_, what, _ := strings.Cut(f.Name, "/")
			fmt.Fprintf(&page, "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %s | %s |\n", what, f.Unit, f.N, number(f.P50), number(f.P95), number(f.P99), number(f.Max), target(f), optional(f.Peer), lost(f.Lost), f.Commit)
		}
		for _, f := range all {
			if f.Note != "" {
				fmt.Fprintf(&page, "\n%s: %s (%s)\n", f.Name, f.Note, f.Machine)
			}
		}
	}
	return page.String(), nil
}

func number(n float64) string { return strconv.FormatFloat(n, 'g', 4, 64) }

func optional(n *float64) string {
	if n == nil {
		return ""
	}
	return number(*n)
}

// target shows the target, whether the p95 reaches it, and the worst run beside, which may not.
func target(f Figure) string {
	if f.Target == nil {
		return ""
	}
	beside := fmt.Sprintf(" (p95 %s, max %s)", number(f.P95), number(f.Max))
	reached := f.P95 <= *f.Target
	if f.Better == "higher" {
		reached = f.P95 >= *f.Target
	}
	if reached {
		return number(*f.Target) + ", met" + beside
	}
	return number(*f.Target) + ", **missed**" + beside
}

func lost(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
