package api

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission"
)

// withoutWebhooks runs f while nothing answers where the API server looks for the admission webhooks: the operator is down.
func withoutWebhooks(t *testing.T, f func()) {
	t.Helper()
	alive := shared.hooks
	repoint(t, "https://127.0.0.1:1")
	defer repoint(t, alive)
	f()
}

// repoint changes where both webhooks are looked for, and waits until the API server does.
func repoint(t *testing.T, base string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := errors.Join(shared.client.Get(ctx, client.ObjectKey{Name: "plimsoll-validating"}, validating),
		shared.client.Get(ctx, client.ObjectKey{Name: "plimsoll-mutating"}, mutating)); err != nil {
		t.Fatal(err)
	}
	validating.Webhooks[0].ClientConfig.URL = ptr.To(base + admission.ValidatePath)
	mutating.Webhooks[0].ClientConfig.URL = ptr.To(base + admission.MutatePath)
	if err := errors.Join(shared.client.Update(ctx, validating), shared.client.Update(ctx, mutating)); err != nil {
		t.Fatal(err)
	}
	alive := base == shared.hooks
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		d := document("v1", "hooks", "probe", set("spec.tls.serverSecret", "probe-ca"))
		err := shared.client.Create(ctx, d, client.DryRunAll)
		return (err != nil) == alive, nil
	})
	if err != nil {
		t.Fatal("the API server does not follow the webhook's configuration: ", err)
	}
}

// TestWithoutWebhooks holds that a dead operator keeps nobody from working, and lets nothing in that the schema can refuse.
func TestWithoutWebhooks(t *testing.T) {
	ns := namespace(t, nil)
	withoutWebhooks(t, func() {
		d := document("v1", ns, fresh(), set("spec.storage.size", "2Gi"))
		if err := shared.client.Create(t.Context(), d); err != nil {
			t.Fatalf("create: %v", err)
		}
		d.Object["status"] = map[string]any{"epoch": int64(1), "version": "15.4"} // one that never ran may be any version
		if err := shared.client.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		for sentence, r := range map[string]struct {
			change []edit
			want   string
		}{
			"shrink":    {[]edit{set("spec.storage.size", "1Gi")}, "cannot shrink"},
			"downgrade": {[]edit{set("spec.version", "15.3")}, "cannot be lowered"},
			"major":     {[]edit{set("spec.version", "16.4")}, "major number cannot change"},
			"replicas":  {[]edit{set("spec.replicas", int64(10))}, "more than maxReplicas"},
		} {
			bad := d.DeepCopy()
			for _, e := range r.change {
				e(bad.Object)
			}
			t.Run(sentence, func(t *testing.T) { check(t, shared.client.Update(t.Context(), bad), r.want) })
		}
		set("spec.replicas", int64(5))(d.Object)
		if err := shared.client.Update(t.Context(), d); err != nil {
			t.Errorf("scale: %v", err)
		}
		if err := shared.client.Delete(t.Context(), d); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
}
