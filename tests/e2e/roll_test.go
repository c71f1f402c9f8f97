package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestRollGoesWrong rolls an image that does not exist, and then a newer version while somebody deletes the pod of a replica. Clients
// write on through both.
func TestRollGoesWrong(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	leader, _ := d.roles()
	w := d.ledger()
	before := d.pods()

	d.change(func(s *v1.DatabaseSpec) { s.Image = "registry.plimsoll.test:5000/absent:1" })
	d.await(time.Minute, "stalled at the first pod that cannot start", func(now *v1.Database) error {
		return condition(now, v1.ConditionStalled, metav1.ConditionTrue, v1.ReasonImagePull, "absent:1", "spec.image")
	})
	for range 10 { // no second one follows it
		time.Sleep(time.Second)
		after := d.pods()
		replaced := 0
		for name, was := range before {
			if after[name] != was {
				replaced++
			}
		}
		now, err := d.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if replaced != 1 || now.Status.ReadyReplicas != 2 || now.Status.Leader != leader {
			t.Fatalf("%d pods were replaced, %d instances are ready, %s leads; want one, two and %s", replaced, now.Status.ReadyReplicas, now.Status.Leader, leader)
		}
	}
	w.moves(10 * time.Second)
	d.durable(metav1.ConditionTrue, v1.ReasonMajority)

	at := time.Now()
	d.change(func(s *v1.DatabaseSpec) { s.Image, s.Version = "", newVersion })
	victim := ""
	d.await(changeLimit, "one replica runs the newer version", func(now *v1.Database) error {
		for _, i := range now.Status.Instances {
			if i.Version == newVersion && i.Ready && i.Role == v1.RoleReplica {
				victim = i.Name
				return nil
			}
		}
		return fmt.Errorf("instances %v", now.Status.Instances)
	})
	if err := d.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: victim}}); err != nil {
		t.Fatal(err)
	}
	d.await(changeLimit, "every instance runs "+newVersion, func(now *v1.Database) error {
		for _, i := range now.Status.Instances {
			if i.Version != newVersion {
				return fmt.Errorf("%s runs %q", i.Name, i.Version)
			}
		}
		return ready(now)
	})
	t.Logf("from the mended image to the newer version everywhere: %s", time.Since(at).Round(100*time.Millisecond))
	account, gap := w.settle(time.Time{})
	if account.Hands() != 1 {
		t.Errorf("the writer changed %d times in one roll", account.Hands())
	}
	// The next replica is under way when the first is deleted, which no order of the roll can foresee: with two of three away, writes
	// wait until one of them is back.
	if gap > time.Minute {
		t.Errorf("writes stood still for %s", gap)
	}
}
