package desired

import (
	corev1 "k8s.io/api/core/v1"
)

// podSecurity meets the Pod Security Standard "restricted". The group of the volumes always belongs to the user: set here, or,
// on OpenShift, by the namespace's security context constraint, which refuses a group from outside its range.
func podSecurity(in Inputs) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	user := runAsUser(in)
	if user == nil {
		return s
	}
	s.RunAsUser, s.RunAsGroup, s.FSGroup = user, new(*user), new(*user)
	// Without it the kubelet walks through the whole volume at each start, which takes minutes on a large one.
	s.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch)
	return s
}

func runAsUser(in Inputs) *int64 {
	if user := in.Effective.RunAsUser; user != nil {
		return new(*user)
	}
	if in.OpenShift {
		return nil
	}
	return new(in.Parts.RunAsUser)
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
