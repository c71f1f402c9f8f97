package database

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

// podWriter is the API server's part for pods that run: what was applied of their annotations before and is not now goes, and the others stay.
type podWriter struct {
	Writer
	pods    map[string]*corev1.Pod
	applied int
}

func (w *podWriter) Apply(_ context.Context, obj client.Object) error {
	pod, is := obj.(*corev1.Pod)
	if !is || w.pods[obj.GetName()] == nil {
		return errors.New("it is no pod that runs")
	}
	w.applied++
	live := w.pods[pod.Name]
	delete(live.Annotations, v1.AnnotationStatements)
	maps.Copy(live.Annotations, pod.Annotations)
	maps.Copy(live.Labels, pod.Labels)
	return nil
}

// TestRunningPodsSayWhichStatementsAreTold: the probe of their node reads it there, and nothing is restarted for it.
func TestRunningPodsSayWhichStatementsAreTold(t *testing.T) {
	s := settled(2)
	w := &podWriter{pods: s.Pods}
	r := &Reconciler{writer: w}
	for _, row := range []struct {
		sentence string
		wish     v1.StatementsSpec
		want     string
		applied  int
	}{
		{"nothing is asked for", v1.StatementsSpec{}, "", 2}, // their other annotations are new
		{"still nothing", v1.StatementsSpec{}, "", 0},
		{"slow ones with literals", v1.StatementsSpec{Slow: &metav1.Duration{Duration: 90 * time.Second}, Literals: true}, `{"slow":"1m30s","literals":true}`, 2},
		{"the same again", v1.StatementsSpec{Slow: &metav1.Duration{Duration: 90 * time.Second}, Literals: true}, `{"slow":"1m30s","literals":true}`, 0},
		{"no failed ones", v1.StatementsSpec{Failed: new(false)}, `{"failed":false}`, 2},
		{"nothing any more", v1.StatementsSpec{}, "", 2},
	} {
		s.Database.Spec.Observability.Statements = row.wish
		plan := decide(s.Seen, surroundings(), noon())
		if len(plan.Pods)+len(plan.Remove) > 0 {
			t.Errorf("%s: %d pods are made and %d objects removed", row.sentence, len(plan.Pods), len(plan.Remove))
		}
		var acted Acted
		w.applied = 0
		r.labelPods(t.Context(), s.Seen, plan, certificate.Material{}, &acted)
		if acted.Err != nil || w.applied != row.applied {
			t.Errorf("%s: %d pods were changed, want %d (%v)", row.sentence, w.applied, row.applied, acted.Err)
		}
		for name, pod := range s.Pods {
			if got := pod.Annotations[v1.AnnotationStatements]; got != row.want {
				t.Errorf("%s: %s says %q, want %q", row.sentence, name, got, row.want)
			}
		}
	}
}
