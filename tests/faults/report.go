package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

// Event is what a report says of an event beside its runs.
type Event struct {
	Name string
	// Target and Peer for the p95 of its figure, in seconds; zero for none.
	Target, Peer float64
	// Note says what happens, and where the peer's figure is from.
	Note string
	// Measured says that the figure is what the event measures, not the gap in writes.
	Measured bool
}

// Values of a run that the event's figure is made of.
func (e Event) Values(r Run) []float64 {
	switch {
	case e.Measured:
		return []float64{r.Measure}
	case len(r.Parts) > 0:
		return r.Parts
	}
	return []float64{r.Gap}
}

// Figure of an event's runs, failed ones among them: what they measured counts.
func (e Event) Figure(runs []Run) bench.Figure {
	f := bench.Figure{Name: "postgres/" + e.Name, Unit: "s", Better: "lower", Note: e.Note}
	if e.Target > 0 {
		f.Target = &e.Target
	}
	if e.Peer > 0 {
		f.Peer = &e.Peer
	}
	lost, failed, second := 0, 0, 0
	for _, r := range runs {
		f.Raw = append(f.Raw, e.Values(r)...)
		lost += r.Lost
		second += r.Second
		if len(r.Problems) > 0 {
			failed++
		}
	}
	f.Lost = &lost
	if second > 0 {
		f.Note += fmt.Sprintf("; %d acknowledgements of a second writer", second)
	}
	if failed > 0 {
		f.Note += fmt.Sprintf("; %d of %d runs failed", failed, len(runs))
	}
	return f
}

// Report draws what the runs show as Markdown, event by event in the given order, and every problem below.
func Report(events []Event, runs map[string][]Run) (string, error) {
	var page, problems strings.Builder
	page.WriteString("| event | runs | failed | p50 s | p95 s | max s | target s | peer s | lost | second writers | stale reads, max s | ready again, max s | changes of hands |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, e := range events {
		of := runs[e.Name]
		if len(of) == 0 {
			fmt.Fprintf(&page, "| %s | 0 | | | | | %s | %s | | | | | |\n", e.Name, seconds(e.Target), seconds(e.Peer))
			continue
		}
		f, err := e.Figure(of).Summarise()
		if err != nil {
			return "", err
		}
		failed, second, stale, whole := 0, 0, 0.0, 0.0
		hands := map[int]bool{}
		for _, r := range of {
			if len(r.Problems) > 0 {
				failed++
				fmt.Fprintf(&problems, "\n%s, run %d:\n", e.Name, r.Number)
			}
			for _, p := range r.Problems {
				fmt.Fprintf(&problems, "- %s\n", p)
			}
			second += r.Second
			stale, whole = max(stale, r.Stale), max(whole, r.Whole)
			hands[len(r.HandOvers)] = true
		}
		fmt.Fprintf(&page, "| %s | %d | %d | %.2f | %.2f | %.2f | %s | %s | %d | %d | %.2f | %.1f | %s |\n", e.Name, len(of), failed, f.P50, f.P95, f.Max,
			judged(e.Target, f.P95), seconds(e.Peer), *f.Lost, second, stale, whole, counts(hands))
	}
	return page.String() + problems.String(), nil
}

func seconds(n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%g", n)
}

func judged(target, p95 float64) string {
	switch {
	case target == 0:
		return ""
	case p95 <= target:
		return seconds(target) + ", met"
	}
	return seconds(target) + ", **missed**"
}

func counts(seen map[int]bool) string {
	var all []int
	for n := range seen {
		all = append(all, n)
	}
	slices.Sort(all)
	if len(all) == 1 {
		return fmt.Sprint(all[0])
	}
	return fmt.Sprintf("%d to %d", all[0], all[len(all)-1])
}
