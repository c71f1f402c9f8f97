package database

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// slimmer takes from objects, on their way into the cache, what nobody reads there: most of what a manager of many Databases holds.
type slimmer struct {
	mu sync.Mutex
	// lists of fields, each once: those that we apply to objects of a kind are the same in every Database.
	lists map[string]*metav1.FieldsV1
}

// maxLists bounds the lists that are told apart: a few versions of a dozen kinds. Beyond it they begin anew.
const maxLists = 256

// object keeps of managedFields what we applied, by which a drift is seen.
func (s *slimmer) object(o any) (any, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return o, nil //nolint:nilerr // what tells of an object that is gone has no metadata to slim
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range m.GetManagedFields() {
		if entry.Manager != ssa.Owner {
			continue
		}
		if entry.FieldsV1 != nil {
			entry.FieldsV1 = s.once(entry.FieldsV1)
		}
		kept = append(kept, entry)
	}
	m.SetManagedFields(kept)
	return o, nil
}

func (s *slimmer) once(list *metav1.FieldsV1) *metav1.FieldsV1 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if same, known := s.lists[list.GetRawString()]; known {
		return same
	}
	if s.lists == nil || len(s.lists) >= maxLists {
		s.lists = map[string]*metav1.FieldsV1{}
	}
	s.lists[list.GetRawString()] = list
	return list
}

// pod keeps of its spec where it runs, and which images.
func (s *slimmer) pod(o any) (any, error) {
	pod, is := o.(*corev1.Pod)
	if !is {
		return o, nil
	}
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName}
	for _, c := range pod.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	pod.Spec = spec
	return s.object(pod)
}
