package ssa

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Status writes status if it differs from that of seen, the Database as it was read. A Database that is gone, or whose name
// another has taken, is no error.
func (w *Writer) Status(ctx context.Context, seen *v1.Database, status v1.DatabaseStatus) error {
	if equality.Semantic.DeepEqual(seen.Status, status) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kind := v1.GroupVersion.WithKind("Database")
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", noun(kind, seen), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(seen.Namespace)
	u.SetName(seen.Name)
	// A condition: another Database of this name must not get this one's status.
	u.SetUID(seen.UID)
	dropNulls(u.Object)
	err = w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(Owner), client.ForceOwnership)
	w.metrics.count(kind, verbStatus, err)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", noun(kind, seen), err)
	}
	return nil
}
