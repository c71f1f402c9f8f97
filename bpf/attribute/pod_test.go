package attribute

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// What a running pod is, the probe's front door tests with pods that the manager makes.
func TestAPodSaysWhichStatementsAreTold(t *testing.T) {
	for raw, want := range map[string]v1.StatementsSpec{
		"":                                  {},
		"{}":                                {},
		`{"slow":"1m30s","literals":true}`:  {Slow: &metav1.Duration{Duration: 90 * time.Second}, Literals: true},
		`{"failed":false}`:                  {Failed: new(false)},
		`{"literals":true`:                  {},
		`{"literals":true,"slow":"soon"}`:   {}, // all or nothing
		`{"literals":true,"newer":"field"}`: {Literals: true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1.LabelKind: v1.KindInstance, v1.LabelDatabase: "orders", v1.LabelInstance: "orders-1"},
			Annotations: map[string]string{v1.AnnotationStatements: raw},
		}}
		got, _ := OfPod(pod)
		if diff := cmp.Diff(want, got.Statements); diff != "" {
			t.Errorf("%s (-want +got)\n%s", raw, diff)
		}
	}
}
