package database

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestLeavingANode(t *testing.T) {
	seconds := int64(300)
	taint := func(key string, effect corev1.TaintEffect) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: effect}}}}
	}
	tolerates := func(key string, for_ *int64) []corev1.Toleration {
		return []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, TolerationSeconds: for_}}
	}
	for sentence, row := range map[string]struct {
		node        *corev1.Node
		tolerations []corev1.Toleration
		want        string
	}{
		"an ordinary node is stayed on":                             {&corev1.Node{}, nil, ""},
		"a node that is not known is stayed on":                     {nil, nil, ""},
		"a cordon comes before a drain":                             {&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, nil, "is cordoned"},
		"a drain evicts from a cordoned node whatever is tolerated": {&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, tolerates("", nil), "is cordoned"},
		"the cordon's own taint":                                    {taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), nil, "has the taint node.kubernetes.io/unschedulable:NoSchedule"},
		"the cluster autoscaler takes the node away":                {taint("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule), nil, "has the taint ToBeDeletedByClusterAutoscaler:NoSchedule"},
		"the autoscaler only considers it":                          {taint("DeletionCandidateOfClusterAutoscaler", corev1.TaintEffectPreferNoSchedule), nil, ""},
		"Karpenter disrupts the node":                               {taint("karpenter.sh/disrupted", corev1.TaintEffectNoSchedule), nil, "has the taint karpenter.sh/disrupted:NoSchedule"},
		"Karpenter leaves what tolerates it":                        {taint("karpenter.sh/disrupted", corev1.TaintEffectNoSchedule), tolerates("karpenter.sh/disrupted", nil), ""},
		"the node is out of service":                                {taint(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute), nil, "has the taint node.kubernetes.io/out-of-service:NoExecute"},
		"any other taint that evicts":                               {taint("example.com/maintenance", corev1.TaintEffectNoExecute), nil, "has the taint example.com/maintenance:NoExecute"},
		"one that is tolerated":                                     {taint("example.com/maintenance", corev1.TaintEffectNoExecute), tolerates("example.com/maintenance", nil), ""},
		"one that is tolerated for a while evicts after it":         {taint("example.com/maintenance", corev1.TaintEffectNoExecute), tolerates("example.com/maintenance", &seconds), "has the taint example.com/maintenance:NoExecute"},
		"one that keeps new pods away alone":                        {taint("example.com/dedicated", corev1.TaintEffectNoSchedule), nil, ""},
		"a node that is not ready is the instances' business":       {taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), nil, ""},
		"and so is one that is not reached":                         {taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), nil, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := leaving(row.node, &corev1.Pod{Spec: corev1.PodSpec{Tolerations: row.tolerations}}); got != row.want {
				t.Errorf("the node %q, want %q", got, row.want)
			}
		})
	}
}

// placed runs one instance on each of three nodes.
func placed() *scene {
	s := settled(3)
	s.Nodes = map[string]*corev1.Node{}
	for n, node := range map[int32]string{1: "node-a", 2: "node-b", 3: "node-c"} {
		s.Pods[name(n)].Spec.NodeName = node
		s.Nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	}
	s.obey()
	return s
}

// placeAgain puts pods that were made anew on their nodes.
func (s *scene) placeAgain() {
	for n, node := range map[int32]string{1: "node-a", 2: "node-b", 3: "node-c"} {
		s.Pods[name(n)].Spec.NodeName = node
	}
}

func (s *scene) cordon(nodes ...string) *scene {
	for _, node := range nodes {
		s.Nodes[node].Spec.Unschedulable = true
	}
	return s
}

