package ssa

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// ForeignError says that an object of the wanted name belongs to someone else.
type ForeignError struct {
	Kind, Namespace, Name string
	// Holder says whose it is.
	Holder string
}

// Error implements error.
func (e *ForeignError) Error() string {
	if e.Namespace == "" {
		return fmt.Sprintf("%s %s belongs to %s and is left as it is; delete or rename it", e.Kind, e.Name, e.Holder)
	}
	fix := "delete or rename it, or choose another name for the Database"
	if e.Namespace == v1.ProbeNamespace {
		fix = "delete or rename it"
	}
	return fmt.Sprintf("%s %s/%s belongs to %s and is left as it is; %s", e.Kind, e.Namespace, e.Name, e.Holder, fix)
}

// ask the API server itself for the metadata of the object, past the cache; nil if there is none.
func (w *Writer) ask(ctx context.Context, kind schema.GroupVersionKind, obj client.Object) (client.Object, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	err := w.live.Get(ctx, client.ObjectKeyFromObject(obj), found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", noun(kind, obj), err)
	}
	return found, nil
}

// foreign is a *ForeignError if live belongs to someone else than obj is meant for.
//
// An object belongs to the Database that controls it. One without a controller (a retained claim, or something that a backup
// tool put back) belongs to the Database that its annotation names by UID, or else its label by name.
func foreign(kind schema.GroupVersionKind, live, obj client.Object) error {
	e := &ForeignError{Kind: kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	wanted := uidOf(obj)
	if holder := metav1.GetControllerOf(live); holder != nil {
		if string(holder.UID) == wanted {
			return nil
		}
		e.Holder = fmt.Sprintf("%s %s (uid %s)", holder.Kind, holder.Name, holder.UID)
		return e
	}
	database := live.GetLabels()[v1.LabelDatabase]
	if uid := live.GetAnnotations()[v1.AnnotationDatabaseUID]; uid != "" {
		if uid == wanted {
			return nil
		}
		e.Holder = fmt.Sprintf("an earlier Database %s (uid %s)", database, uid)
		return e
	}
	if database != "" && database == obj.GetLabels()[v1.LabelDatabase] {
		return nil
	}
	e.Holder = "someone else: it has no owner"
	if obj.GetLabels()[v1.LabelDatabase] != "" {
		e.Holder = "someone else: it has no owner and no label " + v1.LabelDatabase + " of this Database"
	}
	return e
}

// uidOf the Database that an object is meant for.
func uidOf(obj client.Object) string {
	if holder := metav1.GetControllerOf(obj); holder != nil {
		return string(holder.UID)
	}
	return obj.GetAnnotations()[v1.AnnotationDatabaseUID]
}
