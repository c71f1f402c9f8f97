package database

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestRolesAreLabelledOnceClientsAreSentToTheLeader: the label of a replica is what its Service selects by, and a change there must not keep
// kube-proxy from the change that clients wait for.
func TestRolesAreLabelledOnceClientsAreSentToTheLeader(t *testing.T) {
	const primary, replica = v1.RolePrimary, v1.RoleReplica
	before := map[string]v1.Role{"orders-1": primary, "orders-2": replica, "orders-3": replica}
	after := map[string]v1.Role{"orders-1": replica, "orders-2": primary, "orders-3": replica}
	for sentence, row := range map[string]struct {
		told *engine.HandOver
		want map[string]v1.Role
	}{
		"they are not yet":                    {&engine.HandOver{Epoch: 2, Elected: noon().Add(-29 * time.Second).UnixMilli(), Promoted: 5}, before},
		"they are not for long":               {&engine.HandOver{Epoch: 2, Elected: noon().Add(-30 * time.Second).UnixMilli(), Promoted: 5}, after},
		"they are":                            {&engine.HandOver{Epoch: 2, Promoted: 5, Routed: 6}, after},
		"an agent that restarted tells none":  {nil, after},
		"what it tells is of an earlier time": {&engine.HandOver{Epoch: 1, Promoted: 5}, after},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			for name, role := range before {
				s.Pods[name].Labels[v1.LabelRole] = string(role)
			}
			s.lead(2, 2)
			s.report("orders-2", func(r *engine.Report) { r.HandOver = row.told })
			if diff := cmp.Diff(row.want, decide(s.Seen, surroundings(), noon()).Roles); diff != "" {
				t.Errorf("roles (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRolesStayWhileTheLeadIsBetweenTwo: of a leader that has let go nobody is told in time for that to be the first change; where nobody can follow
// it, it is a replica like the others.
func TestRolesStayWhileTheLeadIsBetweenTwo(t *testing.T) {
	const primary, replica = v1.RolePrimary, v1.RoleReplica
	for sentence, row := range map[string]struct {
		silent []string
		waits  string // what orders-2 does for
		want   v1.Role
	}{
		"another one will lead":           {nil, v1.ReasonGrantRuns, primary},
		"another one can lead without it": {[]string{"orders-3"}, "", primary},
		"nobody can":                      {[]string{"orders-2", "orders-3"}, "", replica},
		"something lasts":                 {nil, v1.ReasonVotersAhead, replica},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			for name, role := range map[string]v1.Role{"orders-1": primary, "orders-2": replica, "orders-3": replica} {
				s.Pods[name].Labels[v1.LabelRole] = string(role)
			}
			s.report("orders-1", func(r *engine.Report) { r.Leading, r.Role = false, engine.Replica })
			if row.waits != "" {
				s.report("orders-2", func(r *engine.Report) { r.Waits = &engine.Wait{For: row.waits} })
			}
			for _, name := range row.silent {
				delete(s.Heard, name)
			}
			want := map[string]v1.Role{"orders-1": row.want, "orders-2": replica, "orders-3": replica}
			if diff := cmp.Diff(want, decide(s.Seen, surroundings(), noon()).Roles); diff != "" {
				t.Errorf("roles (-want +got):\n%s", diff)
			}
		})
	}
}
