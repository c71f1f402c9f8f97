package desired

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceAccount of the agents. Its token is mounted by the pod alone, with a short life.
func ServiceAccount(in Inputs) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   meta(in, AgentName(in.Database.Name)),
		AutomountServiceAccountToken: new(false),
	}
}

// Role lets the agents get and update their one Lease and their one EndpointSlice.
func Role(in Inputs) *rbacv1.Role {
	slice := []string{EndpointSliceName(in.Database.Name)}
	rules := []rbacv1.PolicyRule{
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			ResourceNames: []string{LeaseName(in.Database.Name)}, Verbs: []string{"get", "update"},
		},
		{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
			ResourceNames: slice, Verbs: []string{"get", "update"},
		},
	}
	if in.OpenShift {
		// Its admission wants this right of whoever writes an endpoint that lies in the range of the pods.
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices/restricted"},
			ResourceNames: slice, Verbs: []string{"create", "update"},
		})
	}
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
		ObjectMeta: meta(in, AgentName(in.Database.Name)),
		Rules:      rules,
	}
}

// RoleBinding gives the agents their Role.
func RoleBinding(in Inputs) *rbacv1.RoleBinding {
	name := AgentName(in.Database.Name)
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
		ObjectMeta: meta(in, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: in.Database.Namespace}},
	}
}
