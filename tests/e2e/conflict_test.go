package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestSecretConflict lets a second Database want a Secret that the first one owns, as after a copy by a careless tool: the second
// says so and waits, and the first does not notice.
func TestSecretConflict(t *testing.T) {
	t.Parallel()
	first := shared.create(t, orders(shared.namespace(t), 1))
	first.awaitReady(readyLimit)
	owner, err := first.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: first.key.Namespace, Name: "billing-app"}, StringData: map[string]string{"password": "of-the-first"}}
	if err := controllerutil.SetControllerReference(owner, held, first.Scheme()); err != nil {
		t.Fatal(err)
	}
	if err := first.Create(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	w := first.ledger()

	spec := orders(first.key.Namespace, 1)
	spec.Name = "billing"
	second := shared.create(t, spec)
	second.await(time.Minute, "stalled by the Secret of the first", func(now *v1.Database) error {
		if pods := second.pods(); len(pods) != 0 {
			return fmt.Errorf("it has pods: %v", pods)
		}
		return condition(now, v1.ConditionStalled, metav1.ConditionTrue, v1.ReasonSecretConflict, "Secret billing-app", "belongs to Database orders", "delete it")
	})
	w.moves(10 * time.Second)
	now := &corev1.Secret{}
	if err := first.Get(t.Context(), client.ObjectKeyFromObject(held), now); err != nil || now.ResourceVersion != held.ResourceVersion {
		t.Errorf("the Secret of the first was changed or is gone (%v)", err)
	}
	if after, err := first.get(t.Context()); err != nil || ready(after) != nil || after.Status.Epoch != owner.Status.Epoch {
		t.Errorf("the first Database suffered (%v): %+v", err, after.Status)
	}
	if err := first.Delete(t.Context(), held); err != nil { // as the message says
		t.Fatal(err)
	}
	second.awaitReady(readyLimit)
	w.settle(time.Time{})
}
