package desired

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// NetworkPolicy of the pods: the server is open to all, who need a password and TLS; the agents to each other and to the manager.
// The health port is in no rule: a policy never holds back a node from the pods that run on it, and nobody else needs it.
func NetworkPolicy(in Inputs) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: meta(in, in.Database.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selector(in),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{Ports: policyPort(in.Parts.Port.ContainerPort)},
				{Ports: policyPort(engine.AgentPort), From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: selector(in)},
					manager(in.OperatorNamespace),
				}},
			},
		},
	}
}

// manager is who a pod of the operator is to a policy.
func manager(namespace string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: ManagerPodLabels()},
	}
}

func policyPort(port int32) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}}
}
