package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Size of a process that must not grow for ever. Memory is in KiB; sockets are files, too.
type Size struct {
	What                                        string
	Memory, Files, Sockets, Threads, Goroutines int
}

// Growth is what processes were over time, by their numbers.
type Growth map[int][]sample

type sample struct {
	Size
	at time.Time
}

// Note the sizes of a moment.
func (g Growth) Note(now map[int]Size, at time.Time) {
	for pid, is := range now {
		if old := g[pid]; len(old) > 0 && old[0].What != is.What {
			delete(g, pid) // another process by now
		}
		g[pid] = append(g[pid], sample{is, at})
	}
}

// leastSamples of a process for its growth to say something.
const leastSamples = 6

// Leaks are processes that have lived for a while and have grown by more than a busy moment explains: the median of the last third of what
// was seen is held against that of the first third. It names all that were compared.
func (g Growth) Leaks(lived time.Duration) (found, compared []string) {
	for _, all := range g {
		if len(all) < leastSamples || all[len(all)-1].at.Sub(all[0].at) < lived {
			continue
		}
		first, last := all[:len(all)/3], all[len(all)-len(all)/3:]
		words := fmt.Sprintf("%s in %s", all[0].What, all[len(all)-1].at.Sub(all[0].at).Round(time.Second))
		for _, of := range []struct {
			what  string
			of    func(sample) int
			allow func(before int) int
		}{
			{"KiB", func(s sample) int { return s.Memory }, func(n int) int { return 6<<10 + n/5 }},
			{"files", func(s sample) int { return s.Files }, func(int) int { return 6 }},
			{"sockets", func(s sample) int { return s.Sockets }, func(int) int { return 6 }},
			{"threads", func(s sample) int { return s.Threads }, func(int) int { return 6 }},
			{"goroutines", func(s sample) int { return s.Goroutines }, func(n int) int { return 10 + n/20 }},
		} {
			before, now := median(first, of.of), median(last, of.of)
			words += fmt.Sprintf(", %s %d to %d", of.what, before, now)
			if now > before+of.allow(before) {
				found = append(found, fmt.Sprintf("%s has grown from %d to %d %s", all[0].What, before, now, of.what))
			}
			if before == 0 && of.what != "sockets" {
				found = append(found, fmt.Sprintf("how many %s %s has is not known", of.what, all[0].What))
			}
		}
		compared = append(compared, words)
	}
	slices.Sort(found)
	slices.Sort(compared)
	return found, compared
}

func median(all []sample, of func(sample) int) int {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b sample) int { return cmp.Compare(of(a), of(b)) })
	return of(sorted[len(sorted)/2])
}
