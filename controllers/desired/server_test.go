package desired_test

import (
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// TestARealAPIServerTakesEveryObject creates all objects, in namespaces that enforce the Pod Security Standard "restricted", so
// the API server itself judges the pods, and refuses unknown or duplicate fields.
func TestARealAPIServerTakesEveryObject(t *testing.T) {
	c := startServer(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if err := c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	longest := full()
	longest.Database.Name = strings.Repeat("n", desired.MaxNameLength)
	for name, in := range map[string]desired.Inputs{"minimal": minimal(), "full": full(), "openshift": openShift(), "longest-name": longest} {
		t.Run(name, func(t *testing.T) {
			in.Database.Namespace = name
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted",
			}}}
			if err := c.Create(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
			objects := everything(in)
			for _, obj := range objects[:len(objects)-1] { // the last is only a part of the pod
				if err := c.Create(t.Context(), obj, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
					t.Errorf("create %T %s: %v", obj, obj.GetName(), err)
				}
			}
			// The guard is real: the same pod with a thing that is not allowed is refused.
			bad := desired.Pod(in, desired.Instance{Ordinal: 2})
			bad.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
			if err := c.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
				t.Errorf("a pod that may escalate was answered with %v, want a refusal", err)
			}
		})
	}
}

func startServer(t *testing.T) client.Client {
	t.Helper()
	api, err := cluster.StartAPI(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme),
		discoveryv1.AddToScheme(scheme), networkingv1.AddToScheme(scheme), policyv1.AddToScheme(scheme), schedulingv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(&rest.Config{Host: api.Host, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData: api.CA, CertData: api.ClientCert, KeyData: api.ClientKey,
	}}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
