package probe

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

func probe(change func(*v1.ProbeSpec)) *v1.Probe {
	p := &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeName, UID: "p", Generation: 3}, Spec: v1.ProbeSpec{Mode: v1.ProbeMeasure}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func memory(limit string) func(*v1.ProbeSpec) {
	return func(s *v1.ProbeSpec) {
		s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
}

func off(s *v1.ProbeSpec) { s.Mode = v1.ProbeOff }

// running is a DaemonSet of a Probe with so many ready pods of those that are wanted.
func running(of *v1.Probe, ready, wanted int32) *appsv1.DaemonSet {
	d := desired.ProbeDaemonSet(desired.ProbeInputs{Probe: of, Image: "image"})
	d.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: wanted, UpdatedNumberScheduled: wanted, NumberReady: ready}
	return d
}

func TestWhatAPassDoes(t *testing.T) {
	other := probe(nil)
	other.UID = "another"
	for sentence, row := range map[string]struct {
		probe  *v1.Probe
		daemon *appsv1.DaemonSet
		want   string
	}{
		"measures":                             {probe(nil), nil, "apply Namespace, ServiceAccount, NetworkPolicy, DaemonSet"},
		"keeps what it made as it is asked":    {probe(nil), running(probe(nil), 3, 3), "apply Namespace, ServiceAccount, NetworkPolicy, DaemonSet"},
		"off":                                  {probe(off), nil, ""},
		"off, and they run still":              {probe(off), running(probe(nil), 3, 3), "remove DaemonSet"},
		"off, and those that run are not ours": {probe(off), running(other, 3, 3), ""},
		"room enough":                          {probe(memory("192Mi")), nil, "apply Namespace, ServiceAccount, NetworkPolicy, DaemonSet"},
		"too little room for the kernel's maps": {
			probe(memory("64Mi")), nil, "refuse spec.resources.limits.memory is 64Mi, and the kernel's maps alone may take 72Mi: give 192Mi or more",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := decide(Seen{Probe: row.probe, DaemonSet: row.daemon}, desired.ProbeInputs{Probe: row.probe, Image: "image"})
			var got []string
			var kinds []string
			for _, obj := range p.Apply {
				kinds = append(kinds, obj.GetObjectKind().GroupVersionKind().Kind)
				if !metav1.IsControlledBy(obj, row.probe) {
					t.Errorf("%T would stay when the Probe goes", obj)
				}
			}
			if len(kinds) > 0 {
				got = append(got, "apply "+strings.Join(kinds, ", "))
			}
			if p.Remove != nil {
				got = append(got, "remove "+p.Remove.GetObjectKind().GroupVersionKind().Kind)
			}
			if p.Refused != "" {
				got = append(got, "refuse "+p.Refused)
			}
			if d := cmp.Diff(row.want, strings.Join(got, "; ")); d != "" {
				t.Error(d)
			}
		})
	}
}

// pod of a probe on a node, ready or with the reason why it waits.
func pod(node, waits string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-probe-" + node}, Spec: corev1.PodSpec{NodeName: node}}
	p.Status.PodIP = "10.0.0.1"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if waits != "" {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits, Message: "why"}}}}
	}
	return p
}

func measures(instances int32) Answer {
	return Answer{Status: v1.NodeStatus{State: v1.NodeMeasures, Hooks: []string{"programs", "syscalls"}, Instances: v1.NodeInstances{Measured: instances}}}
}

