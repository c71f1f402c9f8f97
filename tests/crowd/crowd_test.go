package crowd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestTheNodeTakesTheCrowdAlone(t *testing.T) {
	made, placed := node(), Scheduling()
	for key, value := range placed.NodeSelector {
		if made.Labels[key] != value {
			t.Errorf("the node's label %s is %q, and the crowd selects %q", key, made.Labels[key], value)
		}
	}
	for _, taint := range made.Spec.Taints {
		if !slices.ContainsFunc(placed.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.ToleratesTaint(logr.Discard(), &taint, false)
		}) {
			t.Errorf("the crowd does not tolerate %s", taint.ToString())
		}
	}
	if len(made.Spec.Taints) == 0 || len(placed.NodeSelector) == 0 {
		t.Error("others would come to the node, or the crowd would go to others")
	}
}

// silent agents, without a listener.
func silent() *Agents { return &Agents{at: map[string]*agent{}, clusters: map[string]*members{}} }

func TestAgentsLeadAndEnd(t *testing.T) {
	var recorded []string
	record := func(epoch int64, leader string, voters []string) {
		recorded = append(recorded, fmt.Sprintf("%d %s %v", epoch, leader, voters))
	}
	a := silent()
	for i, name := range []string{"idle-1", "idle-2", "idle-2"} { // the last takes the place of the one before
		if err := a.add("shop/idle", name, "uid", fmt.Sprintf("10.0.0.%d", i+1), "", nil, record); err == nil {
			t.Error("an agent without a certificate was added")
		}
		a.join("shop/idle", &agent{name: name, uid: "uid", address: fmt.Sprintf("10.0.0.%d", i+1), changed: make(chan struct{}), config: &tls.Config{}}, record) //nolint:gosec // nobody calls
	}
	of := a.clusters["shop/idle"]
	for _, m := range of.all {
		m.aim = &engine.Aim{Bootstrap: "idle-1", Member: m.name}
		of.decide(m)
	}
	if diff := cmp.Diff([]string{"1 idle-1 [idle-1]", "1 idle-1 [idle-1 idle-2]"}, recorded); diff != "" {
		t.Error(diff)
	}
	if a.of("10.0.0.2:7470") != nil || a.of("10.0.0.3:7470") == nil {
		t.Error("the later agent of a name is not where the earlier was")
	}
	if r := of.all[0].report(); !r.Leading || !r.Ready || !slices.Equal(r.Streaming, []string{"idle-2"}) {
		t.Errorf("the leader reports %+v", r)
	}
	a.remove("shop/idle", "idle-1")
	a.remove("shop/idle", "idle-2")
	if len(a.at)+len(a.clusters) > 0 {
		t.Errorf("agents are left: %v, %v", a.at, a.clusters)
	}
}

func TestRunningKeepsWhatTheSchedulerSaid(t *testing.T) {
	was := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
	}}
	got := running(was, "10.0.0.1", metav1.NewTime(time.Unix(1, 0)))
	told := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range got.Conditions {
		told[c.Type] = c.Status
	}
	yes := corev1.ConditionTrue
	want := map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodScheduled: yes, corev1.PodReadyToStartContainers: yes, corev1.PodInitialized: yes, corev1.ContainersReady: yes, corev1.PodReady: yes,
	}
	if diff := cmp.Diff(want, told); diff != "" || len(got.Conditions) != len(want) || got.Phase != corev1.PodRunning || got.PodIP != "10.0.0.1" {
		t.Errorf("%+v\n%s", got, diff)
	}
}

func TestKubeletRunsItsOwnPodsAndEndsThem(t *testing.T) {
	pod := func(name, on string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelDatabase: "idle"}, Finalizers: []string{"test/holds"},
			},
			Spec: corev1.PodSpec{NodeName: on},
		}
	}
	k := fake.NewClientBuilder().WithStatusSubresource(&corev1.Pod{}).WithObjects(pod("idle-1", NodeName), pod("idle-2", "node1"), pod("idle-3", "")).Build()
	kubelet := &Kubelet{Client: k, Agents: silent(), Node: NodeName, Address: func(int) (string, error) { return "", errors.New("no address is left") }}
	for name, fails := range map[string]bool{"idle-1": true, "idle-2": false, "idle-3": false, "idle-4": false} {
		err := kubelet.run(t.Context(), client.ObjectKey{Namespace: "shop", Name: name})
		if (err != nil) != fails {
			t.Errorf("%s: %v: one of ours waits for its Secret, and others are left alone", name, err)
		}
		if fails && !apierrors.IsNotFound(err) {
			t.Errorf("%s waits for something else than its Secret: %v", name, err)
		}
	}
	if err := k.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: desired.MemberName("idle-1")}}); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "shop", Name: "idle-1"}
	if err := kubelet.run(t.Context(), key); err == nil || err.Error() != "no address is left" {
		t.Errorf("without an address: %v", err)
	}
	for range 2 { // a deletion with a grace, then what the kubelet does
		if err := k.Delete(t.Context(), pod("idle-1", NodeName)); err != nil {
			t.Fatal(err)
		}
	}
	if err := kubelet.run(t.Context(), key); err != nil {
		t.Errorf("end a pod: %v", err)
	}
}

func TestAClaimWithoutAClassGetsItsVolume(t *testing.T) {
	claim := func(name string, class *string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name)},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
	}
	k := fake.NewClientBuilder().WithObjects(claim("ours", new("")), claim("local", new("local")), claim("default", nil)).Build()
	v := Volumes{Client: k}
	for _, name := range []string{"ours", "ours", "local", "default", "gone"} {
		if err := v.provide(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var made corev1.PersistentVolumeList
	if err := k.List(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	if len(made.Items) != 1 || made.Items[0].Spec.ClaimRef.UID != "uid-of-ours" || made.Items[0].Spec.Capacity.Storage().String() != "1Gi" {
		t.Fatalf("volumes %+v", made.Items)
	}
	if err := v.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRegisterBeatsAndUnregister(t *testing.T) {
	k := fake.NewClientBuilder().Build()
	if err := Register(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	lease := leaseOf(node())
	look := func() time.Time {
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			t.Fatal(err)
		}
		return lease.Spec.RenewTime.Time
	}
	before := look()
	time.Sleep(time.Millisecond)
	if err := renew(t.Context(), k); err != nil || !look().After(before) {
		t.Errorf("renewed at %s, after %s: %v", look(), before, err)
	}
	for range 2 {
		if err := Unregister(t.Context(), k); err != nil {
			t.Error(err)
		}
	}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(lease), &coordinationv1.Lease{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease is left: %v", err)
	}
}
