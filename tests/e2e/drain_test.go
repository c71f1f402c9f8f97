package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestDrain drains each node in turn while clients write, as for a new kernel: the leader's node costs one change of hands, the others
// none, and nothing that was acknowledged is lost. Then the leader's node is cordoned alone, and tainted as one that will go: the leader
// leaves, and no pod is touched. Last a taint evicts the leader's pod at once, with everything on its node.
func TestDrain(t *testing.T) {
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	nodes := &corev1.NodeList{}
	if err := d.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	w := d.ledger()
	var steps phases
	for _, node := range nodes.Items {
		before := d.now()
		want := 0
		if before.leads(node.Name) {
			want = 1
		}
		at := steps.begin(fmt.Sprintf("drain of %s, %d change of hands due", node.Name, want))
		d.kubectl("drain", node.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
		drained := time.Since(at)
		w.moves(20 * time.Second)
		d.kubectl("uncordon", node.Name)
		d.awaitReady(2 * time.Minute)
		after := d.now() // status is a moment behind: it tells of the drain once all is well again
		hands := after.handsSince(before.Status.Epoch)
		t.Logf("%s drained in %s, %d change of hands, ready again after %s", node.Name, drained.Round(10*time.Millisecond), hands, time.Since(at).Round(100*time.Millisecond))
		if hands > 0 {
			after.tells(t)
		}
		if hands != want {
			t.Errorf("the drain of %s changed hands %d times, want %d: %+v", node.Name, hands, want, after.Status.HandOvers)
		}
	}
	d.leaves(t, w, &steps, "cordon", "cordon", "uncordon")
	// As an autoscaler does before it takes a node away.
	d.leaves(t, w, &steps, "taint of a node that goes", "taint karpenter.sh/disrupted:NoSchedule", "taint karpenter.sh/disrupted-")
	d.evicted(t, w, &steps)
	steps.begin("the end")
	account, _ := w.settle(time.Time{})
	steps.gaps(t, account, 10*time.Second)
}

// handsSince counts the changes of hands after an epoch. An attempt that finds too few voters uses an epoch up, and changes nothing.
func (p placed) handsSince(epoch int64) int {
	n := 0
	for _, h := range p.Status.HandOvers {
		if h.Epoch > epoch && h.Cause != "raise" {
			n++
		}
	}
	return n
}

// leaves has the leader's node marked as one that goes: the lead leaves before anything is evicted, and a drain meets a replica.
func (d *database) leaves(t *testing.T, w *written, steps *phases, what, mark, clear string) {
	t.Helper()
	before, pods := d.now(), d.pods()
	node := before.node(before.Status.Leader)
	steps.begin(what + ", " + node)
	d.on(node, mark, clear)
	took := d.await(30*time.Second, "the leader leaves the node", func(now *v1.Database) error {
		if (placed{now}).leads(node) {
			return fmt.Errorf("%s leads on %s: %+v", now.Status.Leader, node, now.Status.Conditions)
		}
		return nil
	})
	t.Logf("%s: the leader left the node after %s", what, took.Round(10*time.Millisecond))
	w.moves(10 * time.Second)
	after := d.now()
	if after.Status.HandOvers[0].Cause != "switchover" || after.handsSince(before.Status.Epoch) != 1 {
		t.Errorf("%s: epoch %d after %d, by %+v; want one switchover", what, after.Status.Epoch, before.Status.Epoch, after.Status.HandOvers)
	}
	after.tells(t)
	if diff := cmp.Diff(pods, d.pods()); diff != "" {
		t.Errorf("%s: pods were replaced:\n%s", what, diff)
	}
	steps.begin("drain of " + node + " without the leader")
	d.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
	d.on(node, clear, "")
	d.kubectl("uncordon", node)
	d.awaitReady(2 * time.Minute)
	if now := d.now(); now.Status.Epoch != after.Status.Epoch {
		t.Errorf("the eviction of a replica changed hands: %+v", now.Status.HandOvers[0])
	}
}

// evicted taints the leader's node so that Kubernetes deletes the pods there at once: the agent hands over when it is told to end.
func (d *database) evicted(t *testing.T, w *written, steps *phases) {
	t.Helper()
	const mark, clear = "taint plimsoll.test/out=now:NoExecute", "taint plimsoll.test/out-"
	before := d.now()
	node := before.node(before.Status.Leader)
	steps.begin("taint that evicts, " + node)
	d.on(node, mark, clear)
	d.await(30*time.Second, "another one leads", func(now *v1.Database) error {
		if (placed{now}).leads(node) || now.Status.Epoch == before.Status.Epoch {
			return fmt.Errorf("%s leads with epoch %d", now.Status.Leader, now.Status.Epoch)
		}
		return nil
	})
	w.moves(20 * time.Second)
	d.on(node, clear, "")
	d.awaitReady(2 * time.Minute)
	after := d.now()
	switch cause := after.Status.HandOvers[0].Cause; {
	case after.handsSince(before.Status.Epoch) != 1:
		t.Errorf("epoch %d after %d, by %+v; want one switchover", after.Status.Epoch, before.Status.Epoch, after.Status.HandOvers)
	case cause != "switchover" && slowness() == 1: // a leader that is told to end lets go all the same where no heir is ready in time
		t.Errorf("a %s; want a switchover: %+v", cause, after.Status.HandOvers[0])
	}
	after.tells(t)
}

// on a node something is done: cordon, uncordon, or a taint; back is what takes it away, should the test fail before.
func (d *database) on(node, what, back string) {
	d.t.Helper()
	args := func(words string) []string {
		if verb, taint, _ := strings.Cut(words, " "); taint != "" {
			return []string{verb, "node", node, taint}
		}
		return []string{words, node}
	}
	if back != "" {
		d.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), 10*time.Second)
			defer cancel()
			_, _ = d.cluster.Kubectl(ctx, "", args(back)...) // mostly it is gone already
		})
	}
	if out, err := d.cluster.Kubectl(d.t.Context(), "", args(what)...); err != nil {
		d.t.Fatalf("kubectl %v: %v\n%s", args(what), err, out)
	}
}

// placed is a Database with the places of its instances.
type placed struct{ *v1.Database }

func (d *database) now() placed {
	d.t.Helper()
	found, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return placed{found}
}

// node of an instance.
func (p placed) node(instance string) string {
	i := slices.IndexFunc(p.Status.Instances, func(s v1.InstanceStatus) bool { return s.Name == instance })
	if i < 0 {
		return ""
	}
	return p.Status.Instances[i].Node
}

// leads says whether the leader is on a node.
func (p placed) leads(node string) bool { return p.node(p.Status.Leader) == node }

// tells how the newest change of hands went.
func (p placed) tells(t *testing.T) {
	t.Helper()
	h := p.Status.HandOvers[0]
	t.Logf("%s took over from %s, %s, in %d ms: %s; %s", h.To, h.From, h.Cause, h.DurationMillis, told(h.Steps), h.Why)
}

func (d *database) kubectl(args ...string) {
	d.t.Helper()
	if args[0] == "cordon" || args[0] == "drain" {
		d.t.Cleanup(func() { // for the tests that follow a failure
			ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), 10*time.Second)
			defer cancel()
			_, _ = d.cluster.Kubectl(ctx, "", "uncordon", args[1])
		})
	}
	if out, err := d.cluster.Kubectl(d.t.Context(), "", args...); err != nil {
		d.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
}
