package database

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// bereft is three instances of which the leader and the third have lost their volumes, and run again without data.
func bereft() *scene {
	s := settled(3)
	s.Lease.ResourceVersion = "7"
	for _, n := range []int32{1, 2, 3} {
		s.report(name(n), func(r *engine.Report) {
			r.Leading, r.Role, r.Ready, r.InSync, r.Streaming = false, engine.Replica, n == 2, 0, nil
			if n != 2 {
				r.Role, r.State, r.Position, r.LagBytes = engine.Stopped, "failed", engine.Position{}, -1
				r.Reason, r.Problem = saysNoPrimary, "this instance has no usable data and there is no primary to copy"
			}
		})
	}
	s.obey()
	return s
}

// bereftPair is a pair of which the leader is gone for good; the replica and the witness are there.
func bereftPair() *scene {
	s := witnessed()
	s.Lease.ResourceVersion = "7"
	s.down(1)
	s.report("orders-2", func(r *engine.Report) { r.Leading, r.Role = false, engine.Replica })
	s.obey()
	return s
}

// down takes an instance's pod out of service, unheard.
func (s *scene) down(n int32) {
	s.silence(name(n))
	s.Pods[name(n)].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func TestRecoverRequest(t *testing.T) {
	ask := func(s *scene, target, more string, in time.Duration) *scene {
		s.annotate(v1.AnnotationRecover, `{"id":"r","target":"`+target+`","expires":"`+noon().Add(in).Format(time.RFC3339)+`"`+more+`}`)
		return s
	}
	const good = `,"leaseVersion":"7","acceptLoss":true`
	said := func(s *scene, state, message string) *scene {
		s.report("orders-2", func(r *engine.Report) { r.Requests = []engine.Answer{{ID: "r", State: state, Message: message}} })
		return s
	}
	without := func(s *scene) *scene { s.Lease, s.Database.Status.Epoch = nil, 4; return s }
	for sentence, row := range map[string]struct {
		scene   *scene
		answers []string
		aims    []string
	}{
		"the named instance gets the order, and the others are heard": {
			ask(bereft(), "orders-2", good, time.Minute),
			[]string{"recover r: Running"},
			[]string{"orders-2: members 1,2,3 epoch 1 recover r on 7 lost "},
		},
		"who is silent and not ready does not run": {
			func() *scene { s := ask(bereft(), "orders-2", good, time.Minute); s.down(1); s.down(3); return s }(),
			[]string{"recover r: Running"},
			[]string{"orders-2: members 1,2,3 epoch 1 recover r on 7 lost orders-1,orders-3"},
		},
		"who is silent and ready may lead": {
			func() *scene { s := ask(bereft(), "orders-2", good, time.Minute); s.silence("orders-1"); return s }(),
			[]string{"recover r: Running, orders-1 is not heard, and the kubelet finds it ready: it may lead. Delete its pod if it does not run"},
			[]string{"orders-2: members 1,2,3 epoch 1 recover r on 7 lost "},
		},
		"a witness that is silent and ready may have granted to a leader": {
			func() *scene {
				s := ask(bereftPair(), "orders-2", good, time.Minute)
				s.silence("orders-w1")
				return s
			}(),
			[]string{"recover r: Running, orders-w1 is not heard, and the kubelet finds it ready: a leader may count on it. Delete its pod if it does not run"},
			[]string{"orders-2: members 1,2 epoch 1 recover r on 7 lost orders-1"},
		},
		"a witness that is silent and not ready does not run": {
			func() *scene {
				s := ask(bereftPair(), "orders-2", good, time.Minute)
				s.lost("orders-w1", time.Minute)
				return s
			}(),
			[]string{"recover r: Running"},
			[]string{"orders-2: members 1,2 epoch 1 recover r on 7 lost orders-w1,orders-1"},
		},
		"a silent target is waited for": {
			func() *scene { s := ask(bereft(), "orders-2", good, time.Minute); s.down(2); return s }(),
			[]string{"recover r: Running, the agent of orders-2 is not heard"},
			nil,
		},
		"and not for ever": {
			func() *scene { s := ask(bereft(), "orders-2", good, -time.Second); s.down(2); return s }(),
			[]string{"recover r: Expired, it was not begun in time; the agent of orders-2 is not heard"},
			nil,
		},
		"without a Lease the epoch of the status keeps the order from being stale": {
			ask(without(bereft()), "orders-2", good, time.Minute),
			[]string{"recover r: Running"},
			[]string{"orders-1: members 1,2,3 epoch 0", "orders-2: members 1,2,3 epoch 4 recover r on 7 lost ", "orders-3: members 1,2,3 epoch 0"},
		},
		"nor does a Lease that came back from a backup with the status": {
			func() *scene {
				s := ask(bereft(), "orders-2", good, time.Minute)
				s.report("orders-2", func(r *engine.Report) { r.Epoch = 6 })
				s.report("orders-3", func(r *engine.Report) { r.Epoch = 7 })
				return s
			}(),
			[]string{"recover r: Running"},
			[]string{"orders-2: members 1,2,3 epoch 7 recover r on 7 lost "},
		},
		"the loss must be accepted":      {ask(bereft(), "orders-2", `,"leaseVersion":"7"`, time.Minute), []string{"recover r: Failed, acceptLoss is not true: what the instance lacks would be lost"}, nil},
		"the Lease must be named":        {ask(bereft(), "orders-2", `,"acceptLoss":true`, time.Minute), []string{"recover r: Failed, leaseVersion is missing: the resourceVersion of the Lease on which the loss was accepted"}, nil},
		"an unknown instance is refused": {ask(bereft(), "orders-9", good, time.Minute), []string{`recover r: Failed, there is no instance "orders-9"`}, nil},
		"with a leader it is refused":    {ask(settled(3), "orders-2", good, time.Minute), []string{"recover r: Failed, orders-1 leads with epoch 1: nothing is lost"}, nil},
		"it leads by the request, and the Lease that says so is not seen yet": {
			func() *scene {
				s := ask(bereft(), "orders-2", good, time.Minute)
				s.report("orders-2", func(r *engine.Report) { r.Leading, r.Epoch = true, 2 })
				return s
			}(),
			[]string{"recover r: Running"},
			[]string{"orders-1: members 1,2,3 epoch 2", "orders-2: members 1,2,3 epoch 2 recover r on 7 lost ", "orders-3: members 1,2,3 epoch 2"},
		},
		"the instance's own refusal is told": {said(ask(bereft(), "orders-2", good, time.Minute), "Failed", "the Lease has changed"), []string{"recover r: Failed, the Lease has changed"}, nil},
		"the instance's success is told":     {said(ask(bereft(), "orders-2", good, -time.Hour), "Done", "orders-2 leads with epoch 2"), []string{"recover r: Done, orders-2 leads with epoch 2"}, nil},
		"a paused Database is left as it is": {func() *scene {
			s := ask(bereft(), "orders-2", good, time.Minute)
			s.Database.Spec.Maintenance.Paused = true
			return s
		}(), nil, nil},
		"what was answered is not done again": {func() *scene {
			s := ask(bereft(), "orders-2", good, time.Minute)
			s.Database.Status.Requests = []v1.RequestStatus{{ID: "r", Kind: kindRecover, State: v1.RequestDone}}
			return s
		}(), nil, nil},
		"a manager that starts anew reads it from the Lease": {
			func() *scene {
				s := ask(settled(3), "orders-1", good, time.Minute)
				s.Lease.Annotations[v1.AnnotationLeadership] = `{"epoch":1,"leader":"orders-1","voters":["orders-1","orders-2","orders-3"],"recovered":{"id":"r","epoch":1}}`
				return s
			}(), []string{"recover r: Done, orders-1 leads with epoch 1"}, nil,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, got := play(t, row.scene)
			if diff := cmp.Diff(row.answers, got.Answers); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.aims, got.Aims); diff != "" {
				t.Errorf("aims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestALostMajorityIsSaid with the command that helps, where it is certain; and where it is not, so.
func TestALostMajorityIsSaid(t *testing.T) {
	const command = "kubectl plimsoll recover orders -n shop --from orders-2 shows what would be lost"
	for sentence, row := range map[string]struct {
		scene  func() *scene
		reason string
		holds  string
		next   bool
	}{
		"two of three, with the leader, hold no data": {bereft, v1.ReasonMajorityLost, "orders-1, orders-3 of the voters orders-1, orders-2, orders-3 have lost their data", true},
		"their pods and volumes are gone": {
			func() *scene {
				s := bereft()
				for _, n := range []int32{1, 3} {
					s.silence(name(n))
					delete(s.Pods, name(n))
					delete(s.Claims, name(n))
				}
				return s
			}, v1.ReasonMajorityLost, "orders-1, orders-3 of the voters", true,
		},
		"they are only silent": {
			func() *scene { s := bereft(); s.down(1); s.down(3); return s }, v1.ReasonNoPrimary, "too few are there", true,
		},
		"the last leader is there, and can be elected with voters that hold none": {
			func() *scene {
				s := bereft()
				s.Lease.Annotations[v1.AnnotationLeadership] = `{"epoch":1,"leader":"orders-2","voters":["orders-1","orders-2","orders-3"]}`
				return s
			}, v1.ReasonNoPrimary, "status.instances", false,
		},
		"nobody holds data": {
			func() *scene {
				s := bereft()
				s.report("orders-2", func(r *engine.Report) { r.Position, r.Reason = engine.Position{}, saysNoPrimary })
				return s
			}, v1.ReasonMajorityLost, "bring a volume's content back from a backup", false,
		},
		"the only voter": {
			func() *scene {
				s := bereft()
				s.Lease.Annotations[v1.AnnotationLeadership] = `{"epoch":1,"leader":"orders-1","voters":["orders-1"]}`
				return s
			}, v1.ReasonMajorityLost, "orders-1 has lost its data, and is the only voter", true,
		},
		"one of three is an ordinary failover": {
			func() *scene {
				s := bereft()
				s.report("orders-3", func(r *engine.Report) { r.Reason, r.Position = "", engine.Position{Timeline: 1, Bytes: 90} })
				return s
			},
			v1.ReasonNoPrimary, "status.instances", false,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := row.scene()
			plan := decide(s.Seen, surroundings(), noon())
			c := meta.FindStatusCondition(summarise(s.Seen, plan, Acted{}, noon()).Conditions, v1.ConditionReady)
			if c.Reason != row.reason || !strings.Contains(c.Message, row.holds) || strings.Contains(c.Message, command) != row.next {
				t.Errorf("Ready is %s %s: %s", c.Status, c.Reason, c.Message)
			}
			if (row.reason == v1.ReasonMajorityLost) != (plan.Stalled != nil && plan.Stalled.Reason == row.reason) {
				t.Errorf("stalled is %v", plan.Stalled)
			}
		})
	}
}

// TestAnOlderLeaseIsSaid with the command that helps, while nobody leads.
func TestAnOlderLeaseIsSaid(t *testing.T) {
	aside := func(s *scene, n int32) {
		s.report(name(n), func(r *engine.Report) {
			r.Leading, r.Role, r.Reason, r.Problem = false, engine.Replica, v1.ReasonLeaseOlder, "the Lease is missing or older than what this member saw"
		})
	}
	for sentence, row := range map[string]struct {
		change func(s *scene)
		want   string
	}{
		"who would take over says that it may not": {
			func(s *scene) {
				s.down(1)
				aside(s, 2)
				aside(s, 3)
				s.report("orders-3", func(r *engine.Report) { r.Position.Bytes = 120 })
			},
			"False LeaseOlder the Lease is missing or older than what orders-2, orders-3 saw there: it was deleted, or etcd was restored from a backup, and no leader is left to repair it. kubectl plimsoll recover orders -n shop --from orders-3 shows what would be lost; start the other instances first, one of them may have got further",
		},
		"with a leader it passes by itself": {func(s *scene) { aside(s, 3) }, "True AllReady orders-1 leads, and 3/3 instances are ready"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			row.change(s)
			plan := decide(s.Seen, surroundings(), noon())
			c := meta.FindStatusCondition(summarise(s.Seen, plan, Acted{}, noon()).Conditions, v1.ConditionReady)
			if diff := cmp.Diff(row.want, string(c.Status)+" "+c.Reason+" "+c.Message); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if told := plan.Stalled != nil && plan.Stalled.Reason == v1.ReasonLeaseOlder; told != (c.Reason == v1.ReasonLeaseOlder) {
				t.Errorf("stalled is %+v", plan.Stalled)
			}
		})
	}
}

// TestTheLastPositionIsKept while an instance tells none, for whoever must judge what would be lost.
func TestTheLastPositionIsKept(t *testing.T) {
	s := settled(3)
	s.Database.Status = summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	after := bereft()
	after.Database.Status = s.Database.Status
	after.silence("orders-3")
	for range 2 { // the second look has only what the first one kept
		after.Database.Status = summarise(after.Seen, decide(after.Seen, surroundings(), noon()), Acted{}, noon())
	}
	var got []string
	for _, i := range after.Database.Status.Instances {
		got = append(got, i.Position+" "+i.LastPosition)
	}
	if diff := cmp.Diff([]string{" 0/64", "0/64 ", " 0/64"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestWhoStillLeadsHearsOfTheLease: one that was believed to be gone, and leads by an older epoch, is told which version to look at.
func TestWhoStillLeadsHearsOfTheLease(t *testing.T) {
	s := settled(3)
	s.Lease.ResourceVersion = "7"
	s.Lease.Annotations[v1.AnnotationLeadership] = `{"epoch":5,"leader":"orders-2","voters":["orders-2"]}`
	got := map[string]string{}
	for _, p := range decide(s.Seen, surroundings(), noon()).Aims {
		got[p.To.Instance] = p.Aim.LeaseVersion
	}
	if diff := cmp.Diff(map[string]string{"orders-1": "7", "orders-2": "7", "orders-3": ""}, got); diff != "" {
		t.Errorf("LeaseVersion (-want +got):\n%s", diff)
	}
}
