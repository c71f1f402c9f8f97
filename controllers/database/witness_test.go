package database

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// pair is a Database of two that should have a witness, and has none yet.
func pair() *scene {
	s := settled(2)
	s.Database.Spec.Replication.Witness = ""
	s.Pods["orders-1"].Spec.NodeName, s.Pods["orders-2"].Spec.NodeName = "a", "b"
	return s
}

// witnessed is one with a witness that votes.
func witnessed() *scene {
	s := pair()
	s.witness(1, "c")
	s.seat("orders-w1")
	s.obey()
	return s
}

// witness adds one with its agent.
func (s *scene) witness(n int32, node string) {
	name := desired.WitnessName("orders", n)
	pod := desired.Witness(decide(s.Seen, surroundings(), noon()).Inputs, name)
	pod.Spec.NodeName = node
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.1.%d", n), Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	s.Witnesses[name] = pod
	s.Heard[name] = Heard{At: noon(), Report: engine.Report{Instance: name, UID: "u1", Role: engine.Witness, State: "running", Ready: true, Epoch: 1, Leader: "orders-1", LagBytes: -1}}
}

// seat writes a witness into the Lease; empty takes it away.
func (s *scene) seat(name string) {
	l := s.leadership()
	l.Witness, l.Voters = name, []string{"orders-1", "orders-2"}
	if name != "" {
		l.Voters = append(l.Voters, name)
	}
	raw, _ := json.Marshal(l)
	s.Lease.Annotations[v1.AnnotationLeadership] = string(raw)
	s.report(l.Leader, func(r *engine.Report) { r.Voters = l.Voters })
}

// lost takes a witness's agent away and has the kubelet, or the node's end, say so since then.
func (s *scene) lost(name string, since time.Duration) {
	s.silence(name)
	s.Witnesses[name].Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(noon().Add(-since))}
}

