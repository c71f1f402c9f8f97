package driver

import (
	"fmt"
	"strconv"
	"strings"
)

// lsn is a position in the write-ahead log.
type lsn uint64

func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

func parseLSN(text string) (lsn, error) {
	high, low, ok := strings.Cut(text, "/")
	h, err1 := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%q is no position in the log", text)
	}
	return lsn(h<<32 | l), nil
}

// fork says that a timeline ended at a position, where the next one begins.
type fork struct {
	timeline uint32
	end      lsn
}

// maxForks bounds a history: each is a change of hands.
const maxForks = 100_000

// parseHistory reads a timeline's history file: the timelines that led to it, oldest first.
func parseHistory(text string) ([]fork, error) {
	var all []fork
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 2 {
			return nil, fmt.Errorf("history line %q has no position", line)
		}
		timeline, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("history line %q has no timeline", line)
		}
		end, err := parseLSN(f[1])
		if err != nil {
			return nil, fmt.Errorf("history line %q: %w", line, err)
		}
		if n := len(all); n > 0 && (uint32(timeline) <= all[n-1].timeline || end < all[n-1].end) {
			return nil, fmt.Errorf("history line %q is out of order", line)
		}
		if len(all) == maxForks {
			return nil, fmt.Errorf("history has more than %d lines", maxForks)
		}
		all = append(all, fork{uint32(timeline), end})
	}
	return all, nil
}

// begin of the timeline that this history is of.
func begin(history []fork) lsn {
	if len(history) == 0 {
		return 0
	}
	return history[len(history)-1].end
}

// place is where a member's log ends.
type place struct {
	system   string
	timeline uint32
	end      lsn
}

// source is an upstream: its place and the history of its timeline.
type source struct {
	place
	history []fork
	oldest  uint64 // number of the oldest segment that it has; 0 if unknown
	segment lsn    // size of a segment
	// standby: it has not been promoted yet, or has only just been. That it precedes such a one is all that can be said.
	standby bool
	// settled: a standby that receives nothing and has replayed all that it has, so that its own timeline will begin at its end.
	settled bool
}

// relation of a member's data to its upstream's.
type relation int

const (
	// follows: the member's log is a part of the upstream's.
	follows relation = iota
	// behind: so it is, but the upstream no longer has what comes next.
	behind
	// forked: the member has a log that the upstream's history does not have.
	forked
	// ahead: the member has more of the same timeline than the upstream: some of it is lost or wrong.
	ahead
	// foreign: another database altogether.
	foreign
)

// relate compares. What it does not understand is forked: rewinding or copying anew is never wrong.
func relate(m place, s source) relation {
	if m.system != s.system {
		return foreign
	}
	if m.timeline == s.timeline {
		if m.end > s.end {
			return ahead
		}
		return available(m, s)
	}
	for _, f := range s.history {
		if f.timeline != m.timeline {
			continue
		}
		if m.end <= f.end {
			return available(m, s)
		}
		return forked
	}
	return forked
}

// available tells whether the upstream still has the segment that the member goes on from.
func available(m place, s source) relation {
	if s.oldest > 0 && s.segment > 0 && uint64(m.end/s.segment) < s.oldest {
		return behind
	}
	return follows
}
