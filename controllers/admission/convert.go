package admission

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1beta1"
)

// conversionHandler serves conversions between the versions of Database. All versions have the same fields (decision 0004), so a
// conversion renames the version and touches nothing else. It works on the document rather than on Go types: those would rewrite
// a quantity (1024Mi comes back as 1Gi, and `kubectl apply` sees a change), and drop a field that a newer CRD has and this
// binary does not know.
func conversionHandler() (http.Handler, error) {
	scheme := runtime.NewScheme()
	for _, gv := range versions() {
		scheme.AddKnownTypeWithName(gv.WithKind("Database"), &unstructured.Unstructured{})
	}
	registry := conversion.NewRegistry()
	if err := registry.RegisterConverter(v1.GroupVersion.WithKind("Database").GroupKind(), renamer{}); err != nil {
		return nil, err
	}
	return conversion.NewWebhookHandler(scheme, registry), nil
}

func versions() []schema.GroupVersion {
	return []schema.GroupVersion{v1.GroupVersion, v1beta1.GroupVersion, v1alpha1.GroupVersion}
}

// renamer converts between versions of one shape.
type renamer struct{}

// ConvertObject writes src into dst, which keeps its own version.
func (renamer) ConvertObject(_ context.Context, src, dst runtime.Object) error {
	from, ok := src.(*unstructured.Unstructured)
	to, also := dst.(*unstructured.Unstructured)
	if !ok || !also {
		return fmt.Errorf("convert %T to %T: not a document", src, dst)
	}
	wanted := to.GroupVersionKind()
	to.Object = from.DeepCopy().Object
	to.SetGroupVersionKind(wanted)
	return nil
}
