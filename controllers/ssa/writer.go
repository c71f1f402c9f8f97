// Package ssa is the only place where the manager writes to the API server.
package ssa

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Owner is the field manager of all that the manager writes.
const Owner = "plimsoll-manager"

// callTimeout bounds each call: a write that the API server has not answered by then is tried again in a later pass.
const callTimeout = 10 * time.Second

// Writer writes to the API server, and nothing where nothing would change.
type Writer struct {
	client  client.Client
	live    client.Reader
	compare comparer
	// byMetadata are the kinds that the cache holds no more of than the metadata.
	byMetadata map[schema.GroupKind]bool
	seen       *memory
	metrics    *metrics
}

// New makes a Writer. It reads live objects from c, a cache that must keep the managedFields of what is applied (no transform may
// strip them), and asks live, the API server itself, before it makes an object that the cache does not know: the cache is filtered
// by label and does not show what belongs to others. Of the kinds of byMetadata it reads the metadata alone.
func New(c client.Client, live client.Reader, registry prometheus.Registerer, byMetadata ...client.Object) (*Writer, error) {
	m, err := newMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("make the writer: %w", err)
	}
	w := &Writer{
		client: c, live: live, metrics: m, seen: newMemory(maxRemembered), byMetadata: map[schema.GroupKind]bool{},
		compare: comparer{typed: applyconfigurations.NewTypeConverter(c.Scheme())},
	}
	for _, obj := range byMetadata {
		kind, err := w.kindOf(obj)
		if err != nil {
			return nil, fmt.Errorf("make the writer: %w", err)
		}
		w.byMetadata[kind.GroupKind()] = true
	}
	return w, nil
}

// Live is a Writer that reads from c, which asks the API server itself: for the few objects that no cache holds.
func (w *Writer) Live(c client.Client) *Writer {
	live := *w
	live.client, live.live, live.byMetadata = c, c, nil
	return &live
}

// Apply gives the live object all that obj says, and takes back what Plimsoll said before and says no longer, by server-side
// apply. What others added stays. It writes nothing if all is so already. An object that belongs to someone else is left alone:
// the error is then a *ForeignError.
func (w *Writer) Apply(ctx context.Context, obj client.Object) error {
	kind, err := w.kindOf(obj)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	desired, err := toApply(obj, kind)
	if err == nil && w.byMetadata[kind.GroupKind()] {
		err = stamp(desired)
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", noun(kind, obj), err)
	}
	live, err := w.read(ctx, kind, obj)
	if err != nil {
		return err
	}
	if live == nil {
		return w.applyNew(ctx, kind, desired)
	}
	if err := foreign(kind, live, obj); err != nil {
		w.metrics.count(kind, verbApply, err)
		return err
	}
	if w.unchanged(kind, live, desired) {
		return nil
	}
	// The Database controls the object, so what others changed of Plimsoll's own fields is put right.
	err = w.patch(ctx, kind, desired, client.ForceOwnership)
	if apierrors.IsInvalid(err) {
		return w.replaceLists(ctx, kind, desired, err)
	}
	return err
}

// applyNew applies an object that the cache does not know.
func (w *Writer) applyNew(ctx context.Context, kind schema.GroupVersionKind, desired *unstructured.Unstructured) error {
	found, err := w.ask(ctx, kind, desired)
	if err != nil {
		return err
	}
	if found == nil {
		// Unforced: someone may make an object of this name in this very moment, and then their fields win.
		err = w.patch(ctx, kind, desired)
		if !apierrors.IsConflict(err) {
			return err
		}
		if found, err = w.ask(ctx, kind, desired); err != nil {
			return err
		}
	}
	if found != nil {
		if err := foreign(kind, found, desired); err != nil {
			w.metrics.count(kind, verbApply, err)
			return err
		}
	}
	return w.patch(ctx, kind, desired, client.ForceOwnership)
}

func (w *Writer) patch(ctx context.Context, kind schema.GroupVersionKind, desired *unstructured.Unstructured, opts ...client.ApplyOption) error {
	opts = append(opts, client.FieldOwner(Owner))
	sent := desired.DeepCopy()
	err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), opts...)
	w.metrics.count(kind, verbApply, err)
	if err != nil {
		return fmt.Errorf("apply %s: %w", noun(kind, desired), err)
	}
	w.remember(kind, sent, desired)
	return nil
}

