package probe

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

// Plan is what a pass does.
type Plan struct {
	// Apply in this order.
	Apply []client.Object
	// Remove is nil for nothing.
	Remove client.Object
	// Refused says what of the spec cannot be done, and what to do about it; empty if all can.
	Refused string
}

// decide what is to be done. It is pure.
func decide(s Seen, in desired.ProbeInputs) Plan {
	if s.Probe.Spec.Mode == v1.ProbeOff {
		if s.DaemonSet == nil || !metav1.IsControlledBy(s.DaemonSet, s.Probe) {
			return Plan{}
		}
		return Plan{Remove: s.DaemonSet}
	}
	if why := refuse(s.Probe.Spec); why != "" {
		return Plan{Refused: why}
	}
	return Plan{Apply: []client.Object{desired.ProbeNamespace(in), desired.ProbeServiceAccount(in), desired.ProbePolicy(in), desired.ProbeDaemonSet(in)}}
}

// refuse says what of a spec the schema lets through and cannot be.
func refuse(spec v1.ProbeSpec) string {
	limit, limited := spec.Resources.Limits[corev1.ResourceMemory]
	least := resource.NewQuantity(desired.ProbeMemoryLeast, resource.BinarySI)
	if limited && limit.Cmp(*least) < 0 {
		return fmt.Sprintf("spec.resources.limits.memory is %s, and the kernel's maps alone may take 72Mi: give %s or more", &limit, least)
	}
	return ""
}
