package crowd

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

const (
	// NodeName is the node's that nobody runs.
	NodeName = "crowd"
	// label that only this node has, and with its taint keeps everybody else away; the volumes have it, too.
	label = "plimsoll.test/crowd"
	// beatEvery is how often the node's Lease is renewed; the local cluster takes a node for lost after 16 s.
	beatEvery = 4 * time.Second
)

// Scheduling puts a Database's pods on the node.
func Scheduling() v1.SchedulingSpec {
	return v1.SchedulingSpec{
		NodeSelector: map[string]string{label: "true"},
		Tolerations:  []corev1.Toleration{{Key: label, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
	}
}

func node() *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("30000"),
	}
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{corev1.LabelHostname: NodeName, label: "true"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: label, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated", Message: "nobody runs it", LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}
}

func leaseOf(node *corev1.Node) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: NodeName,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new(NodeName), LeaseDurationSeconds: new(int32(12)), RenewTime: new(metav1.NowMicro())},
	}
}

// Register the node. Beat keeps it Ready.
func Register(ctx context.Context, c client.Client) error {
	made := node()
	if err := c.Create(ctx, made); err != nil {
		return fmt.Errorf("make the node %s: %w", NodeName, err)
	}
	if err := c.Create(ctx, leaseOf(made)); err != nil {
		return fmt.Errorf("make the Lease of the node %s: %w", NodeName, err)
	}
	return nil
}

// Beat renews the node's Lease until the context ends. One that fails is followed by the next.
func Beat(ctx context.Context, c client.Client) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = renew(ctx, c)
		}
	}
}

func renew(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	return c.Patch(ctx, leaseOf(&corev1.Node{}), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// Unregister the node. Pods that are still on it end without it.
func Unregister(ctx context.Context, c client.Client) error {
	gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}
	for _, o := range []client.Object{gone, leaseOf(gone)} {
		if err := c.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %T %s: %w", o, NodeName, err)
		}
	}
	return nil
}
