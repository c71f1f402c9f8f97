package admission

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

// +kubebuilder:webhook:path=/validate-plimsoll-dev-v1-database,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=3,groups=plimsoll.dev,resources=databases;databases/scale,verbs=create;update;delete,versions=v1,name=databases.validate.plimsoll.dev,admissionReviewVersions=v1,serviceName=plimsoll-webhook,serviceNamespace=plimsoll-system

// validator asks policy about each Database that is created, changed or deleted.
type validator struct {
	decoder   ctrladmission.Decoder
	engines   policy.Engines
	databases client.Reader
}

// Handle answers one request.
func (v validator) Handle(ctx context.Context, r ctrladmission.Request) ctrladmission.Response {
	if r.Operation == admissionv1.Delete {
		return v.remove(r)
	}
	if r.SubResource == subresourceScale {
		return v.scale(ctx, r)
	}
	next := &v1.Database{}
	if err := v.decoder.DecodeRaw(r.Object, next); err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, fmt.Errorf("decode Database %s/%s: %w", r.Namespace, r.Name, err))
	}
	old, err := v.before(r)
	if err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, err)
	}
	// A Database that goes away is only waiting for finalizers, which no rule may hold up. And one whose spec stays as it is may
	// have been stored before a rule existed: its labels and requests still change; the reconciler says what is wrong with it.
	if next.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(old.Spec, next.Spec) {
		return ctrladmission.Allowed("").WithWarnings(policy.FenceWarnings(old, next)...)
	}
	if found := policy.Check(old, next, v.engines); len(found) > 0 {
		invalid := apierrors.NewInvalid(v1.GroupVersion.WithKind("Database").GroupKind(), next.Name, found)
		return refused(invalid).WithWarnings(policy.Warnings(old, next, v.engines)...)
	}
	return ctrladmission.Allowed("").WithWarnings(policy.Warnings(old, next, v.engines)...)
}

func (v validator) before(r ctrladmission.Request) (*v1.Database, error) {
	if r.Operation != admissionv1.Update {
		return nil, nil //nolint:nilnil // policy takes nil for "did not exist"
	}
	old := &v1.Database{}
	if err := v.decoder.DecodeRaw(r.OldObject, old); err != nil {
		return nil, fmt.Errorf("decode the stored Database %s/%s: %w", r.Namespace, r.Name, err)
	}
	return old, nil
}

// remove refuses nothing: it tells what becomes of the volumes.
func (v validator) remove(r ctrladmission.Request) ctrladmission.Response {
	old := &v1.Database{}
	if err := v.decoder.DecodeRaw(r.OldObject, old); err != nil {
		return ctrladmission.Allowed("")
	}
	return ctrladmission.Allowed("").WithWarnings(policy.DeletionWarning(old))
}

// refused carries the causes, so that a client gets the field of each as from the schema.
func refused(invalid *apierrors.StatusError) ctrladmission.Response {
	return ctrladmission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &invalid.ErrStatus}}
}
