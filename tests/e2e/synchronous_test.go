package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestSynchronous stops one replica and both in each mode, while clients write: what each mode promises about writes is so, and the
// conditions say it.
func TestSynchronous(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	leader, replicas := d.roles()
	w := d.ledger()

	d.durable(metav1.ConditionTrue, v1.ReasonMajority)
	d.fence(replicas[0])
	w.moves(10 * time.Second) // a majority is left
	d.durable(metav1.ConditionTrue, v1.ReasonMajority)
	d.fence(replicas[1])
	d.durable(metav1.ConditionFalse, v1.ReasonNoMajority, "writes wait")
	w.waits(3 * time.Second)
	d.unfence(replicas[0])
	w.moves(30 * time.Second)
	d.durable(metav1.ConditionTrue, v1.ReasonMajority)
	d.unfence(replicas[1])
	d.awaitReady(changeLimit)

	d.mode(v1.SynchronousPreferred)
	d.durable(metav1.ConditionTrue, v1.ReasonMajority)
	d.fence(replicas...)
	d.durable(metav1.ConditionFalse, v1.ReasonNoMajority, "writes go on")
	w.moves(10 * time.Second)
	d.unfence(replicas...)
	d.awaitReady(changeLimit)
	d.durable(metav1.ConditionTrue, v1.ReasonMajority)

	d.mode(v1.SynchronousNone)
	d.durable(metav1.ConditionFalse, v1.ReasonAsynchronous, "can be lost")
	d.fence(replicas...)
	w.moves(10 * time.Second)
	d.unfence(replicas...)
	d.awaitReady(changeLimit)

	d.mode(v1.SynchronousRequired)
	d.durable(metav1.ConditionTrue, v1.ReasonMajority)
	w.moves(10 * time.Second)
	account, _ := w.settle(time.Time{})
	if account.Hands() != 0 {
		t.Errorf("the writer changed %d times though %s was never stopped", account.Hands(), leader)
	}
}

// mode changes what a commit waits for.
func (d *database) mode(m v1.SynchronousMode) {
	d.t.Helper()
	d.change(func(s *v1.DatabaseSpec) { s.Replication.Synchronous = m })
	d.await(time.Minute, "mode "+string(m)+" in force", func(now *v1.Database) error {
		if now.Status.Effective == nil || now.Status.Effective.Synchronous != m {
			return fmt.Errorf("effective %v", now.Status.Effective)
		}
		return ready(now)
	})
}

// durable waits for the word about durability.
func (d *database) durable(status metav1.ConditionStatus, reason string, words ...string) {
	d.t.Helper()
	d.await(30*time.Second, fmt.Sprintf("Durable is %s, %s", status, reason), func(now *v1.Database) error {
		return condition(now, v1.ConditionDurable, status, reason, words...)
	})
}

// waits checks that no write is acknowledged for a time.
func (w *written) waits(during time.Duration) {
	w.t.Helper()
	before, _ := w.run.Acknowledged()
	time.Sleep(during)
	if now, _ := w.run.Acknowledged(); now != before {
		w.t.Errorf("%d writes were acknowledged that no majority holds", now-before)
	}
}
