package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

// subresourceScale is what `kubectl scale` and autoscalers write.
const subresourceScale = "scale"

// scale answers a request to the scale subresource: it holds a number, so the Database is read to ask policy about it with that
// number. The schema's own rules the API server asks by itself. A Database that cannot be read is left to the reconciler.
func (v validator) scale(ctx context.Context, r ctrladmission.Request) ctrladmission.Response {
	wish := &autoscalingv1.Scale{}
	if err := v.decoder.DecodeRaw(r.Object, wish); err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, fmt.Errorf("decode the scale of Database %s/%s: %w", r.Namespace, r.Name, err))
	}
	ctx, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()
	old := &v1.Database{}
	if err := v.databases.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, old); err != nil {
		return ctrladmission.Allowed("").WithWarnings(fmt.Sprintf("spec.replicas: not checked, because Database %s could not be read: %v", r.Name, err))
	}
	next := old.DeepCopy()
	next.Spec.Replicas = &wish.Spec.Replicas
	// What was wrong before is no reason to refuse another number.
	known := texts(policy.Check(old, old, v.engines))
	found := slices.DeleteFunc(policy.Check(old, next, v.engines), func(e *field.Error) bool { return slices.Contains(known, e.Error()) })
	told := policy.Warnings(nil, old, v.engines)
	warnings := slices.DeleteFunc(policy.Warnings(old, next, v.engines), func(w string) bool { return slices.Contains(told, w) })
	if len(found) > 0 {
		return refused(apierrors.NewInvalid(v1.GroupVersion.WithKind("Database").GroupKind(), r.Name, found)).WithWarnings(warnings...)
	}
	return ctrladmission.Allowed("").WithWarnings(warnings...)
}

func texts(all field.ErrorList) []string {
	out := make([]string, 0, len(all))
	for _, e := range all {
		out = append(out, e.Error())
	}
	return out
}
