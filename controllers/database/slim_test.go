package database

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// asCached is what a pass would see of the scene: play decides each scene on both, so that nothing is taken off that a decision needs.
func asCached(t *testing.T, s Seen) Seen {
	t.Helper()
	slim := &slimmer{}
	s.Database = slimmed(t, slim.database, s.Database.DeepCopy())
	pods, witnesses, claims := map[string]*corev1.Pod{}, map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolumeClaim{}
	for name, pod := range s.Pods {
		pods[name] = slimmed(t, slim.pod, pod.DeepCopy())
	}
	for name, pod := range s.Witnesses {
		witnesses[name] = slimmed(t, slim.pod, pod.DeepCopy())
	}
	for name, claim := range s.Claims {
		claims[name] = slimmed(t, slim.claim, claim.DeepCopy())
	}
	s.Pods, s.Witnesses, s.Claims = pods, witnesses, claims
	if s.Lease != nil {
		s.Lease = slimmed(t, slim.lease, s.Lease.DeepCopy())
	}
	return s
}

func slimmed[T any](t *testing.T, slim func(any) (any, error), of T) T {
	t.Helper()
	got, err := slim(of)
	if err != nil {
		t.Fatal(err)
	}
	return got.(T)
}

// theFields of an object that were applied, and what others say of it beside ours.
const theFields = `{"f:metadata":{"f:labels":{"f:a":{}}}}`

func crowded(name string) metav1.ObjectMeta {
	ours := metav1.ManagedFieldsEntry{Manager: ssa.Owner, Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: time.Now()}, FieldsV1: metav1.NewFieldsV1(theFields)}
	theirs := metav1.ManagedFieldsEntry{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: "u1", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Finalizers: []string{"kubernetes.io/pvc-protection"},
		Annotations:     map[string]string{v1.AnnotationSecretsHash: "h", "theirs": "x", corev1.LastAppliedConfigAnnotation: "{}"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Database", Name: "orders", UID: "d1", Controller: new(true)}},
		ManagedFields:   []metav1.ManagedFieldsEntry{theirs, ours},
	}
}

func lean(name string) metav1.ObjectMeta {
	m := crowded(name)
	m.Finalizers, m.ManagedFields, m.Annotations = nil, m.ManagedFields[1:], map[string]string{v1.AnnotationSecretsHash: "h"}
	m.ManagedFields[0].Time = nil
	return m
}

// TestTheCacheHoldsOnlyWhatIsRead of an object, and what many objects have alike once.
func TestTheCacheHoldsOnlyWhatIsRead(t *testing.T) {
	s := &slimmer{}
	noted := metav1.NewTime(noon())
	running := corev1.ContainerStatus{Name: "database", ImageID: "sha256:1", ContainerID: "c://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	waiting := corev1.ContainerStatus{Name: "exporter", Image: "exporter:1", ImageID: "sha256:2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	restarted := running
	restarted.RestartCount = restartsTold
	ended := corev1.ContainerStatus{Name: "agent", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: crowded(name),
			Spec: corev1.PodSpec{
				NodeName: "node1", Volumes: []corev1.Volume{{Name: "data"}},
				Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists}, {Key: "dedicated", Value: "db"}},
				Containers:  []corev1.Container{{Name: "database", Image: "postgres:15", Env: []corev1.EnvVar{{Name: "A", Value: "B"}}}},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.7", HostIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}}, StartTime: &noted, QOSClass: corev1.PodQOSBurstable,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: noted, LastProbeTime: noted},
					{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
				},
				InitContainerStatuses: []corev1.ContainerStatus{ended},
				ContainerStatuses:     []corev1.ContainerStatus{running, waiting, restarted, ended},
			},
		}
	}
	waiting.ImageID, restarted.ImageID, restarted.ContainerID = "", "", ""
	want := &corev1.Pod{
		ObjectMeta: lean("orders-1"),
		Spec: corev1.PodSpec{
			NodeName: "node1", Containers: []corev1.Container{{Name: "database", Image: "postgres:15"}},
			Tolerations: []corev1.Toleration{{Key: "dedicated", Value: "db"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.7", StartTime: &noted, ContainerStatuses: []corev1.ContainerStatus{waiting, restarted, ended},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: noted}},
		},
	}
	one, two := slimmed(t, s.pod, pod("orders-1")), slimmed(t, s.pod, pod("orders-2"))
	if d := cmp.Diff(want, one); d != "" {
		t.Errorf("of a pod (-want +got):\n%s", d)
	}
	if &one.ManagedFields[0] != &two.ManagedFields[0] || &one.Spec.Containers[0] != &two.Spec.Containers[0] || &one.OwnerReferences[0] != &two.OwnerReferences[0] {
		t.Error("two pods hold what they have alike twice")
	}

	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: crowded("orders-1"),
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: "pvc-1", VolumeMode: new(corev1.PersistentVolumeFilesystem), StorageClassName: new("fast"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Conditions: []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue},
				{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, Message: "waiting"},
			},
		},
	}
	wantClaim := &corev1.PersistentVolumeClaim{
		ObjectMeta: lean("orders-1"),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: claim.Spec.AccessModes, Resources: claim.Spec.Resources, StorageClassName: claim.Spec.StorageClassName,
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, Capacity: size,
			Conditions: []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}},
		},
	}
	if d := cmp.Diff(wantClaim, slimmed(t, s.claim, claim)); d != "" {
		t.Errorf("of a claim (-want +got):\n%s", d)
	}

	lease := &coordinationv1.Lease{ObjectMeta: crowded("orders"), Spec: coordinationv1.LeaseSpec{HolderIdentity: new("orders-1")}}
	wantLease := &coordinationv1.Lease{ObjectMeta: lean("orders")}
	wantLease.ManagedFields = nil
	if d := cmp.Diff(wantLease, slimmed(t, s.lease, lease)); d != "" {
		t.Errorf("of a Lease (-want +got):\n%s", d)
	}

	gone := toolscache.DeletedFinalStateUnknown{Key: "shop/orders-1"}
	for _, f := range []func(any) (any, error){s.object, s.pod, s.claim, s.lease, s.database} {
		if got, err := f(gone); err != nil || got != any(gone) {
			t.Errorf("of an object that is gone it makes %v, %v", got, err)
		}
	}
}

func TestWhatIsHeldAlikeIsBounded(t *testing.T) {
	var a alike[string]
	for i := range 2*maxAlike + 1 {
		text := fmt.Sprint(i)
		a.once(text, text)
	}
	if len(a.held) > maxAlike {
		t.Errorf("%d are held, want %d at most", len(a.held), maxAlike)
	}
	if got := a.once("other", "said"); a.once("another", "said") != got {
		t.Error("the same description gave two values")
	}
}
