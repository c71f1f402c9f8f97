package database

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// TestTheCacheHoldsOnlyWhatIsRead of an object, and what many objects have alike once.
func TestTheCacheHoldsOnlyWhatIsRead(t *testing.T) {
	s := &slimmer{}
	pod := func(list string) *corev1.Pod {
		ours := metav1.ManagedFieldsEntry{Manager: ssa.Owner, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(list)}
		theirs := metav1.ManagedFieldsEntry{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "orders-1", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{theirs, ours}},
			Spec: corev1.PodSpec{
				NodeName: "node1", Volumes: []corev1.Volume{{Name: "data"}},
				Containers: []corev1.Container{{Name: "database", Image: "postgres:15", Env: []corev1.EnvVar{{Name: "A", Value: "B"}}}},
			},
			Status: corev1.PodStatus{PodIP: "10.0.0.7"},
		}
	}
	slim := func(o any) *corev1.Pod {
		got, err := s.pod(o)
		if err != nil {
			t.Fatal(err)
		}
		return got.(*corev1.Pod)
	}
	const list = `{"f:metadata":{"f:labels":{"f:a":{}}}}`
	want := pod(list)
	want.ManagedFields = want.ManagedFields[1:]
	want.Spec = corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "database", Image: "postgres:15"}}}
	one, two := slim(pod(list)), slim(pod(list))
	if d := cmp.Diff(want, one); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if one.ManagedFields[0].FieldsV1 != two.ManagedFields[0].FieldsV1 {
		t.Error("two pods hold the same list of fields twice")
	}
	for i := range 2 * maxLists {
		slim(pod(fmt.Sprintf(`{"f:%d":{}}`, i)))
	}
	if len(s.lists) > maxLists {
		t.Errorf("%d lists are held, want %d at most", len(s.lists), maxLists)
	}
	gone := toolscache.DeletedFinalStateUnknown{Key: "shop/orders-1"}
	for _, f := range []func(any) (any, error){s.object, s.pod} {
		if got, err := f(gone); err != nil || got != any(gone) {
			t.Errorf("of an object that is gone it makes %v, %v", got, err)
		}
	}
}
