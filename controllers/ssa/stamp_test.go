package ssa_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// TestTheMetadataTellsEveryChange: without the values, every way by which someone can change a field of ours must still show, to a
// writer that remembers nothing too, and so must a change of what is asked for.
func TestTheMetadataTellsEveryChange(t *testing.T) {
	port := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) }
	for sentence, change := range map[string]func(t *testing.T, w *world, live *corev1.Service){
		"an edit": func(t *testing.T, w *world, live *corev1.Service) {
			port(live)
			must(t, w.person.Update(t.Context(), live))
		},
		"a field taken away": func(t *testing.T, w *world, live *corev1.Service) {
			live.Spec.Selector = nil
			must(t, w.person.Update(t.Context(), live))
		},
		// Merged with ours, the list would have two ports of one name, which the API server refuses.
		"an element of a list whose key is changed": func(t *testing.T, w *world, live *corev1.Service) {
			live.Spec.Ports = []corev1.ServicePort{{Name: "postgres", Port: 5433}}
			must(t, w.person.Update(t.Context(), live))
		},
		"a label taken away": func(t *testing.T, w *world, live *corev1.Service) {
			live.Labels = nil
			live.Annotations["team"] = "shop"
			must(t, w.person.Update(t.Context(), live))
		},
		"a patch under the manager's own name": func(t *testing.T, w *world, live *corev1.Service) {
			before := live.DeepCopy()
			port(live)
			must(t, w.person.Patch(t.Context(), live, client.MergeFrom(before), client.FieldOwner(ssa.Owner)))
		},
		"an apply by someone else, with force": func(t *testing.T, w *world, live *corev1.Service) {
			must(t, w.person.Apply(t.Context(), applyPort(w, 1), client.ForceOwnership, client.FieldOwner("gitops")))
		},
		"an apply by someone else of the same value, and then of another": func(t *testing.T, w *world, live *corev1.Service) {
			must(t, w.person.Apply(t.Context(), applyPort(w, 5432), client.FieldOwner("gitops")))
			must(t, w.person.Apply(t.Context(), applyPort(w, 1), client.ForceOwnership, client.FieldOwner("gitops")))
		},
		"an apply under the manager's own name": func(t *testing.T, w *world, live *corev1.Service) {
			must(t, w.person.Apply(t.Context(), applyPort(w, 1), client.ForceOwnership, client.FieldOwner(ssa.Owner)))
		},
		"managedFields wiped and a value changed": func(t *testing.T, w *world, live *corev1.Service) {
			live.ManagedFields = []metav1.ManagedFieldsEntry{{}}
			port(live)
			must(t, w.person.Update(t.Context(), live))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newBlindWorld(t, nil, byMetadata()...)
			w.apply(t, w.service())
			change(t, w, get(t, w, w.service()))
			if err := newWriterLike(t, w).Apply(t.Context(), w.service()); err != nil {
				t.Fatal(err)
			}
			got, want := get(t, w, w.service()), w.service()
			type owned struct {
				Labels, Selector map[string]string
				Port             *corev1.ServicePort
			}
			find := func(s *corev1.Service) owned {
				o := owned{Labels: s.Labels, Selector: s.Spec.Selector}
				for i := range s.Spec.Ports {
					if s.Spec.Ports[i].Port == 5432 {
						o.Port = &s.Spec.Ports[i]
					}
				}
				return o
			}
			if diff := cmp.Diff(find(want), find(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("what is left after an element was put back has one owner", func(t *testing.T) {
		w := newBlindWorld(t, nil, byMetadata()...)
		w.apply(t, w.service())
		live := get(t, w, w.service())
		live.Spec.Ports = []corev1.ServicePort{{Name: "postgres", Port: 5433}}
		must(t, w.person.Update(t.Context(), live))
		w.apply(t, w.service())
		less := w.service()
		less.Spec.Selector = nil
		w.apply(t, less)
		if got := get(t, w, w.service()).Spec; len(got.Selector) > 0 || len(got.Ports) != 1 {
			t.Errorf("selector %v and ports %v, want no selector and one port", got.Selector, got.Ports)
		}
		sent := w.requests
		w.apply(t, less)
		if w.requests != sent {
			t.Error("a service that was put right is written again")
		}
	})
	t.Run("a change of what is asked for, by a writer that remembers nothing", func(t *testing.T) {
		w := newBlindWorld(t, nil, byMetadata()...)
		w.apply(t, w.service())
		other := w.service()
		port(other)
		if err := newWriterLike(t, w).Apply(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if got := get(t, w, w.service()).Spec.Ports[0].TargetPort.IntValue(); got != 1 {
			t.Errorf("target port is %d, want 1", got)
		}
	})
}

func applyPort(w *world, target int32) runtime.ApplyConfiguration {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "orders-ro", "namespace": w.namespace, "labels": map[string]any{v1.LabelDatabase: "orders"}},
		"spec":     map[string]any{"ports": []any{map[string]any{"port": int64(5432), "protocol": "TCP", "targetPort": int64(target)}}},
	}}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	return client.ApplyConfigurationFromUnstructured(u)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
