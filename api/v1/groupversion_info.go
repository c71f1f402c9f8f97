// Package v1 is the vocabulary of Plimsoll: the kinds of plimsoll.dev/v1, their conditions, reasons and labels. It is the hub
// of conversion and the storage version.
//
// +kubebuilder:object:generate=true
// +groupName=plimsoll.dev
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "plimsoll.dev", Version: "v1"}

// AddToScheme registers this package's kinds with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Database{}, &DatabaseList{}, &Probe{}, &ProbeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
