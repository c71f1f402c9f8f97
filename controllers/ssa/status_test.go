package ssa_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestStatusIsWrittenOnceAndOnlyWhenItChanges(t *testing.T) {
	w := newWorld(t)
	database := w.database(t)
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	lag := int64(0)
	size := resource.MustParse("1024Mi")
	status := v1.DatabaseStatus{
		Phase: v1.PhaseRunning, Ready: "1/1", Leader: "orders-1", Epoch: 3, Voters: []string{"orders-1"},
		Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonAllReady, LastTransitionTime: at}},
		Instances:  []v1.InstanceStatus{{Name: "orders-1", Role: v1.RolePrimary, LagBytes: &lag}},
		Effective:  &v1.EffectiveSpec{StorageSize: &size},
	}
	write := func(status v1.DatabaseStatus) string {
		t.Helper()
		seen := get(t, w, database.DeepCopy())
		if err := w.writer.Status(t.Context(), seen, status); err != nil {
			t.Fatal(err)
		}
		return get(t, w, database.DeepCopy()).ResourceVersion
	}
	before := w.requests
	first := write(status)
	if second := write(status); second != first || w.requests != before+1 {
		t.Errorf("the same status again: resourceVersion %s to %s, %d writes; want no change after one write", first, second, w.requests-before)
	}
	got := get(t, w, database.DeepCopy())
	if diff := cmp.Diff(status, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	status.Leader, status.Voters, status.Instances = "", nil, nil
	write(status)
	got = get(t, w, database.DeepCopy())
	if diff := cmp.Diff(status, got.Status); diff != "" {
		t.Errorf("status with less in it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(database.Spec, got.Spec); diff != "" {
		t.Errorf("the spec changed (-want +got):\n%s", diff)
	}
}

func TestTheStatusOfOneDatabaseNeverLandsOnItsSuccessor(t *testing.T) {
	w := newWorld(t)
	old := w.database(t)
	if err := w.person.Delete(t.Context(), old.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := w.writer.Status(t.Context(), old, v1.DatabaseStatus{Leader: "orders-9"}); err != nil {
		t.Errorf("status of a Database that is gone: %v", err)
	}
	successor := w.database(t)
	if err := w.writer.Status(t.Context(), old, v1.DatabaseStatus{Leader: "orders-9"}); err != nil {
		t.Errorf("status of a Database that another has replaced: %v", err)
	}
	if got := get(t, w, successor).Status.Leader; got != "" {
		t.Errorf("the successor has leader %q", got)
	}
}

func TestAStatusIsWrittenThoughTheDatabaseChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	seen := w.database(t)
	changed := seen.DeepCopy()
	changed.Spec.Replicas = new(int32(5))
	if err := w.person.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := w.writer.Status(t.Context(), seen, v1.DatabaseStatus{Leader: "orders-1"}); err != nil {
		t.Fatal(err)
	}
	got := get(t, w, seen.DeepCopy())
	if got.Status.Leader != "orders-1" || *got.Spec.Replicas != 5 {
		t.Errorf("leader %q and %d replicas, want orders-1 and 5", got.Status.Leader, *got.Spec.Replicas)
	}
}

// database makes a Database with the schema that users get.
func (w *world) database(t *testing.T) *v1.Database {
	t.Helper()
	installSchema(t, w)
	d := &v1.Database{
		ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: w.namespace},
		Spec:       v1.DatabaseSpec{Engine: v1.EnginePostgres, Version: "17", Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")}},
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := w.person.Create(t.Context(), d)
		if err == nil {
			return get(t, w, d)
		}
		// The API server takes a moment to serve a kind that was just defined.
		soon := apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
		if !soon || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func installSchema(t *testing.T, w *world) {
	t.Helper()
	raw, err := os.ReadFile("../../config/crd/bases/plimsoll.dev_databases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &crd.Object); err != nil {
		t.Fatal(err)
	}
	if err := w.person.Create(t.Context(), crd); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}
