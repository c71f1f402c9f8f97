package database

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Causes of a change of hands.
const (
	causeFailover  = "failover"
	causeBootstrap = "bootstrap"
	causeRecover   = "recover"
	causeResume    = "resume"
	causeRaise     = "raise"
)

// lost says what a change of hands lost by what the new leader knows. Nil is not known yet.
func lost(h *engine.HandOver) (*int64, string) {
	none := new(int64)
	switch {
	case h.Cause == causeBootstrap:
		return nil, ""
	case h.Cause == causeResume:
		return none, "nothing: the same instance leads again"
	case h.Cause == causeRecover && h.From == "": // where the Lease was gone, the new leader does not know either
		return nil, "not known: the new leader cannot tell who led last"
	case h.Cause == causeRecover: // even with required: a majority was lost
	case h.Cause != causeFailover:
		return none, "nothing: the old leader handed over all that it had"
	case h.Synchronous == string(v1.SynchronousRequired):
		return none, "nothing: a majority holds each write before it is acknowledged (synchronous: required)"
	}
	if h.From == "" {
		return none, "nothing: the same instance leads again"
	}
	words := fmt.Sprintf("not known until %s is back", h.From)
	if h.Ahead >= 0 && h.Quiet > 0 {
		quiet := time.Duration(h.Quiet) * time.Millisecond
		words += fmt.Sprintf(": %s before the election its log was %d bytes longer than the new leader's, and what it wrote after that nobody has seen", quiet.Round(100*time.Millisecond), h.Ahead)
	}
	return nil, words
}

// settleLosses completes what was not known by what the old leaders found when they came back. The newest change that each of them began
// is the one: it would have to lead again for another.
func settleLosses(all []v1.HandOver, s Seen) {
	for _, name := range sortedKeys(s.Heard) {
		left := s.Heard[name].Report.Left
		i := slices.IndexFunc(all, func(h v1.HandOver) bool { return h.From == name })
		if left == nil || i < 0 || all[i].LostBytes != nil || leads(all, name, i) {
			continue
		}
		if !left.Known {
			all[i].Loss = fmt.Sprintf("not known: what %s had cannot be found out any more", name)
			continue
		}
		bytes := left.Bytes
		all[i].LostBytes = &bytes
		all[i].Loss = "nothing: " + name + " came back without a commit that the new leader lacks"
		if bytes > 0 {
			all[i].Loss = fmt.Sprintf("%d commits in %d bytes of log that only %s had", left.Commits, bytes, name)
		}
	}
}

// leads says that the instance became leader again after the change: what it tells is of another.
func leads(all []v1.HandOver, name string, before int) bool {
	return slices.ContainsFunc(all[:before], func(h v1.HandOver) bool { return h.To == name })
}