// replaceLists puts an object right whose merge with what is wanted is invalid: of a port that someone gave another number, the
// merge has both, with one name. A merge patch takes lists as wholes. What it writes is then made a part of what was applied, or
// no later apply would take it back.
func (w *Writer) replaceLists(ctx context.Context, kind schema.GroupVersionKind, desired *unstructured.Unstructured, refused error) error {
	raw, err := desired.MarshalJSON()
	if err != nil {
		return fmt.Errorf("apply %s: %w", noun(kind, desired), err)
	}
	changed := desired.DeepCopy()
	err = w.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(Owner))
	w.metrics.count(kind, verbApply, err)
	if err != nil {
		return refused // the wanted object itself is what the API server does not take, and says best why
	}
	fields, err := csaupgrade.UpgradeManagedFieldsPatch(changed, sets.New(Owner), Owner)
	if err == nil && fields != nil {
		err = w.client.Patch(ctx, changed, client.RawPatch(types.JSONPatchType, fields), client.FieldOwner(Owner))
		w.metrics.count(kind, verbApply, err)
	}
	if err != nil {
		return fmt.Errorf("apply %s: take over what was changed: %w", noun(kind, desired), err)
	}
	return w.patch(ctx, kind, desired, client.ForceOwnership)
}

// Create makes obj if there is none of its name, and never changes it after: for what is a shell that others fill, and for pods.
// An object that belongs to someone else gives a *ForeignError.
func (w *Writer) Create(ctx context.Context, obj client.Object) error {
	kind, err := w.kindOf(obj)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	live, err := w.read(ctx, kind, obj)
	if err != nil {
		return err
	}
	if live != nil {
		return foreign(kind, live, obj)
	}
	err = w.client.Create(ctx, obj.DeepCopyObject().(client.Object), client.FieldOwner(Owner))
	if apierrors.IsAlreadyExists(err) {
		return w.afterLostCreate(ctx, kind, obj)
	}
	w.metrics.count(kind, verbCreate, err)
	if err != nil {
		return fmt.Errorf("create %s: %w", noun(kind, obj), err)
	}
	return nil
}

// afterLostCreate says whose the object is that was there before ours: our own that the cache has not seen yet, or a stranger's.
func (w *Writer) afterLostCreate(ctx context.Context, kind schema.GroupVersionKind, obj client.Object) error {
	found, err := w.ask(ctx, kind, obj)
	if err != nil || found == nil {
		return err // Gone again: the next pass makes it.
	}
	err = foreign(kind, found, obj)
	w.metrics.count(kind, verbCreate, err)
	return err
}

// Delete removes exactly the live object that was read. That it is gone already, or that another has taken its name, is no error.
func (w *Writer) Delete(ctx context.Context, obj client.Object) error {
	kind, err := w.kindOf(obj)
	if err != nil {
		return err
	}
	uid := obj.GetUID()
	if uid == "" {
		return fmt.Errorf("delete %s: it was not read from the API server and has no UID", noun(kind, obj))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = w.client.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
	w.metrics.count(kind, verbDelete, err)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", noun(kind, obj), err)
	}
	return nil
}

func (w *Writer) kindOf(obj client.Object) (schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(obj, w.client.Scheme())
	if err != nil {
		return kind, fmt.Errorf("find the kind of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return kind, nil
}

// read the live object from the cache; nil if that has none.
func (w *Writer) read(ctx context.Context, kind schema.GroupVersionKind, obj client.Object) (client.Object, error) {
	live, err := w.empty(kind)
	if err != nil {
		return nil, err
	}
	err = w.client.Get(ctx, client.ObjectKeyFromObject(obj), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", noun(kind, obj), err)
	}
	return live, nil
}

func (w *Writer) empty(kind schema.GroupVersionKind) (client.Object, error) {
	if w.byMetadata[kind.GroupKind()] {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(kind)
		return m, nil
	}
	made, err := w.client.Scheme().New(kind)
	if runtime.IsNotRegisteredError(err) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make an empty %s: %w", kind.Kind, err)
	}
	object, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("make an empty %s: it is no object", kind.Kind)
	}
	return object, nil
}

func noun(kind schema.GroupVersionKind, obj client.Object) string {
	return fmt.Sprintf("%s %s/%s", kind.Kind, obj.GetNamespace(), obj.GetName())
}
