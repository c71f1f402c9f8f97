package api

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func versions() []string { return []string{"v1", "v1beta1", "v1alpha1"} }

func read(t *testing.T, version, ns, name string) map[string]any {
	t.Helper()
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "plimsoll.dev", Version: version, Kind: "Database"})
	if err := shared.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, d); err != nil {
		t.Fatal(err)
	}
	if got := d.GetAPIVersion(); got != "plimsoll.dev/"+version {
		t.Errorf("asked for %s, got %s", version, got)
	}
	return d.Object
}

// told is what a user put into a document: its labels, annotations, spec and status.
func told(doc map[string]any) map[string]any {
	meta := doc["metadata"].(map[string]any)
	return map[string]any{"labels": meta["labels"], "annotations": meta["annotations"], "spec": doc["spec"], "status": doc["status"]}
}

// TestEveryFieldSurvivesEveryVersion writes a Database with every field at one version, reads it at each, writes it back from
// there unchanged, and looks at it again at each.
func TestEveryFieldSurvivesEveryVersion(t *testing.T) {
	survives(t)
}

// TestEveryFieldSurvivesWithoutConversion is the same while the CRD has no conversion webhook, as during an upgrade by OLM and
// after an uninstall.
func TestEveryFieldSurvivesWithoutConversion(t *testing.T) {
	converting(t, false)
	defer converting(t, true)
	survives(t)
}

func survives(t *testing.T) {
	ns := namespace(t, nil)
	for _, written := range versions() {
		name := fresh()
		doc := everything(written, ns, name)
		want := told(doc)
		want["status"] = reported()
		want = maps.Clone(want)
		d := &unstructured.Unstructured{Object: doc}
		if err := shared.client.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		d.Object["status"] = reported()
		if err := shared.client.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		for _, through := range versions() {
			if diff := cmp.Diff(want, told(read(t, through, ns, name))); diff != "" {
				t.Errorf("written at %s, read at %s:\n%s", written, through, diff)
			}
			back := &unstructured.Unstructured{Object: read(t, through, ns, name)}
			before := back.GetResourceVersion()
			if err := shared.client.Update(t.Context(), back); err != nil {
				t.Fatal(err)
			}
			if after := back.GetResourceVersion(); after != before {
				t.Errorf("written at %s: writing it back unchanged at %s changed it", written, through)
			}
			set("spec.region", through)(back.Object)
			if err := shared.client.Update(t.Context(), back); err != nil {
				t.Fatal(err)
			}
			want["spec"].(map[string]any)["region"] = through
			for _, at := range versions() {
				if diff := cmp.Diff(want, told(read(t, at, ns, name))); diff != "" {
					t.Errorf("written at %s, changed at %s, read at %s:\n%s", written, through, at, diff)
				}
			}
		}
	}
}

// converting switches the CRD between its conversion webhook and none, and waits until the API server has followed.
func converting(t *testing.T, on bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := shared.client.Get(ctx, client.ObjectKey{Name: crdName}, crd); err != nil {
		t.Fatal(err)
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	if on {
		crd.Spec.Conversion = shared.conversion()
	}
	if err := shared.client.Update(ctx, crd); err != nil {
		t.Fatal(err)
	}
	calls := shared.conversions.Load()
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		before := shared.conversions.Load()
		err := shared.client.Create(ctx, document("v1alpha1", "hooks", "probe"), client.DryRunAll)
		return err == nil && (shared.conversions.Load() > before) == on, nil
	})
	if err != nil {
		t.Fatalf("the API server does not follow the CRD's conversion (%d conversions before): %v", calls, err)
	}
}

func TestOnlyV1IsStoredAndOlderVersionsWarn(t *testing.T) {
	ns := namespace(t, nil)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := shared.client.Get(t.Context(), client.ObjectKey{Name: crdName}, crd); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1"}, crd.Status.StoredVersions); diff != "" {
		t.Error(diff)
	}
	c, warnings := listening(t)
	for version, want := range map[string][]string{
		"v1":       nil,
		"v1beta1":  {"plimsoll.dev/v1beta1 Database is deprecated; use plimsoll.dev/v1, which has the same fields"},
		"v1alpha1": {"plimsoll.dev/v1alpha1 Database is deprecated; use plimsoll.dev/v1, which has the same fields"},
	} {
		if err := c.Create(t.Context(), document(version, ns, fresh())); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, warnings.take()); diff != "" {
			t.Errorf("%s: %s", version, diff)
		}
	}
}

// TestEveryVersionHasTheSameSchema holds decision 0004: the same fields, rules and defaults at every version. Descriptions may
// differ.
func TestEveryVersionHasTheSameSchema(t *testing.T) {
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	want := plain(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	for _, version := range crd.Spec.Versions {
		if version.Storage != (version.Name == "v1") || !version.Served || version.Deprecated == version.Storage {
			t.Errorf("%s: storage %t, served %t, deprecated %t", version.Name, version.Storage, version.Served, version.Deprecated)
		}
		if diff := cmp.Diff(want, plain(*version.Schema.OpenAPIV3Schema)); diff != "" {
			t.Errorf("%s and %s:\n%s", crd.Spec.Versions[0].Name, version.Name, diff)
		}
		if diff := cmp.Diff(crd.Spec.Versions[0].AdditionalPrinterColumns, version.AdditionalPrinterColumns); diff != "" {
			t.Errorf("%s: %s", version.Name, diff)
		}
		if diff := cmp.Diff(crd.Spec.Versions[0].Subresources, version.Subresources); diff != "" {
			t.Errorf("%s: %s", version.Name, diff)
		}
	}
}

func plain(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	s.Description = ""
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for name, property := range s.Properties {
		properties[name] = plain(property)
	}
	s.Properties = properties
	if s.Items != nil {
		item := plain(*s.Items.Schema)
		s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		value := plain(*s.AdditionalProperties.Schema)
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &value}
	}
	return s
}
