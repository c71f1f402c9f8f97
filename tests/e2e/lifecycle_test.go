package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func ping(ctx context.Context, config *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

// TestLifecycle fences, hibernates and deletes with the volumes kept.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	spec := orders(shared.namespace(t), 3)
	spec.Spec.DeletionPolicy = v1.DeletionRetain
	d := shared.create(t, spec)
	d.awaitReady(readyLimit)
	now, err := d.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replica := ""
	for _, i := range now.Status.Instances {
		if i.Role == v1.RoleReplica {
			replica = i.Name
		}
	}
	if out, err := d.plimsoll("fence", "orders", replica); err != nil {
		t.Fatalf("fence: %v\n%s", err, out)
	}
	d.await(time.Minute, replica+" fenced", func(now *v1.Database) error {
		for _, i := range now.Status.Instances {
			if i.Name == replica && i.State == "fenced" && !i.Ready {
				return nil
			}
		}
		return fmt.Errorf("instances %v", now.Status.Instances)
	})
	if out, err := d.plimsoll("unfence", "orders", replica); err != nil {
		t.Fatalf("unfence: %v\n%s", err, out)
	}
	d.awaitReady(changeLimit)

	w := d.ledger()
	w.settle(time.Time{})
	d.change(func(s *v1.DatabaseSpec) { s.Maintenance.Hibernated = true })
	d.await(changeLimit, "hibernated", func(now *v1.Database) error {
		pods := &corev1.PodList{}
		if err := d.List(t.Context(), pods, client.InNamespace(d.key.Namespace), client.HasLabels{v1.LabelDatabase}); err != nil {
			return err
		}
		if now.Status.Phase != v1.PhaseHibernated || len(pods.Items) != 0 {
			return fmt.Errorf("phase %s, %d pods", now.Status.Phase, len(pods.Items))
		}
		return nil
	})
	d.change(func(s *v1.DatabaseSpec) { s.Maintenance.Hibernated = false })
	d.awaitReady(changeLimit)
	config, err := d.writable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(t.Context(), config); err != nil {
		t.Errorf("after the hibernation: %v", err)
	}

	if err := d.Delete(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	eventually(t.Context(), t, time.Minute, "pods gone, volumes kept", func() error {
		pods, claims := &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}
		if err := d.List(t.Context(), pods, client.InNamespace(d.key.Namespace), client.HasLabels{v1.LabelDatabase}); err != nil {
			return err
		}
		if err := d.List(t.Context(), claims, client.InNamespace(d.key.Namespace)); err != nil {
			return err
		}
		if len(pods.Items) != 0 || len(claims.Items) != 3 {
			return fmt.Errorf("%d pods, %d claims", len(pods.Items), len(claims.Items))
		}
		return nil
	})
	again := shared.create(t, orders(d.key.Namespace, 3))
	again.await(time.Minute, "the volumes of the deleted Database are not touched", func(now *v1.Database) error {
		return condition(now, v1.ConditionStalled, metav1.ConditionTrue, v1.ReasonVolumesExist, "orders-1")
	})
}

// TestBadInput gives each mistake a clear answer and loses nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil  func(*v1.DatabaseSpec)
		reason string
		words  []string
		mend   func(*v1.DatabaseSpec) // as the answer says; nil where it is no change of the spec
	}{
		"ImageThatCannotBePulled": {
			spoil:  func(s *v1.DatabaseSpec) { s.Image = "registry.plimsoll.test:5000/absent:1" },
			reason: v1.ReasonImagePull, words: []string{"absent:1"}, mend: func(s *v1.DatabaseSpec) { s.Image = "" },
		},
		"ImageWithoutAServer": {
			spoil:  func(s *v1.DatabaseSpec) { s.Image = "docker.io/library/busybox:1" },
			reason: v1.ReasonContainerFailed, words: []string{"no PostgreSQL server in the image"}, mend: func(s *v1.DatabaseSpec) { s.Image = "" },
		},
		"ImageOfAnotherRelease": {
			spoil:  func(s *v1.DatabaseSpec) { s.Version, s.Image = "16", "docker.io/library/postgres:"+oldVersion },
			reason: v1.ReasonServerFailed, words: []string{"asks for PostgreSQL 16 and the image holds PostgreSQL 15"},
		},
		"NoNodeWithRoom": {
			spoil: func(s *v1.DatabaseSpec) {
				s.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("900Gi")}
				s.Resources.Limits = nil
			},
			reason: v1.ReasonUnschedulable, words: []string{"memory"},
		},
		"MissingSecret": {
			spoil:  func(s *v1.DatabaseSpec) { s.Bootstrap.CredentialsSecret = "absent" },
			reason: v1.ReasonSecretMissing, words: []string{"absent"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := orders(shared.namespace(t), 1)
			tc.spoil(&spec.Spec)
			d := shared.create(t, spec)
			d.await(time.Minute, "stalled with "+tc.reason, func(now *v1.Database) error {
				return condition(now, v1.ConditionStalled, metav1.ConditionTrue, tc.reason, tc.words...)
			})
			out, err := d.plimsoll("status", "orders")
			if err != nil || !strings.Contains(out, "Next: ") {
				t.Errorf("kubectl plimsoll status says nothing to do (%v):\n%s", err, out)
			}
			if tc.mend == nil {
				return
			}
			d.change(tc.mend)
			d.awaitReady(readyLimit)
		})
	}
}

// TestPrimaryEvicted evicts the primary's pod, as a drain does, while clients write. Until it is back, no other may be evicted.
func TestPrimaryEvicted(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	now, err := d.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	was := now.Status.Leader
	_, replicas := d.roles()
	before := d.pods()
	eventually(t.Context(), t, 20*time.Second, "the budget counts three", func() error {
		budget := &policyv1.PodDisruptionBudget{}
		if err := d.Get(t.Context(), d.key, budget); err != nil {
			return err
		}
		if budget.Status.DisruptionsAllowed != 1 || budget.Status.ExpectedPods != 3 {
			return fmt.Errorf("it lets %d of %d go", budget.Status.DisruptionsAllowed, budget.Status.ExpectedPods)
		}
		return nil
	})
	at := time.Now()
	if err := d.evict(was); err != nil {
		t.Fatalf("evict %s: %v", was, err)
	}
	for _, name := range replicas {
		if err := d.evict(name); !apierrors.IsTooManyRequests(err) {
			t.Errorf("evict %s while %s is away: %v; want it refused by the budget", name, was, err)
		}
	}
	w.moves(30 * time.Second)
	d.await(time.Minute, "another leads and "+was+" follows", func(now *v1.Database) error {
		if now.Status.Leader == was {
			return fmt.Errorf("%s leads", was)
		}
		return ready(now)
	})
	after := d.pods()
	for _, name := range replicas {
		if after[name] != before[name] {
			t.Errorf("%s was replaced or restarted: %s before, %s after", name, before[name], after[name])
		}
	}
	_, gap := w.settle(at)
	t.Logf("gap in writes: %s", gap.Round(time.Millisecond))
	if gap > patient(10*time.Second) {
		t.Errorf("writes stood still for %s", gap)
	}
}

// evict asks for the eviction of a pod.
func (d *database) evict(name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: name}}
	return d.SubResource("eviction").Create(d.t.Context(), pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
}