func TestWitness(t *testing.T) {
	type want struct {
		Pods, Remove []string
		Seat         string
	}
	tests := map[string]struct {
		scene func() *scene
		want  want
	}{
		"two instances get one":                      {pair, want{Pods: []string{"orders-w1"}}},
		"it is told to the members once it is there": {func() *scene { s := pair(); s.witness(1, "c"); return s }, want{Seat: "orders-w1"}},
		"nothing is to do while it votes":            {witnessed, want{Seat: "orders-w1"}},
		"none was asked for": {
			func() *scene { s := pair(); s.Database.Spec.Replication.Witness = v1.WitnessNone; return s }, want{},
		},
		"it is not wanted any more, and stays until its vote is taken away": {
			func() *scene { s := witnessed(); s.Database.Spec.Replication.Witness = v1.WitnessNone; return s }, want{},
		},
		"its vote was taken away": {
			func() *scene {
				s := witnessed()
				s.Database.Spec.Replication.Witness = v1.WitnessNone
				s.seat("")
				return s
			}, want{Remove: []string{"orders-w1"}},
		},
		"three are wanted: it stays until its vote is taken away": {
			func() *scene { s := witnessed(); s.Database.Spec.Replicas = new(int32(3)); return s }, want{Pods: []string{"orders-3"}},
		},
		"silent for a moment": {func() *scene { s := witnessed(); s.lost("orders-w1", 10*time.Second); return s }, want{Seat: "orders-w1"}},
		"lost: a successor is made, and it keeps its vote meanwhile": {
			func() *scene { s := witnessed(); s.lost("orders-w1", time.Minute); return s },
			want{Pods: []string{"orders-w2"}, Seat: "orders-w1"},
		},
		"the successor is there and takes the vote": {
			func() *scene { s := witnessed(); s.witness(2, "d"); s.lost("orders-w1", time.Minute); return s }, want{Seat: "orders-w2"},
		},
		"the successor has the vote": {
			func() *scene {
				s := witnessed()
				s.witness(2, "d")
				s.lost("orders-w1", time.Minute)
				s.seat("orders-w2")
				return s
			}, want{Seat: "orders-w2", Remove: []string{"orders-w1"}},
		},
		"it is back before its successor was of use": {
			func() *scene { s := witnessed(); s.witness(2, "d"); return s }, want{Seat: "orders-w1", Remove: []string{"orders-w2"}},
		},
		"it is being drained: a successor is made while it still votes": {
			func() *scene {
				s := witnessed()
				s.Witnesses["orders-w1"].DeletionTimestamp = new(metav1.NewTime(noon()))
				return s
			},
			want{Pods: []string{"orders-w2"}, Seat: "orders-w1"},
		},
		"an instance was placed beside it": {
			func() *scene { s := witnessed(); s.Pods["orders-2"].Spec.NodeName = "c"; return s },
			want{Pods: []string{"orders-w2"}, Seat: "orders-w1"},
		},
		"its pod was evicted": {
			func() *scene { s := witnessed(); s.Witnesses["orders-w1"].Status.Phase = corev1.PodFailed; return s },
			want{Pods: []string{"orders-w2"}, Remove: []string{"orders-w1"}, Seat: "orders-w1"},
		},
		"its pod is gone": {
			func() *scene { s := witnessed(); delete(s.Witnesses, "orders-w1"); s.silence("orders-w1"); return s }, want{Pods: []string{"orders-w2"}},
		},
		"a name comes again after all others": {
			func() *scene {
				s := pair()
				s.Database.Status.Witness = &v1.WitnessStatus{Name: "orders-w99"}
				return s
			}, want{Pods: []string{"orders-w1"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := test.scene()
			plan, g := play(t, s)
			got := want{Pods: g.Pods}
			for _, r := range plan.Remove {
				got.Remove = append(got.Remove, r.Object.GetName())
			}
			s.report("orders-1", func(r *engine.Report) { r.Revision = "" }) // so that it is published
			for _, p := range decide(s.Seen, surroundings(), noon()).Aims {
				if p.Aim.Witness != nil {
					got.Seat = p.Aim.Witness.Name
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatIsToldOfAWitness(t *testing.T) {
	tests := map[string]struct {
		scene   func() *scene
		witness *v1.WitnessStatus
		mode    v1.SynchronousMode
		ready   string // the condition's status and message
		durable string
		stay    int32 // how many pods may not be evicted
	}{
		"it votes": {
			witnessed, &v1.WitnessStatus{Name: "orders-w1", Node: "c", Voter: true}, v1.SynchronousPreferred,
			"True: orders-1 leads, and 2/2 instances are ready", "True: 1 replica is in step, and each write waits for it", 2,
		},
		"it has no node": {
			func() *scene {
				s := pair()
				s.witness(1, "")
				s.silence("orders-w1")
				s.Witnesses["orders-w1"].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available",
				}}}
				return s
			},
			&v1.WitnessStatus{Name: "orders-w1", Message: "it needs a node on which no instance runs: 0/2 nodes are available; until then the loss of either instance stops writes"},
			v1.SynchronousPreferred, "True: orders-1 leads, and 2/2 instances are ready", "True: 1 replica is in step, and each write waits for it", 1,
		},
		"one instance is lost, and the other goes on alone": {
			func() *scene {
				s := witnessed()
				s.silence("orders-2")
				s.Pods["orders-2"].Status.Conditions[0].Status = corev1.ConditionFalse
				s.report("orders-1", func(r *engine.Report) { r.InSync, r.Streaming = 0, nil })
				s.degraded()
				return s
			}, &v1.WitnessStatus{Name: "orders-w1", Node: "c", Voter: true}, v1.SynchronousPreferred,
			"False: 1/2 instances are ready: waiting for orders-2",
			"False: too few replicas are in step: writes go on, and orders-1 alone is known to hold the newest; no other instance may lead until one has caught up", 2,
		},
		"the one that holds all is lost, too": {
			func() *scene {
				s := witnessed()
				s.degraded()
				s.silence("orders-1")
				s.Pods["orders-1"].Status.Conditions[0].Status = corev1.ConditionFalse
				return s
			}, &v1.WitnessStatus{Name: "orders-w1", Node: "c", Voter: true}, v1.SynchronousPreferred,
			"False: no instance takes writes: orders-1 alone is known to hold the newest ones, so no other may lead until it is back",
			"Unknown: no primary says how its writes are held", 2,
		},
		"required was asked for": {
			func() *scene {
				s := witnessed()
				s.Database.Spec.Replication.Synchronous = v1.SynchronousRequired
				return s
			}, &v1.WitnessStatus{Name: "orders-w1", Node: "c", Voter: true}, v1.SynchronousRequired,
			"True: orders-1 leads, and 2/2 instances are ready", "True: 1 replica is in step, and each write waits for it", 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := test.scene()
			plan := decide(s.Seen, surroundings(), noon())
			status := summarise(s.Seen, plan, Acted{}, noon())
			if diff := cmp.Diff(test.witness, status.Witness); diff != "" {
				t.Error(diff)
			}
			if got := status.Effective.Synchronous; got != test.mode {
				t.Errorf("mode %s, want %s", got, test.mode)
			}
			told := map[string]string{}
			for _, c := range status.Conditions {
				told[c.Type] = string(c.Status) + ": " + c.Message
			}
			if told[v1.ConditionReady] != test.ready || told[v1.ConditionDurable] != test.durable {
				t.Errorf("told\n%s\n%s\nwant\n%s\n%s", told[v1.ConditionReady], told[v1.ConditionDurable], test.ready, test.durable)
			}
			if got := desired.PodDisruptionBudget(plan.Inputs).Spec.MinAvailable; *got != intstr.FromInt32(test.stay) {
				t.Errorf("%s pods must stay, want %d", got, test.stay)
			}
		})
	}
}

// degraded writes into the Lease that the leader alone holds everything.
func (s *scene) degraded() {
	l := s.leadership()
	l.Degraded = true
	raw, _ := json.Marshal(l)
	s.Lease.Annotations[v1.AnnotationLeadership] = string(raw)
}
