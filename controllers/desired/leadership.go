package desired

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// sliceKeeper fills the slice of the Service for writes.
const sliceKeeper = "plimsoll-operator"

// EndpointSlice is the shell that the leader's agent fills. Create it once and never apply it: its lists are atomic and the
// agent's, and an apply that names one would take it over, or empty it. The agent updates only the endpoints.
func EndpointSlice(in Inputs) *discoveryv1.EndpointSlice {
	m := meta(in, EndpointSliceName(in.Database.Name))
	m.Labels[discoveryv1.LabelServiceName] = WriteServiceName(in.Database.Name)
	// Another value than the endpoint controller's, so that it leaves the slice alone.
	m.Labels[discoveryv1.LabelManagedBy] = sliceKeeper
	kind := in.AddressType
	if kind == "" {
		kind = discoveryv1.AddressTypeIPv4
	}
	return &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  m,
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{
			Name: new(portName(in)), Port: new(in.Parts.Port.ContainerPort), Protocol: new(corev1.ProtocolTCP),
		}},
	}
}

// Lease is the shell of the leadership's record. Create it once and never apply it. Bootstrap names the member that may
// initialise; leave it empty for a Database that ever had a leader (status.epoch > 0), so that a Lease that was lost cannot
// make a new, empty database.
func Lease(in Inputs, bootstrap string) *coordinationv1.Lease {
	m := meta(in, LeaseName(in.Database.Name))
	if bootstrap != "" {
		m.Annotations = map[string]string{v1.AnnotationBootstrap: bootstrap}
	}
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: m,
	}
}
