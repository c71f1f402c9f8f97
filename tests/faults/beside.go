package faults

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

// Beside are the figures of an event's runs on a Database alone, and of as many beside a crowd of others. The note of the second says how
// they compare.
func Beside(e Event, alone, beside []Run, crowd int) (first, second bench.Figure, err error) {
	if len(alone) == 0 || len(beside) == 0 {
		return first, second, fmt.Errorf("compare %s: %d runs alone, %d beside others", e.Name, len(alone), len(beside))
	}
	what, _, _ := strings.Cut(e.Note, "; best known") // whose cluster had no crowd
	e.Peer, e.Note = 0, what+"; no other Database is there; the nodes' NetworkPolicy agents are off"
	if first, err = e.Figure(alone).Summarise(); err != nil {
		return first, second, err
	}
	first.Name = "manager/failover-alone-" + e.Name
	e.Note = fmt.Sprintf("%s; beside %d idle Databases of three simulated agents each, of the same manager; the nodes' NetworkPolicy agents are off", what, crowd)
	if second, err = e.Figure(beside).Summarise(); err != nil {
		return first, second, err
	}
	second.Name = fmt.Sprintf("manager/failover-beside-%d-%s", crowd, e.Name)
	second.Note += fmt.Sprintf("; of alone, the p50 is %s and the p95 %s", times(second.P50, first.P50), times(second.P95, first.P95))
	return first, second, nil
}

func times(a, b float64) string {
	if b == 0 {
		return "nothing to compare with"
	}
	return fmt.Sprintf("%.2f times", a/b)
}
