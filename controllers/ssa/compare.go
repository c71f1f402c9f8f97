package ssa

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// toApply is obj as an apply configuration: without what the zero values of Go's types would claim.
func toApply(obj client.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	u.SetGroupVersionKind(kind)
	dropNulls(u.Object)
	delete(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if spec, ok := u.Object["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(u.Object, "spec")
	}
	return u, nil
}

// dropNulls removes fields that are null. An empty map or list stays: it can mean something ("podSelector: {}").
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				delete(v, key)
				continue
			}
			dropNulls(inner)
		}
	case []any:
		for _, inner := range v {
			dropNulls(inner)
		}
	}
}

// comparer compares a live object with what is to be applied, by the rules by which the API server would merge them. An
// annotation with a hash of what was applied would alone miss it when a person changes a field; a look at the values alone would
// miss a field that is no longer asked for. This sees both: the fields that managedFields records as ours must be exactly
// those that we ask for, and have the values that we ask for.
type comparer struct {
	typed managedfields.TypeConverter
}

// has says whether an apply would change nothing. When in doubt it says no: an apply that changes nothing does no harm.
func (c comparer) has(live client.Object, desired *unstructured.Unstructured) bool {
	owned, ok := ownedFields(live, desired.GetAPIVersion())
	if !ok {
		return false
	}
	converter, want, err := c.wanted(desired)
	if err != nil {
		return false
	}
	asked, err := want.ToFieldSet()
	if err != nil || !asked.Difference(neverOwned()).Equals(owned) {
		return false
	}
	if meta, only := live.(*metav1.PartialObjectMetadata); only {
		return sameStamp(meta, desired)
	}
	have, err := read(converter, live, desired.GroupVersionKind())
	if err != nil {
		return false
	}
	difference, err := have.Compare(want)
	return err == nil && difference.Added.Empty() && difference.Modified.Empty()
}

// wanted is desired with the rules of its kind, and what reads a live object by the same rules.
func (c comparer) wanted(desired *unstructured.Unstructured) (managedfields.TypeConverter, *typed.TypedValue, error) {
	want, err := c.typed.ObjectToTyped(desired)
	if err == nil {
		return c.typed, want, nil
	}
	// A kind of somebody's CustomResourceDefinition.
	converter := managedfields.NewDeducedTypeConverter()
	if want, err = converter.ObjectToTyped(desired); err != nil {
		return nil, nil, fmt.Errorf("read what is wanted: %w", err)
	}
	return converter, want, nil
}

func read(converter managedfields.TypeConverter, live client.Object, kind schema.GroupVersionKind) (*typed.TypedValue, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	u.SetGroupVersionKind(kind)
	dropNulls(u.Object)
	have, err := converter.ObjectToTyped(u, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("read what is live: %w", err)
	}
	return have, nil
}

// ownedFields are the fields that were applied as ours.
func ownedFields(live client.Object, version string) (*fieldpath.Set, bool) {
	for _, entry := range live.GetManagedFields() {
		ours := entry.Manager == Owner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
		if !ours || entry.APIVersion != version || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(strings.NewReader(withOwner(live, entry.FieldsV1.GetRawString()))); err != nil {
			return nil, false
		}
		return set, true
	}
	return nil, false
}

// anyOwner stands for the UID of an object's owner in a list of its fields; nothing else there looks like it.
const anyOwner = "~owner~"

// WithoutOwner is a list of an object's fields in which the UID of its owner stands as a word: so it is the same for the objects of a kind
// in every Database, and a cache may hold it once. The writer puts the UID back in.
func WithoutOwner(of metav1.Object, fields *metav1.FieldsV1) *metav1.FieldsV1 {
	owners := of.GetOwnerReferences()
	if len(owners) != 1 || !strings.Contains(fields.GetRawString(), string(owners[0].UID)) {
		return fields
	}
	return metav1.NewFieldsV1(strings.ReplaceAll(fields.GetRawString(), string(owners[0].UID), anyOwner))
}

func withOwner(of metav1.Object, fields string) string {
	owners := of.GetOwnerReferences()
	if len(owners) != 1 {
		return fields
	}
	return strings.ReplaceAll(fields, anyOwner, string(owners[0].UID))
}

// neverOwned are the fields that the API server strips from managedFields.
func neverOwned() *fieldpath.Set {
	return fieldpath.NewSet(
		fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
		fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
	)
}

// unchanged says whether live has all of desired.
//
// What the API server itself answered to an apply of the same content counts, too, for as long as the object does not change:
// an old API server that drops a field which it does not know would else be asked in each pass.
func (w *Writer) unchanged(kind schema.GroupVersionKind, live client.Object, desired *unstructured.Unstructured) bool {
	sum, err := sumOf(desired)
	if err != nil {
		return false
	}
	now := written{uid: live.GetUID(), version: live.GetResourceVersion(), sum: sum}
	if w.seen.has(noun(kind, desired), now) {
		return true
	}
	if !w.compare.has(live, desired) {
		return false
	}
	w.seen.keep(noun(kind, desired), now)
	return true
}

func (w *Writer) remember(kind schema.GroupVersionKind, answer, desired *unstructured.Unstructured) {
	sum, err := sumOf(desired)
	if err != nil {
		return
	}
	w.seen.keep(noun(kind, desired), written{uid: answer.GetUID(), version: answer.GetResourceVersion(), sum: sum})
}

func sumOf(desired *unstructured.Unstructured) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(desired.Object)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode: %w", err)
	}
	return sha256.Sum256(raw), nil
}
