// Package desired builds every Kubernetes object of a Database, purely: the same inputs give the same bytes.
package desired

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Inputs is all that the objects of one Database depend on.
type Inputs struct {
	// Database with its UID. It is read only.
	Database *v1.Database
	// Parts that its engine adds to a pod.
	Parts engine.Parts
	// Effective values where the spec leaves a choice: Image and StorageSize must be set; RunAsUser is nil where the platform
	// chooses (OpenShift).
	Effective v1.EffectiveSpec
	// AgentImage is the operator's own image: it holds the agent that the init container copies.
	AgentImage string
	// OperatorNamespace is where the manager's pods run; only they and the members reach the agents.
	OperatorNamespace string
	// OpenShift leaves the user to the platform and asks for endpointslices/restricted.
	OpenShift bool
	// Witness votes beside two instances, and counts in what may be evicted.
	Witness bool
	// AddressType of the Service for writes; IPv4 if empty. It cannot change once the EndpointSlice exists.
	AddressType discoveryv1.AddressType
}

// Instance is one instance to build for.
type Instance struct {
	// Ordinal of the instance, from 1.
	Ordinal int32
	// HeldData and HeldWAL are what its claims ask for today, nil where there is none: a claim never asks for less, because
	// volumes do not shrink and the API server would refuse it.
	HeldData, HeldWAL *resource.Quantity
}

// Connection is what the connection Secret tells a client.
type Connection struct {
	Username, Password string
	// Authority is the PEM bundle that the server's certificate verifies against.
	Authority []byte
}