func TestVacate(t *testing.T) {
	const moves = "Changing: handing over from orders-1 to orders-2: the node node-a is cordoned"
	to := func(n string) []string {
		return []string{"orders-1: members 1,2,3 epoch 1 switchover drain-orders-" + n + "-1-1772366400 to orders-" + n}
	}
	for sentence, row := range map[string]struct {
		scene *scene
		want  gist
	}{
		"nothing is cordoned":                   {placed(), gist{}},
		"the leader's node is cordoned":         {placed().cordon("node-a"), gist{Working: moves, Aims: to("2")}},
		"a replica's node is cordoned":          {placed().cordon("node-b"), gist{}},
		"the next best's node is cordoned, too": {placed().cordon("node-a", "node-b"), gist{Working: "Changing: handing over from orders-1 to orders-3: the node node-a is cordoned", Aims: to("3")}},
		"all nodes are cordoned: it stays":      {placed().cordon("node-a", "node-b", "node-c"), gist{}},
		"a replica whose node is not known":     {func() *scene { s := placed().cordon("node-a", "node-b"); delete(s.Nodes, "node-c"); return s }(), gist{}},
		"a paused Database is left as it is":    {func() *scene { s := placed().cordon("node-a"); s.Database.Spec.Maintenance.Paused = true; return s }(), gist{}},
		"the leader's pod is being evicted already": {
			func() *scene { s := placed().cordon("node-a"); s.Pods["orders-1"].DeletionTimestamp = gone(); return s }(),
			gist{Working: "Changing: waiting for the old pod of orders-1 to end"},
		},
		"a replica that is not in step is no refuge": {
			func() *scene { s := placed().cordon("node-a"); s.streaming("orders-3"); return s }(),
			gist{Working: "Changing: handing over from orders-1 to orders-3: the node node-a is cordoned", Aims: to("3")},
		},
		"a replica whose pod is replaced next is no refuge": {
			func() *scene {
				s := placed()
				big(s)
				s.renew(1)
				s.renew(2)
				s.placeAgain()
				return s.cordon("node-a").quiet()
			}(),
			gist{Working: "Changing: replacing orders-3: its pod's spec changed", Remove: []string{"pod orders-3"}},
		},
		"nor one whose server restarts next": {
			func() *scene {
				s := placed().cordon("node-a")
				s.report("orders-2", func(r *engine.Report) { r.RestartPending = []string{"max_connections"} })
				s.report("orders-3", func(r *engine.Report) { r.Ready = false })
				return s.quiet()
			}(),
			gist{Working: "Changing: waiting for orders-3 to become ready before orders-2 is restarted"},
		},
		"no replica is in step: it waits": {func() *scene { s := placed().cordon("node-a"); s.streaming(); return s }(), gist{}},
		"a leader that takes no writes, because it hands over, is asked on": {
			func() *scene {
				s := placed().cordon("node-a")
				s.report("orders-1", func(r *engine.Report) { r.Ready = false })
				return s
			}(),
			gist{Working: moves, Aims: to("2")},
		},
		"one that does not lead any more is not": {
			func() *scene {
				s := placed().cordon("node-a")
				s.report("orders-1", func(r *engine.Report) { r.Leading = false })
				return s
			}(),
			gist{},
		},
		"a leader that is silent is asked for nothing": {
			func() *scene { s := placed().cordon("node-a"); s.silence("orders-1"); return s }(), gist{},
		},
		"a switchover that a person asked for goes first": {
			func() *scene {
				s := placed().cordon("node-a")
				s.annotate(v1.AnnotationSwitchover, `{"id":"s","target":"orders-3","expires":"`+noon().Add(time.Minute).Format(time.RFC3339)+`"}`)
				return s
			}(),
			gist{
				Working: "Changing: handing over from orders-1 as requested", Answers: []string{"switchover s: Running"},
				Aims: []string{"orders-1: members 1,2,3 epoch 1 switchover s to orders-3"},
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, got := play(t, row.scene)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("a few bytes of lag do not change the target while it is under way", func(t *testing.T) {
		s := placed().cordon("node-a")
		for _, lag := range []int64{0, 8 << 10, 1 << 20} {
			s.report("orders-2", func(r *engine.Report) { r.LagBytes = lag })
			_, got := play(t, s)
			if diff := cmp.Diff(to("2"), got.Aims); diff != "" {
				t.Errorf("with orders-2 %d bytes behind (-want +got):\n%s", lag, diff)
			}
		}
		s.report("orders-2", func(r *engine.Report) { r.LagBytes = 64 << 20 })
		if _, got := play(t, s); !cmp.Equal(to("3"), got.Aims) {
			t.Errorf("one that is far behind is chosen: %q", got.Aims)
		}
	})
	t.Run("each leader is asked by a name of its own, and one of them by the same in every pass", func(t *testing.T) {
		asked := func(s *scene, after time.Duration) string {
			for _, a := range decide(s.Seen, surroundings(), noon().Add(after)).Aims {
				if a.Aim.Switchover != nil && a.To.Instance == "orders-1" {
					return a.Aim.Switchover.ID
				}
			}
			t.Fatal("the leader is not asked")
			return ""
		}
		s := placed().cordon("node-a")
		first := asked(s, 0)
		if got := asked(s, handOverWindow/2); got != first {
			t.Errorf("a later pass asks by %q, not %q", got, first)
		}
		s.lead(1, 9) // others led meanwhile
		second := asked(s, time.Second)
		if second == first {
			t.Errorf("it is asked by %q again, which the Lease may know as carried out", second)
		}
		if got := asked(s, handOverWindow); got == second {
			t.Errorf("the next attempt has the same name %q", got)
		}
	})
	t.Run("a successor for another reason is rather one that stays", func(t *testing.T) {
		s := placed().cordon("node-b")
		d := &draft{seen: s.Seen, Plan: decide(s.Seen, surroundings(), noon())}
		if got := d.successor(); got != "orders-3" {
			t.Errorf("it is %s", got)
		}
		s.cordon("node-c")
		if got := d.successor(); got != "orders-2" {
			t.Errorf("with both going it is %q", got)
		}
	})
}

func TestOfANodeLittleIsKept(t *testing.T) {
	full := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-a", UID: "n1", ResourceVersion: "7", Labels: map[string]string{corev1.LabelTopologyZone: "z1", "other": "x"},
			Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec:   corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"big"}}}},
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "n1", ResourceVersion: "7", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}},
	}
	got, err := leanNode(full)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Error(diff)
	}
	beat := want.DeepCopy()
	beat.ResourceVersion = "8"
	if movesInstances().Update(event.UpdateEvent{ObjectOld: want, ObjectNew: beat}) {
		t.Error("a node's heartbeat wakes Databases")
	}
	beat.Spec.Unschedulable = false
	if !movesInstances().Update(event.UpdateEvent{ObjectOld: want, ObjectNew: beat}) {
		t.Error("an uncordon wakes nobody")
	}
}

