// Package probe reconciles a Probe: it runs a probe on each node, and tells how far each measures.
package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

const (
	// passTimeout ends a pass; what it did not do, the next one does.
	passTimeout = time.Minute
	// A pass that failed is tried again after a pause that doubles between these.
	minRetry, maxRetry = time.Second, time.Minute
	// lookEvery is how often nodes are asked when nothing changes, and lookSoon while one does not measure yet: for as long as that may take,
	// since what is amiss for longer may be so for ever.
	lookEvery, lookSoon = time.Minute, 5 * time.Second
	mayTake             = 5 * time.Minute
)

// Writer is what the reconciler writes by.
type Writer interface {
	Apply(ctx context.Context, obj client.Object) error
	Delete(ctx context.Context, obj client.Object) error
	ProbeStatus(ctx context.Context, seen *v1.Probe, status v1.ProbeStatus) error
}

// Asker asks the probe of a pod how far it measures.
type Asker interface {
	Ask(ctx context.Context, pod *corev1.Pod) (v1.NodeStatus, error)
}

// Options are what a Reconciler is built from.
type Options struct {
	// Read is the cache, which holds Probes and their DaemonSet; Live asks the API server itself.
	Read, Live client.Reader
	Writer     Writer
	Asker      Asker
	// Now is the clock.
	Now func() time.Time
	// Image is the operator's own, and OperatorNamespace where it runs.
	Image, OperatorNamespace string
}

// Reconciler keeps the probes as the Probe asks.
type Reconciler struct{ Options }

// New makes a Reconciler.
func New(o Options) *Reconciler { return &Reconciler{o} }

// Reconcile brings the Probe a step nearer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	seen, err := r.observe(ctx, req.NamespacedName)
	if err != nil || seen.Probe == nil || seen.Probe.DeletionTimestamp != nil {
		return ctrl.Result{}, err // what it made goes with it
	}
	plan := decide(seen, desired.ProbeInputs{Probe: seen.Probe, Image: r.Image, OperatorNamespace: r.OperatorNamespace})
	acted := r.apply(ctx, plan)
	status := summarise(seen, plan, acted, r.Now())
	told := r.Writer.ProbeStatus(ctx, seen.Probe, status)
	if err := errors.Join(acted, told); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: lookAgain(seen, status, r.Now())}, nil
}

// lookAgain says when nodes are to be asked again.
func lookAgain(s Seen, status v1.ProbeStatus, now time.Time) time.Duration {
	c := meta.FindStatusCondition(status.Conditions, v1.ConditionReady)
	switch {
	case s.Probe.Spec.Mode == v1.ProbeOff:
		return 0
	case c.Status == metav1.ConditionFalse && now.Sub(c.LastTransitionTime.Time) < mayTake:
		return lookSoon
	}
	return lookEvery
}

// SetupWithManager registers the reconciler: what wakes it, and how often it may fail.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	asked := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).Named("probe").For(&v1.Probe{}, asked).Owns(&appsv1.DaemonSet{}).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
		}).Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of Probes: %w", err)
	}
	return nil
}

// Cached are the kinds that the reconciler reads from the manager's cache: Probes, and what runs in their namespace.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1.Probe{}: {Label: labels.Everything()},
		// By name, because the manager has no right to any other.
		&appsv1.DaemonSet{}: {
			Label: labels.Everything(), Field: fields.OneTermEqualSelector("metadata.name", desired.ProbeName),
			Namespaces: map[string]cache.Config{v1.ProbeNamespace: {}},
		},
	}
}
