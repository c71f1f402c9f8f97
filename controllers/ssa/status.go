package ssa

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Status writes the status of a Database if it differs from that of seen, the Database as it was read. One that is gone, or whose name
// another has taken, is no error.
func (w *Writer) Status(ctx context.Context, seen *v1.Database, status v1.DatabaseStatus) error {
	if equality.Semantic.DeepEqual(seen.Status, status) {
		return nil
	}
	return w.status(ctx, seen, &status)
}

// ProbeStatus does the same for a Probe.
func (w *Writer) ProbeStatus(ctx context.Context, seen *v1.Probe, status v1.ProbeStatus) error {
	if equality.Semantic.DeepEqual(seen.Status, status) {
		return nil
	}
	return w.status(ctx, seen, &status)
}

// status writes what status points to.
func (w *Writer) status(ctx context.Context, seen client.Object, status any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kind, err := w.kindOf(seen)
	if err != nil {
		return err
	}
	u, err := statusToApply(kind, seen, status)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", noun(kind, seen), err)
	}
	err = w.patchStatus(ctx, kind, u)
	if apierrors.IsConflict(err) {
		err = w.statusAgain(ctx, kind, seen, u)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of %s: %w", noun(kind, seen), err)
	}
	return nil
}

// statusToApply names the resourceVersion that was read: the API server ignores a UID in a status, and without either the status
// of one Database could land on another that has taken its name.
func statusToApply(kind schema.GroupVersionKind, seen client.Object, status any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(seen.GetNamespace())
	u.SetName(seen.GetName())
	u.SetResourceVersion(seen.GetResourceVersion())
	dropNulls(u.Object)
	return u, nil
}

func (w *Writer) patchStatus(ctx context.Context, kind schema.GroupVersionKind, u *unstructured.Unstructured) error {
	sent := client.ApplyConfigurationFromUnstructured(u.DeepCopy())
	err := w.client.Status().Apply(ctx, sent, client.FieldOwner(Owner), client.ForceOwnership)
	w.metrics.count(kind, verbStatus, err)
	return err
}

// statusAgain writes after a change that the cache had not seen, if it is the same Database still. A status has one writer, so
// what changed was something else, and this status is the newest there is.
func (w *Writer) statusAgain(ctx context.Context, kind schema.GroupVersionKind, seen client.Object, u *unstructured.Unstructured) error {
	now, err := w.ask(ctx, kind, seen)
	if err != nil || now == nil || now.GetUID() != seen.GetUID() {
		return err
	}
	u.SetResourceVersion(now.GetResourceVersion())
	return w.patchStatus(ctx, kind, u)
}
