package plugin

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// The operator writes the status of a busy Database many times a second; a person's command must not fail for it, nor undo what
// another person asked in between.
func TestAnnotateGoesOnAfterAWriteInBetween(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	d := running()
	d.Annotations = map[string]string{v1.AnnotationFence: "orders-1"}
	patches := 0
	live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(d).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if patches++; patches == 1 {
				other := &v1.Database{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(d), other); err != nil {
					return err
				}
				other.Annotations[v1.AnnotationFence] = "orders-1,orders-2"
				if err := c.Update(ctx, other); err != nil {
					return err
				}
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	k := &cluster{Client: live, namespace: d.Namespace}
	err := k.annotate(t.Context(), d.Name, v1.AnnotationFence, func(now string) string { return now + ",orders-3" })
	if err != nil {
		t.Fatal(err)
	}
	after, err := k.database(t.Context(), d.Name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("orders-1,orders-2,orders-3", after.Annotations[v1.AnnotationFence]); diff != "" {
		t.Errorf("after %d tries (-want +got):\n%s", patches, diff)
	}
}
