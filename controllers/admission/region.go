package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// +kubebuilder:webhook:path=/mutate-plimsoll-dev-v1-database,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,reinvocationPolicy=Never,timeoutSeconds=3,groups=plimsoll.dev,resources=databases,verbs=create,versions=v1,name=databases.default.plimsoll.dev,admissionReviewVersions=v1,serviceName=plimsoll-webhook,serviceNamespace=plimsoll-system

// regions fills spec.region of a new Database from its namespace's label. It writes no other field, and never again after
// creation, so that a GitOps tool has nothing to fight over. The patch is made by hand: one computed from a decoded Database
// would also carry what decoding changes.
type regions struct {
	namespaces client.Reader
}

// Handle answers one request.
func (h regions) Handle(ctx context.Context, r ctrladmission.Request) ctrladmission.Response {
	if r.Operation != admissionv1.Create {
		return ctrladmission.Allowed("")
	}
	var asked struct {
		Spec *struct {
			Region string `json:"region"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Object.Raw, &asked); err != nil {
		return ctrladmission.Errored(http.StatusBadRequest, fmt.Errorf("decode Database %s/%s: %w", r.Namespace, r.Name, err))
	}
	if asked.Spec == nil || asked.Spec.Region != "" {
		return ctrladmission.Allowed("")
	}
	region, err := h.of(ctx, r.Namespace)
	if err != nil {
		// A label for people is no reason to refuse a database.
		return ctrladmission.Allowed("").WithWarnings(fmt.Sprintf("spec.region stays empty: the label %s of namespace %s could not be read: %v", v1.LabelRegion, r.Namespace, err))
	}
	if region == "" {
		return ctrladmission.Allowed("")
	}
	return ctrladmission.Patched("", jsonpatch.NewOperation("add", "/spec/region", region))
}

func (h regions) of(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := h.namespaces.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return "", fmt.Errorf("get namespace: %w", err)
	}
	return found.Labels[v1.LabelRegion], nil
}
