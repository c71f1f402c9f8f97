package desired

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodDisruptionBudget lets one instance at a time be evicted, and that only while all others are ready: each holds acknowledged
// writes. A Database of one instance may be evicted, or its node could never be drained.
// A witness that votes is counted as one more: while an instance is down, it is the other half of the majority.
func PodDisruptionBudget(in Inputs) *policyv1.PodDisruptionBudget {
	stay := max(0, replicas(in)-1)
	if in.Witness {
		stay++
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: meta(in, in.Database.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			// A number that must stay, not one that may go: the latter makes the disruption controller ask the Database's scale
			// subresource, and a drain would hang whenever it cannot.
			MinAvailable: new(intstr.FromInt32(stay)),
			Selector:     selector(in),
			// An instance that is not ready may hold votes and data: it goes only while enough others are.
			UnhealthyPodEvictionPolicy: new(policyv1.IfHealthyBudget),
		},
	}
}

func replicas(in Inputs) int32 {
	if in.Database.Spec.Replicas == nil {
		return 3
	}
	return *in.Database.Spec.Replicas
}
