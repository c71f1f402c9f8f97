package desired

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spreadRequired is the value of spec.scheduling.spread that refuses two instances on one node.
const spreadRequired = "required"

// affinity keeps instances off each other's nodes. It is anti-affinity and no spread constraint over host names, for two
// reasons: only anti-affinity can refuse a second instance on a node, and the scheduler gives no score to a node that lacks
// one of the keys of a pod's soft spread constraints, so in a cluster without zones a constraint over zones would silently
// turn off one over host names.
func affinity(in Inputs) *corev1.Affinity {
	a := in.Database.Spec.Scheduling.Affinity.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	apart, term := a.PodAntiAffinity, corev1.PodAffinityTerm{
		LabelSelector: selector(in), TopologyKey: corev1.LabelHostname,
	}
	if in.Database.Spec.Scheduling.Spread == spreadRequired {
		apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution, term)
		return a
	}
	apart.PreferredDuringSchedulingIgnoredDuringExecution = append(apart.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: term})
	return a
}

func zoneSpread(in Inputs) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     selector(in),
	}}
}

func selector(in Inputs) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: Selector(in.Database.Name)}
}
