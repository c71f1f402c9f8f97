package ssa

import (
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// stamp writes a sum of what is applied into what is applied, for kinds whose values the cache does not hold. The sum shows that
// something else is asked for now. That someone changed or took away a field of ours is shown by managedFields, whoever it was and
// however: with its value the API server takes the field itself off our list.
func stamp(desired *unstructured.Unstructured) error {
	sum, err := sumOf(desired)
	if err != nil {
		return err
	}
	annotations := desired.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1.AnnotationApplied] = hex.EncodeToString(sum[:16])
	desired.SetAnnotations(annotations)
	return nil
}

func sameStamp(live *metav1.PartialObjectMetadata, desired *unstructured.Unstructured) bool {
	stamped := desired.GetAnnotations()[v1.AnnotationApplied]
	return stamped != "" && live.GetAnnotations()[v1.AnnotationApplied] == stamped
}
