package database

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestOnlyWhatIsReadIsHeldInMemory(t *testing.T) {
	w := newWorld(t)
	w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	w.until("orders", "one instance", running)
	want := map[string]string{
		"databases": "whole", "pods": "whole", "persistentvolumeclaims": "whole", "leases": "whole", "nodes": "whole",
		"services": "metadata", "serviceaccounts": "metadata", "roles": "metadata", "rolebindings": "metadata", "networkpolicies": "metadata",
		"poddisruptionbudgets": "metadata", "endpointslices": "metadata",
	}
	w.requests.mu.Lock()
	defer w.requests.mu.Unlock()
	if diff := cmp.Diff(want, w.requests.watches); diff != "" {
		t.Errorf("the manager watches (-want +got):\n%s", diff)
	}
}

// drift is one way to spoil an object, what of it must come back, and that it does though the manager holds only its metadata.
type drift struct {
	name  string
	kind  client.Object
	spoil func(client.Object)
	of    func(client.Object) any
}

func TestWhatAPersonSpoilsIsPutRight(t *testing.T) {
	w := newWorld(t)
	w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	w.until("orders", "one instance", running)
	for sentence, row := range drifts() {
		t.Run("changed: "+sentence, func(t *testing.T) {
			live := w.read(row)
			want := row.of(live.DeepCopyObject().(client.Object)) // what is spoiled below is its own
			row.spoil(live)
			if err := w.person.Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			w.untilAgain(t, row, want)
		})
		t.Run("deleted: "+sentence, func(t *testing.T) {
			live := w.read(row)
			want := row.of(live)
			if err := w.person.Delete(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			w.untilAgain(t, row, want)
		})
	}
}

func drifts() map[string]drift {
	return map[string]drift{
		"the port of the Service": {
			name: "orders-ro", kind: &corev1.Service{},
			spoil: func(o client.Object) { o.(*corev1.Service).Spec.Ports[0].Port = 5433 },
			of:    func(o client.Object) any { return o.(*corev1.Service).Spec.Ports },
		},
		"the target of the Service": {
			name: "orders-rw", kind: &corev1.Service{},
			spoil: func(o client.Object) { o.(*corev1.Service).Spec.Ports[0].TargetPort = intstr.FromInt32(1) },
			of:    func(o client.Object) any { return o.(*corev1.Service).Spec.Ports },
		},
		"the selector of the Service": {
			name: "orders-r", kind: &corev1.Service{},
			spoil: func(o client.Object) { o.(*corev1.Service).Spec.Selector = map[string]string{"app": "mine"} },
			// What was added stays; a person who adds a label to a selector has wanted it so.
			of: func(o client.Object) any { return o.(*corev1.Service).Spec.Selector[v1.LabelDatabase] },
		},
		"the rules of the NetworkPolicy": {
			name: "orders", kind: &networkingv1.NetworkPolicy{},
			spoil: func(o client.Object) {
				o.(*networkingv1.NetworkPolicy).Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
			},
			of: func(o client.Object) any { return o.(*networkingv1.NetworkPolicy).Spec },
		},
		"the number of the PodDisruptionBudget": {
			name: "orders", kind: &policyv1.PodDisruptionBudget{},
			spoil: func(o client.Object) {
				o.(*policyv1.PodDisruptionBudget).Spec.MinAvailable = new(intstr.FromInt32(7))
			},
			of: func(o client.Object) any { return o.(*policyv1.PodDisruptionBudget).Spec },
		},
		"the rules of the Role": {
			name: "orders-agent", kind: &rbacv1.Role{},
			spoil: func(o client.Object) { o.(*rbacv1.Role).Rules[0].ResourceNames = nil },
			of:    func(o client.Object) any { return o.(*rbacv1.Role).Rules },
		},
		"the subjects of the RoleBinding": {
			name: "orders-agent", kind: &rbacv1.RoleBinding{},
			spoil: func(o client.Object) { o.(*rbacv1.RoleBinding).Subjects = nil },
			of:    func(o client.Object) any { return o.(*rbacv1.RoleBinding).Subjects },
		},
		"the token of the ServiceAccount": {
			name: "orders-agent", kind: &corev1.ServiceAccount{},
			spoil: func(o client.Object) { o.(*corev1.ServiceAccount).AutomountServiceAccountToken = new(true) },
			of:    func(o client.Object) any { return o.(*corev1.ServiceAccount).AutomountServiceAccountToken },
		},
	}
}

func (w *world) read(row drift) client.Object {
	w.Helper()
	live := row.kind.DeepCopyObject().(client.Object)
	if err := w.person.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: row.name}, live); err != nil {
		w.Fatal(err)
	}
	return live
}

// untilAgain waits for an object to be as it was, and then for the manager to leave it alone.
func (w *world) untilAgain(t *testing.T, row drift, want any) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		live := row.kind.DeepCopyObject().(client.Object)
		err := w.person.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: row.name}, live)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err == nil {
			if diff = cmp.Diff(want, row.of(live)); diff == "" && metav1.GetControllerOf(live) != nil {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not put right (-want +got):\n%s", diff)
		}
	}
	time.Sleep(300 * time.Millisecond) // to put it right may take more than one write
	version := w.read(row).GetResourceVersion()
	time.Sleep(500 * time.Millisecond)
	if now := w.read(row).GetResourceVersion(); now != version {
		t.Errorf("the manager writes again and again: %s, then %s", version, now)
	}
}
