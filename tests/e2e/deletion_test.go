package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestDeletion deletes a Database in each phase: of none anything is left.
func TestDeletion(t *testing.T) {
	t.Parallel()
	namespace := shared.namespace(t)
	none := func(*v1.DatabaseSpec) {}
	rows := []struct {
		name       string
		as         func(*v1.DatabaseSpec) // how it is created
		then       func(*v1.DatabaseSpec) // what is changed once it is ready; nil if it never gets so
		frozen     string                 // the instance that stands still then, as on a node that hangs
		phase      v1.Phase
		stalledFor string
	}{
		{name: "creating", as: none, phase: v1.PhaseCreating},
		{name: "missing", as: func(s *v1.DatabaseSpec) { s.Bootstrap.CredentialsSecret = "absent" }, phase: v1.PhasePending, stalledFor: v1.ReasonSecretMissing},
		{name: "unschedulable", as: func(s *v1.DatabaseSpec) {
			s.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("900Gi")
			s.Resources.Limits = nil
		}, phase: v1.PhaseCreating, stalledFor: v1.ReasonUnschedulable},
		{name: "running", as: none, then: none, phase: v1.PhaseRunning},
		{name: "changing", as: none, then: func(s *v1.DatabaseSpec) { s.Replicas = ptr.To(int32(2)) }, phase: v1.PhaseChanging},
		{name: "down", as: none, then: func(s *v1.DatabaseSpec) { s.Maintenance.Fenced = []string{"*"} }, phase: v1.PhaseDown},
		{name: "hibernated", as: none, then: func(s *v1.DatabaseSpec) { s.Maintenance.Hibernated = true }, phase: v1.PhaseHibernated},
		{name: "degraded", as: func(s *v1.DatabaseSpec) { s.Replicas = ptr.To(int32(3)) }, then: none, frozen: "degraded-2", phase: v1.PhaseDegraded},
		{name: "paused", as: none, then: func(s *v1.DatabaseSpec) { s.Maintenance.Paused = true }, phase: v1.PhaseRunning},
	}
	made := make([]*database, len(rows))
	for i, row := range rows {
		spec := orders(namespace, 1)
		spec.Name = row.name
		row.as(&spec.Spec)
		made[i] = shared.create(t, spec)
	}
	for i, row := range rows {
		d := made[i]
		if row.then != nil {
			d.awaitReady(readyLimit)
			d.change(row.then)
		}
		if row.frozen != "" {
			if err := d.cluster.FreezePod(t.Context(), namespace, row.frozen); err != nil {
				t.Fatal(err)
			}
		}
		d.await(time.Minute, row.name+" is "+string(row.phase), func(now *v1.Database) error {
			if now.Status.Phase != row.phase || now.Status.ObservedGeneration != now.Generation {
				return fmt.Errorf("phase %s of generation %d, newest %d", now.Status.Phase, now.Status.ObservedGeneration, now.Generation)
			}
			if row.stalledFor == "" {
				return nil
			}
			return condition(now, v1.ConditionStalled, metav1.ConditionTrue, row.stalledFor)
		})
		if err := d.Delete(t.Context(), &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: row.name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		if row.frozen == "" {
			continue
		}
		if err := shared.cluster.ThawPod(t.Context(), namespace, row.frozen); err != nil { // or the kubelet waits for it to end
			t.Fatal(err)
		}
	}
	for i := range rows {
		made[i].gone()
	}
}

// gone waits until nothing that was made for a Database is left.
func (d *database) gone() {
	d.t.Helper()
	eventually(d.t.Context(), d.t, time.Minute, "nothing of Database "+d.key.Name+" is left", func() error {
		if err := d.Get(d.t.Context(), d.key, &v1.Database{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("the Database is there (%w)", err)
		}
		for _, kind := range []schema.GroupVersionKind{
			{Version: "v1", Kind: "Pod"},
			{Version: "v1", Kind: "PersistentVolumeClaim"},
			{Version: "v1", Kind: "Secret"},
			{Version: "v1", Kind: "Service"},
			{Version: "v1", Kind: "ServiceAccount"},
			{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
			{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
			{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
			{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
		} {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			if err := d.List(d.t.Context(), list, client.InNamespace(d.key.Namespace), client.MatchingLabels{v1.LabelDatabase: d.key.Name}); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("%d of kind %s, %s among them", n, kind.Kind, list.Items[0].Name)
			}
		}
		return nil
	})
}
