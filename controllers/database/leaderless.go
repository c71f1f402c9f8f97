package database

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// telling is how much a reason tells of why nobody leads, the most first: what a person can change, then what passes by itself.
func telling() []string {
	return append(lasting(),
		v1.ReasonRecovering, v1.ReasonGrantsMissing, v1.ReasonBeingPromoted, v1.ReasonNotRouted, v1.ReasonStillReceives, v1.ReasonStopsServer, v1.ReasonGrantRuns,
		v1.ReasonJustRestarted, v1.ReasonTriesAgain, v1.ReasonStandsAside, v1.ReasonNoVote, v1.ReasonCannotLead)
}

// lasting are those that may go on for longer than a change of hands takes, and so are worth an event.
func lasting() []string {
	return []string{
		v1.ReasonAPIServerAway, v1.ReasonLeaseOlder, v1.ReasonLeaseUnusable, v1.ReasonOnlyLastLeader, v1.ReasonVotersSilent, v1.ReasonVotersRefuse,
		v1.ReasonVotersAhead, v1.ReasonPromiseUnwritten, v1.ReasonPositionUnknown,
	}
}

// rank in that order; what another release of the agent says that this one does not know comes last.
func rank(reason string) int {
	if i := slices.Index(telling(), reason); i >= 0 {
		return i
	}
	return len(telling())
}

// mostWaits bounds the reasons that a message tells.
const mostWaits = 2

// leaderless says why nobody leads, in the words of those who wait, the most telling first, but for reasons that are told already; empty if
// none says so.
func leaderless(s Seen, told ...string) string {
	type group struct{ reason, text, who string }
	var groups []group
	for _, name := range byOrdinal(s.Database.Name, sortedKeys(s.Heard)) {
		r := s.report(name)
		if r == nil || r.Waits == nil || slices.Contains(told, r.Waits.For) {
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.text == r.Waits.Text })
		if i < 0 {
			groups = append(groups, group{r.Waits.For, r.Waits.Text, name})
			continue
		}
		groups[i].who += ", " + name
	}
	slices.SortStableFunc(groups, func(a, b group) int { return rank(a.reason) - rank(b.reason) })
	var out []string
	for _, g := range groups[:min(len(groups), mostWaits)] {
		out = append(out, g.who+": "+g.text)
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, "; ")
}

// waits tells what nobody leads for, once that lasts and whenever it becomes something else. The recorder counts a reason that comes
// again, so there are no more of these events than reasons.
func waits(before, now v1.DatabaseStatus) (occurrence, bool) {
	c := meta.FindStatusCondition(now.Conditions, v1.ConditionReady)
	reason := waitReason(now)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1.ReasonNoPrimary || !slices.Contains(lasting(), reason) || waitReason(before) == reason {
		return occurrence{}, false
	}
	return occurrence{corev1.EventTypeWarning, reason, "Elect", c.Message}, true
}

// waitReason is the most telling of the instances' reasons for why nobody leads; empty without one.
func waitReason(s v1.DatabaseStatus) string {
	best := ""
	for _, i := range s.Instances {
		if slices.Contains(telling(), i.Reason) && (best == "" || rank(i.Reason) < rank(best)) {
			best = i.Reason
		}
	}
	return best
}