// TestACordonMovesTheLeader against a real API server, with the rights of one namespace's cache: the watch of nodes is the cluster's.
func TestACordonMovesTheLeader(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three instances", running)
	nodes := map[string]*corev1.Node{}
	for _, instance := range []string{"orders-1", "orders-2", "orders-3"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + instance, Labels: map[string]string{corev1.LabelTopologyZone: "zone-of-" + instance}}}
		if err := w.person.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.person.Delete(context.WithoutCancel(t.Context()), node) })
		nodes[instance] = node
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: instance}}
		binding := &corev1.Binding{ObjectMeta: pod.ObjectMeta, Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
		if err := w.person.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
			t.Fatal(err)
		}
	}
	cordon := func(instance string, yes bool) {
		patch := client.MergeFrom(nodes[instance].DeepCopy())
		nodes[instance].Spec.Unschedulable = yes
		if err := w.person.Patch(t.Context(), nodes[instance], patch); err != nil {
			t.Fatal(err)
		}
	}
	w.until("orders", "the zones are known", func(d *v1.Database) bool {
		return len(d.Status.Instances) == 3 && d.Status.Instances[2].Zone == "zone-of-orders-3" && running(d)
	})
	cordon("orders-1", true)
	w.until("orders", "another leads", func(d *v1.Database) bool { return d.Status.Leader != "orders-1" && d.Status.Epoch == 2 && running(d) })
	cordon("orders-2", true)
	w.until("orders", "the third leads", func(d *v1.Database) bool { return d.Status.Leader == "orders-3" && running(d) })
	cordon("orders-3", true)
	time.Sleep(2 * time.Second) // nowhere is left
	if d := w.get("orders"); d.Status.Leader != "orders-3" || d.Status.Epoch != 3 {
		t.Errorf("with all nodes cordoned the leader is %s with epoch %d", d.Status.Leader, d.Status.Epoch)
	}
	cordon("orders-1", false)
	d := w.until("orders", "it goes where it may stay", func(d *v1.Database) bool { return d.Status.Leader == "orders-1" && running(d) })
	if d.Status.Epoch != 4 || d.Status.HandOvers[0].Cause != "switchover" {
		t.Errorf("epoch %d, %+v", d.Status.Epoch, d.Status.HandOvers[0])
	}
}

// TestARefugeIsReady: what is asked of a refuge is what is asked of any successor.
func TestARefugeIsReady(t *testing.T) {
	s := placed().cordon("node-a")
	for _, n := range []string{"orders-2", "orders-3"} {
		s.report(n, func(r *engine.Report) { r.Ready = false })
	}
	s.obey()
	if _, got := play(t, s); len(got.Aims) != 0 {
		t.Errorf("it hands over to one that is not ready: %+v", got)
	}
}
