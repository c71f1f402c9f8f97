package database

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// The taints by which others say that a node will be drained, beside the cordon's own.
const (
	taintAutoscaler   = "ToBeDeletedByClusterAutoscaler"
	taintKarpenter    = "karpenter.sh/disrupted"
	taintKarpenterOld = "karpenter.sh/disruption"
)

// leanNode keeps of a node what this package looks at: a cluster has many, and most of each is the list of its images.
func leanNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	lean := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
		Spec:       corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints},
	}
	if zone, ok := n.Labels[corev1.LabelTopologyZone]; ok {
		lean.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	return lean, nil
}

// node by name, from the cache; nil if there is none.
func (r *Reconciler) node(ctx context.Context, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	if err := r.read.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // a node that is gone is an answer, not an error
		}
		return nil, fmt.Errorf("read Node %s: %w", name, err)
	}
	return n, nil
}

// databasesOn are the Databases with an instance on a node.
func (r *Reconciler) databasesOn(ctx context.Context, obj client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := r.read.List(ctx, &pods, client.HasLabels{v1.LabelDatabase}, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "list the pods on a node that changed", "node", obj.GetName())
		return nil // the cache does not fail once it is filled; the slow resync is behind it
	}
	found := map[reconcile.Request]bool{}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != obj.GetName() {
			continue
		}
		for _, request := range databaseOf(ctx, &pods.Items[i]) {
			found[request] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// movesInstances lets through what may move a leader: a node's heartbeat does not.
func movesInstances() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			n, ok := e.Object.(*corev1.Node)
			return ok && (n.Spec.Unschedulable || len(n.Spec.Taints) > 0)
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, ok1 := e.ObjectOld.(*corev1.Node)
			now, ok2 := e.ObjectNew.(*corev1.Node)
			return ok1 && ok2 && (old.Spec.Unschedulable != now.Spec.Unschedulable || !equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints) ||
				old.Labels[corev1.LabelTopologyZone] != now.Labels[corev1.LabelTopologyZone])
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false }, // its pods go with it, and are watched
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// leaving says why a pod will have to leave its node, in words that follow "the node"; empty if nothing is known of that. That a node
// is not ready, or not reached, is no such reason: whether its instance serves is known better by the instances.
func leaving(n *corev1.Node, pod *corev1.Pod) string {
	if n == nil {
		return ""
	}
	if n.Spec.Unschedulable {
		return "is cordoned"
	}
	for _, taint := range n.Spec.Taints {
		if !evicts(taint) || toleratedForGood(pod.Spec.Tolerations, taint) {
			continue
		}
		return "has the taint " + taint.ToString()
	}
	return ""
}

func evicts(taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return false
	case corev1.TaintNodeUnschedulable, corev1.TaintNodeOutOfService, taintAutoscaler, taintKarpenter, taintKarpenterOld:
		return taint.Effect != corev1.TaintEffectPreferNoSchedule
	default:
		return taint.Effect == corev1.TaintEffectNoExecute
	}
}

// toleratedForGood says that the pod need not go for the taint, not even after a while.
func toleratedForGood(all []corev1.Toleration, taint corev1.Taint) bool {
	return slices.ContainsFunc(all, func(t corev1.Toleration) bool {
		return t.TolerationSeconds == nil && t.ToleratesTaint(logr.Discard(), &taint, false)
	})
}
