package database

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// slimmer takes from objects, on their way into the cache, what nobody reads there, and holds what many of them say alike only once: most of
// what a manager of many Databases holds. What is cached is never changed, only copied.
type slimmer struct {
	// What we apply to objects of a kind is the same in every Database, as are the images of pods and the sizes of claims in most.
	fields     alike[[]metav1.ManagedFieldsEntry]
	containers alike[[]corev1.Container]
	claims     alike[corev1.PersistentVolumeClaim]
	// labels and owners of the objects of one Database are mostly the same, and so are many words of those of all.
	labels alike[map[string]string]
	owners alike[[]metav1.OwnerReference]
	words  alike[string]
}

// maxAlike bounds the values of a kind that are told apart: a few of each Database. Beyond it they begin anew.
const maxAlike = 16384

// alike holds values that are wanted again and again once. Its zero value is empty.
type alike[T any] struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]T
}

// once returns the first value that was given with the same description.
func (a *alike[T]) once(value T, description ...string) T {
	key := sha256.Sum256([]byte(strings.Join(description, "\x00")))
	a.mu.Lock()
	defer a.mu.Unlock()
	if same, known := a.held[key]; known {
		return same
	}
	if a.held == nil || len(a.held) >= maxAlike {
		a.held = map[[sha256.Size]byte]T{}
	}
	a.held[key] = value
	return value
}

// word is held once, however many say it.
func (s *slimmer) word(w string) string { return s.words.once(w, w) }

// database has nothing taken from it but what kubectl keeps of its spec, beside whose fields are whose.
func (s *slimmer) database(o any) (any, error) {
	d, is := o.(*v1.Database)
	if !is {
		return o, nil
	}
	d.ManagedFields = nil
	delete(d.Annotations, corev1.LastAppliedConfigAnnotation)
	return d, nil
}

// object keeps of managedFields what we applied, by which a drift is seen, and of the annotations our own.
func (s *slimmer) object(o any) (any, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return o, nil //nolint:nilerr // what tells of an object that is gone has no metadata to slim
	}
	var kept []metav1.ManagedFieldsEntry
	var description []string
	for _, entry := range m.GetManagedFields() {
		if entry.Manager != ssa.Owner {
			continue
		}
		entry.Time = nil
		description = append(description, string(entry.Operation), entry.APIVersion, entry.FieldsType, entry.Subresource)
		if entry.FieldsV1 != nil {
			entry.FieldsV1 = ssa.WithoutOwner(m, entry.FieldsV1)
			description = append(description, entry.FieldsV1.GetRawString())
		}
		kept = append(kept, entry)
	}
	if kept != nil {
		kept = s.fields.once(kept, description...)
	}
	m.SetManagedFields(kept)
	m.SetAnnotations(s.ours(m.GetAnnotations()))
	m.SetFinalizers(nil)
	m.SetNamespace(s.word(m.GetNamespace()))
	if len(m.GetLabels()) > 0 {
		m.SetLabels(s.alikeLabels(m.GetLabels()))
	}
	if owners := m.GetOwnerReferences(); len(owners) > 0 {
		m.SetOwnerReferences(s.owners.once(owners, describe(owners)...))
	}
	return o, nil
}

// ours are Plimsoll's own annotations; nil for none.
func (s *slimmer) ours(all map[string]string) map[string]string {
	var kept map[string]string
	for name, value := range all {
		if !strings.HasPrefix(name, v1.GroupVersion.Group+"/") {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[s.word(name)] = value
	}
	return kept
}

func (s *slimmer) alikeLabels(all map[string]string) map[string]string {
	var description []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		description = append(description, name, all[name])
	}
	spelled := make(map[string]string, len(all))
	for name, value := range all {
		spelled[s.word(name)] = s.word(value)
	}
	return s.labels.once(spelled, description...)
}

func describe(owners []metav1.OwnerReference) []string {
	var out []string
	for _, o := range owners {
		out = append(out, o.APIVersion, o.Kind, o.Name, string(o.UID), saysYes(o.Controller), saysYes(o.BlockOwnerDeletion))
	}
	return out
}

// saysYes tells nil from both answers.
func saysYes(answer *bool) string {
	switch {
	case answer == nil:
		return ""
	case *answer:
		return "yes"
	default:
		return "no"
	}
}

// lease keeps of its spec nothing: who leads, the annotations say.
func (s *slimmer) lease(o any) (any, error) {
	l, is := o.(*coordinationv1.Lease)
	if !is {
		return o, nil
	}
	l.Spec, l.ManagedFields = coordinationv1.LeaseSpec{}, nil
	return s.object(l)
}

// claim keeps what is asked for and what is there.
func (s *slimmer) claim(o any) (any, error) {
	c, is := o.(*corev1.PersistentVolumeClaim)
	if !is {
		return o, nil
	}
	kept := corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: c.Spec.AccessModes, StorageClassName: c.Spec.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{Requests: c.Spec.Resources.Requests},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: c.Status.Phase, Capacity: c.Status.Capacity},
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending {
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: condition.Type, Status: condition.Status})
		}
	}
	raw, err := kept.Marshal()
	if err != nil {
		return nil, fmt.Errorf("compare claim %s/%s with others: %w", c.Namespace, c.Name, err)
	}
	kept = s.claims.once(kept, string(raw))
	c.Spec, c.Status = kept.Spec, kept.Status
	return s.object(c)
}

// pod keeps of its spec where it runs, which images, and which taints it tolerates; what every pod tolerates says nothing. Of its status
// it keeps what says that something is amiss.
func (s *slimmer) pod(o any) (any, error) {
	pod, is := o.(*corev1.Pod)
	if !is {
		return o, nil
	}
	spec := corev1.PodSpec{NodeName: s.word(pod.Spec.NodeName)}
	for _, t := range pod.Spec.Tolerations {
		if t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable {
			spec.Tolerations = append(spec.Tolerations, t)
		}
	}
	var description []string
	for _, c := range pod.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		description = append(description, c.Name, c.Image)
	}
	spec.Containers = s.containers.once(spec.Containers, description...)
	pod.Spec, pod.Status = spec, s.status(pod.Status)
	return s.object(pod)
}

func (s *slimmer) status(of corev1.PodStatus) corev1.PodStatus {
	kept := corev1.PodStatus{Phase: corev1.PodPhase(s.word(string(of.Phase))), Reason: of.Reason, PodIP: of.PodIP, StartTime: of.StartTime}
	for _, c := range of.Conditions {
		if c.Type != corev1.PodReady && c.Type != corev1.PodScheduled && c.Type != corev1.PodReadyToStartContainers {
			continue
		}
		kept.Conditions = append(kept.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(s.word(string(c.Type))), Status: corev1.ConditionStatus(s.word(string(c.Status))),
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	for _, c := range of.InitContainerStatuses {
		if done := c.State.Terminated; !runs(c) && (done == nil || done.ExitCode != 0) {
			kept.InitContainerStatuses = append(kept.InitContainerStatuses, slimContainer(c))
		}
	}
	for _, c := range of.ContainerStatuses {
		if !runs(c) {
			kept.ContainerStatuses = append(kept.ContainerStatuses, slimContainer(c))
		}
	}
	return kept
}

// runs says that there is nothing to tell of a container.
func runs(c corev1.ContainerStatus) bool {
	return c.State.Running != nil && c.RestartCount < restartsTold && starvedAt(c) == nil
}

func slimContainer(c corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: c.RestartCount, State: c.State, LastTerminationState: c.LastTerminationState}
}
