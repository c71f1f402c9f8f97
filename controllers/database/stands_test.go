package database

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestAReplicaThatStandsStillIsTold(t *testing.T) {
	const words = "it stands still: it has applied nothing past 0/3000060, and the log of orders-1 has gone on"
	stepOf := func(state, reason, message string) v1.DatabaseStatus {
		return v1.DatabaseStatus{Instances: []v1.InstanceStatus{{Name: "orders-3", State: state, Reason: reason, Message: message}}}
	}
	well, still, copied := stepOf("running", "", ""), stepOf("running", v1.ReasonStandsStill, words), stepOf("cloning", v1.ReasonStandsStill, words)
	held := stepOf("running", v1.ReasonReplayHeld, "its replay waits for a query")
	warning := func(reason string) []occurrence {
		return []occurrence{{corev1.EventTypeWarning, reason, "Replicate", "orders-3: " + words}}
	}
	for sentence, row := range map[string]struct {
		before, now v1.DatabaseStatus
		want        []occurrence
	}{
		"it begins to":         {well, still, warning(v1.ReasonStandsStill)},
		"it goes on to":        {still, still, nil},
		"it is copied anew":    {still, copied, warning(v1.ReasonCopiedAnew)},
		"it is well":           {copied, well, nil},
		"a new one is copied":  {v1.DatabaseStatus{}, stepOf("cloning", "", ""), nil},
		"a query holds it":     {well, held, []occurrence{{corev1.EventTypeNormal, v1.ReasonReplayHeld, "Replicate", "orders-3: its replay waits for a query"}}},
		"the query goes on":    {held, held, nil},
		"the query has no end": {held, still, warning(v1.ReasonStandsStill)},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(row.want, changes(row.before, row.now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAReplicaThatStandsStillIsNotHealthy, though the leader still sends it what it does not apply.
func TestAReplicaThatStandsStillIsNotHealthy(t *testing.T) {
	s := settled(3)
	s.report("orders-3", func(r *engine.Report) { r.Ready, r.Reason, r.Problem = false, v1.ReasonStandsStill, "it stands still" })
	p := decide(s.Seen, surroundings(), noon())
	d := draft{seen: s.Seen, Plan: p}
	if d.healthy("orders-3") || !d.healthy("orders-2") {
		t.Errorf("healthy: orders-2 %v, orders-3 %v", d.healthy("orders-2"), d.healthy("orders-3"))
	}
	status := summarise(s.Seen, p, Acted{}, noon())
	if status.Ready != "2/3" || status.Phase != v1.PhaseDegraded {
		t.Errorf("%s, %s ready", status.Phase, status.Ready)
	}
	for _, i := range status.Instances {
		if i.Name == "orders-3" && (i.Ready || i.Reason != v1.ReasonStandsStill || i.Message != "it stands still") {
			t.Errorf("it is shown as %+v", i)
		}
	}
}