func TestWhatIsTold(t *testing.T) {
	partly := Answer{Status: v1.NodeStatus{State: v1.NodePartly, Message: "instance shop/orders-1: it has no build-id"}}
	all := map[string]Answer{"plimsoll-probe-a": measures(2), "plimsoll-probe-b": measures(0)}
	foreign := &ssa.ForeignError{Kind: "Namespace", Name: "plimsoll-probe", Holder: "someone else: it has no owner"}
	for sentence, row := range map[string]struct {
		seen  Seen
		acted error
		want  map[string]string // by condition
		nodes string
	}{
		"nothing is there yet": {
			Seen{Probe: probe(nil)},
			nil,
			map[string]string{"Ready": "False NodesNotReady the probes are being made", "Reconciling": "False Settled", "Stalled": "False Settled"},
			"",
		},
		"all nodes measure": {
			Seen{Probe: probe(nil), DaemonSet: running(probe(nil), 2, 2), Pods: []corev1.Pod{pod("b", ""), pod("a", "")}, Heard: all},
			nil,
			map[string]string{"Ready": "True AllReady all instances of 2 nodes are measured", "Reconciling": "False Settled", "Stalled": "False Settled"},
			"a Measures, b Measures",
		},
		"the worst goes first": {
			Seen{
				Probe: probe(nil), DaemonSet: running(probe(nil), 2, 3), Pods: []corev1.Pod{pod("a", ""), pod("b", ""), pod("c", "ImagePullBackOff")},
				Heard: map[string]Answer{"plimsoll-probe-a": measures(1), "plimsoll-probe-b": partly},
			},
			nil,
			map[string]string{"Ready": "False NodesNotReady 1 of 3 nodes: c: ImagePullBackOff: why", "Reconciling": "False Settled", "Stalled": "False Settled"},
			"c Silent, b Partly, a Measures",
		},
		"a part of what a node runs is not seen": {
			Seen{
				Probe: probe(nil), DaemonSet: running(probe(nil), 2, 2), Pods: []corev1.Pod{pod("a", ""), pod("b", "")},
				Heard: map[string]Answer{"plimsoll-probe-a": measures(1), "plimsoll-probe-b": partly},
			},
			nil,
			map[string]string{"Ready": "False NodesPartly 1 of 2 nodes: b: instance shop/orders-1: it has no build-id"},
			"b Partly, a Measures",
		},
		"a probe that is ready does not answer": {
			Seen{
				Probe: probe(nil), DaemonSet: running(probe(nil), 1, 1), Pods: []corev1.Pod{pod("a", "")},
				Heard: map[string]Answer{"plimsoll-probe-a": {Err: errors.New("ask pod plimsoll-probe-a: no route")}},
			},
			nil,
			map[string]string{"Ready": "False NodesNotReady 1 of 1 nodes: a: ask pod plimsoll-probe-a: no route"},
			"a Silent",
		},
		"pods are refused": {
			Seen{Probe: probe(nil), DaemonSet: running(probe(nil), 0, 3)},
			nil,
			map[string]string{"Ready": "False NodesNotReady 0 of 3 probes have a pod; if it stays so, see the events of DaemonSet plimsoll-probe in namespace plimsoll-probe"},
			"",
		},
		"no node is chosen": {
			Seen{Probe: probe(nil), DaemonSet: running(probe(nil), 0, 0)},
			nil,
			map[string]string{"Ready": "False NoNodes no node is chosen: see spec.nodeSelector and spec.tolerations"},
			"",
		},
		"off": {
			Seen{Probe: probe(off)},
			nil,
			map[string]string{"Ready": "False ProbeOff nothing is measured: spec.mode is Off", "Reconciling": "False Settled"},
			"",
		},
		"the namespace is somebody's": {
			Seen{Probe: probe(nil)},
			fmt.Errorf("apply: %w", foreign),
			map[string]string{
				"Ready":       "False NodesNotReady apply: Namespace plimsoll-probe belongs to someone else: it has no owner and is left as it is; delete or rename it",
				"Reconciling": "False Settled",
				"Stalled":     "True NameConflict apply: Namespace plimsoll-probe belongs to someone else: it has no owner and is left as it is; delete or rename it",
			},
			"",
		},
		"the API server does not answer": {
			Seen{Probe: probe(nil), DaemonSet: running(probe(nil), 2, 2), Pods: []corev1.Pod{pod("b", ""), pod("a", "")}, Heard: all},
			errors.New("time-out"),
			map[string]string{"Ready": "True AllReady", "Reconciling": "True Changing trying again: time-out", "Stalled": "False Settled"},
			"a Measures, b Measures",
		},
		"too little room": {
			Seen{Probe: probe(memory("1Mi"))},
			nil,
			map[string]string{"Ready": "False InvalidSpec spec.resources.limits.memory", "Stalled": "True InvalidSpec spec.resources.limits.memory"},
			"",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			plan := decide(row.seen, desired.ProbeInputs{Probe: row.seen.Probe, Image: "image"})
			status := summarise(row.seen, plan, row.acted, time.Unix(1000, 0))
			if again := summarise(row.seen, plan, row.acted, time.Unix(1000, 0)); !cmp.Equal(status, again) {
				t.Errorf("told twice, it differs: %s", cmp.Diff(status, again))
			}
			for kind, want := range row.want {
				c := meta.FindStatusCondition(status.Conditions, kind)
				if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %q, want %q", kind, got, want)
				}
			}
			var nodes []string
			for _, n := range status.Nodes {
				nodes = append(nodes, n.Name+" "+string(n.State))
			}
			if d := cmp.Diff(row.nodes, strings.Join(nodes, ", ")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAStatusListsAHundredNodesAndCountsTheOthers(t *testing.T) {
	s := Seen{Probe: probe(nil), DaemonSet: running(probe(nil), 250, 250), Heard: map[string]Answer{}}
	for i := range 250 {
		p := pod(fmt.Sprintf("n%03d", i), "")
		s.Pods = append(s.Pods, p)
		s.Heard[p.Name] = measures(1)
	}
	s.Heard["plimsoll-probe-n249"] = Answer{Err: errors.New(strings.Repeat("long ", 1000))}
	s.Unseen = 7
	status := summarise(s, Plan{}, nil, time.Unix(1000, 0))
	if len(status.Nodes) != 100 || status.UnlistedNodes != 157 || status.Nodes[0].Name != "n249" || len(status.Nodes[0].Message) != maxMessage {
		t.Errorf("%d listed, %d not; first %.80v", len(status.Nodes), status.UnlistedNodes, status.Nodes[0])
	}
}

// TestWhatIsAmissForLongIsAskedForSeldom : a program that can never be probed must not cost a question to each node every few seconds.
func TestWhatIsAmissForLongIsAskedForSeldom(t *testing.T) {
	since := time.Unix(1000, 0)
	for sentence, row := range map[string]struct {
		probe  *v1.Probe
		ready  metav1.ConditionStatus
		passed time.Duration
		want   time.Duration
	}{
		"all is measured":                  {probe(nil), metav1.ConditionTrue, time.Second, lookEvery},
		"it begins":                        {probe(nil), metav1.ConditionFalse, time.Second, lookSoon},
		"it has not begun for a long time": {probe(nil), metav1.ConditionFalse, mayTake, lookEvery},
		"off":                              {probe(off), metav1.ConditionFalse, time.Second, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := metav1.Condition{Type: v1.ConditionReady, Status: row.ready, LastTransitionTime: metav1.NewTime(since)}
			if got := lookAgain(Seen{Probe: row.probe}, v1.ProbeStatus{Conditions: []metav1.Condition{c}}, since.Add(row.passed)); got != row.want {
				t.Errorf("after %s, want %s", got, row.want)
			}
		})
	}
}
