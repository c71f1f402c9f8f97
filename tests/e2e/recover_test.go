package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestRecover deletes the volumes and pods of the leader and of a replica. Nobody leads then, status says which command helps, and the
// command gives the lead to the one that is left, once the loss is accepted.
func TestRecover(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	lost, replicas := d.roles()
	left, also := replicas[0], replicas[1]
	if out, err := d.plimsoll("recover", "orders", "--from", left, "--accept-loss"); err == nil || !strings.Contains(out, lost+" leads and serves") {
		t.Fatalf("recover beside a leader: %v\n%s", err, out)
	}
	account, _ := w.settle(time.Time{}) // every instance holds all that was acknowledged
	d.fence(left)                       // the containers of the others end one after the other: it must not be elected by one that is still there
	for _, name := range []string{lost, also} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: name}}
		if err := d.Delete(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{also, lost} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: name}}
		if err := d.Delete(t.Context(), pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
	d.await(2*time.Minute, "both are there again without data", func(now *v1.Database) error {
		for _, i := range now.Status.Instances {
			if i.Name != left && (i.Position != "" || i.LastPosition == "" || !strings.Contains(i.Message, "no usable data")) {
				return fmt.Errorf("%s is %s at %q, was at %q: %s", i.Name, i.State, i.Position, i.LastPosition, i.Message)
			}
		}
		return nil
	})
	before := d.now()
	d.unfence(left)
	took := d.await(time.Minute, "status says that the majority is lost, and what helps", func(now *v1.Database) error {
		return condition(now, v1.ConditionReady, metav1.ConditionFalse, v1.ReasonMajorityLost, lost, also, "kubectl plimsoll recover orders -n "+d.key.Namespace+" --from "+left)
	})
	t.Logf("said after %s", took.Round(100*time.Millisecond))
	out, err := d.plimsoll("recover", "orders", "--from", left)
	t.Logf("without --accept-loss:\n%s", out)
	if err == nil || !strings.Contains(out, "nothing was changed") || !strings.Contains(out, "What would be lost") {
		t.Errorf("it ended with %v", err)
	}
	if out, err := d.plimsoll("recover", "orders", "--from", lost, "--accept-loss"); err == nil || !strings.Contains(out, "tells of no data") {
		t.Errorf("recover from one that lost its data: %v\n%s", err, out)
	}
	if now := d.now(); now.Status.Epoch != before.Status.Epoch {
		t.Fatalf("somebody leads by itself with epoch %d", now.Status.Epoch)
	}

	at := time.Now()
	out, err = d.plimsoll("recover", "orders", "--from", left, "--accept-loss")
	if err != nil {
		t.Fatalf("recover: %v\n%s", err, out)
	}
	t.Logf("recovered after %s: %s", time.Since(at).Round(10*time.Millisecond), out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	d.await(3*time.Minute, "the others are copied anew and vote again", func(now *v1.Database) error {
		if now.Status.Leader != left {
			return fmt.Errorf("%s leads", now.Status.Leader)
		}
		return ready(now)
	})
	t.Logf("three again after %s", time.Since(at).Round(100*time.Millisecond))
	now := d.now()
	if h := now.Status.HandOvers[0]; h.Cause != "recover" || h.From != lost && h.From != also || h.To != left || !strings.Contains(h.Why, "accepted the loss") || now.Status.Epoch <= before.Status.Epoch { // by more than one where a replica had stood in vain
		t.Errorf("epoch %d after %d, by %+v", now.Status.Epoch, before.Status.Epoch, h)
	}
	for _, i := range now.Status.Instances {
		if _, err := d.judge(account, i.Name); err != nil {
			t.Errorf("%s: %v", i.Name, err)
		}
	}
}
