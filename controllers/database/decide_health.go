package database

import (
	"fmt"
	"slices"
)

// healthy says that an instance serves in its role and counts in majorities.
func (d *draft) healthy(name string) bool {
	return d.serves(name) && d.inStep(name)
}

// serves by its own word, which says nothing of the commits that wait for it.
func (d *draft) serves(name string) bool {
	r := d.seen.report(name)
	pod := d.seen.Pods[name]
	return r != nil && r.Ready && pod != nil && pod.DeletionTimestamp == nil && d.Leadership.votes(name)
}

// inStep is the leader's word, for it is the leader that commits: a replica may still catch up, or not have noticed that its
// connection is gone, and serve reads all the while. What a silent leader counts is not known.
func (d *draft) inStep(name string) bool {
	if name == d.Leadership.Leader {
		return true
	}
	leader := d.seen.report(d.Leadership.Leader)
	return leader != nil && slices.Contains(leader.Streaming, name)
}

// unhealthyBeside is the first wanted instance but one that is not healthy; empty if all are. Fenced ones are down on purpose. Of two, the
// witness is asked, too: without it, one alone is no majority.
func (d *draft) unhealthyBeside(name string) string {
	if other := d.unfitBeside(name, d.healthy); other != "" {
		return other
	}
	if w := d.Leadership.Witness; w != "" && len(d.Wanted) == 2 {
		if r := d.seen.report(w); r == nil || !r.Ready {
			return w
		}
	}
	return ""
}

func (d *draft) unfitBeside(name string, fit func(string) bool) string {
	off := fenced(d.seen.Database)
	for _, other := range d.Wanted {
		if other != name && !off[other] && !off["*"] && !fit(other) {
			return other
		}
	}
	return ""
}

// lacking says what an instance that is not healthy is waited for to do.
func (d *draft) lacking(name string) string {
	if d.serves(name) {
		return fmt.Sprintf("waiting for %s to be in step with %s", name, orUnknown(d.Leadership.Leader))
	}
	return fmt.Sprintf("waiting for %s to become ready", name)
}
