// Package database reconciles a Database: it looks, decides, does and tells.
package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

const (
	// passTimeout ends a pass; what it did not do, the next one does.
	passTimeout = 2 * time.Minute
	// A pass that failed is tried again after a pause that doubles between these.
	minRetry = 200 * time.Millisecond
	maxRetry = 30 * time.Second
	// shortPause is how long a cache that is behind our own write, or a first report, is waited for at a time.
	shortPause = 50 * time.Millisecond
)

// Options are what a Reconciler is built from.
type Options struct {
	// Read is the cache; Live asks the API server itself, for Secrets and ConfigMaps by name.
	Read, Live client.Reader
	Writer     Writer
	Agents     Agents
	Vault      *Vault
	Reports    *Reports
	Issued     *Issued
	Metrics    *Metrics
	Health     *Health
	Events     Recorder
	// Now is the clock.
	Now func() time.Time
	// Policy of the certificates.
	Policy certificate.Policy
	Surroundings
}

// Reconciler keeps Databases as their specs ask.
type Reconciler struct {
	read, live client.Reader
	writer     Writer
	agents     Agents
	reports    *Reports
	metrics    *Metrics
	health     *Health
	events     Recorder
	now        func() time.Time
	policy     certificate.Policy
	around     Surroundings

	vault     *Vault
	asked     *asked
	attempts  *attempts
	positions *positions
	issued    *Issued
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{
		read: o.Read, live: o.Live, writer: o.Writer, agents: o.Agents, reports: o.Reports, metrics: o.Metrics, health: o.Health,
		events: o.Events, now: o.Now, policy: o.Policy, around: o.Surroundings,
		asked: newAsked(), attempts: newAttempts(o.Metrics.exchanged), positions: newPositions(), vault: o.Vault, issued: o.Issued,
	}
	return r
}

// Reconcile brings one Database a step nearer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, end := r.begin(ctx, req.NamespacedName)
	defer end()
	began := r.now()
	seen, err := r.observe(ctx, req.NamespacedName)
	if err != nil || seen.Database == nil {
		return ctrl.Result{}, err
	}
	if r.health.behind(seen.Database) || !r.reports.Warm(req.NamespacedName) {
		return ctrl.Result{RequeueAfter: shortPause}, nil // what there is to see is still on its way
	}
	plan := decide(seen, r.around, r.now())
	if plan.changes(seen) {
		r.reports.Attend(req.NamespacedName)
		if seen.relayed() {
			return ctrl.Result{RequeueAfter: shortPause}, nil // to be decided on what each instance says itself
		}
	}
	acted := r.apply(ctx, seen, plan)
	status := r.positions.unlessIdle(seen, summarise(seen, plan, acted, r.now()))
	err = errors.Join(acted.Err, r.report(ctx, seen, status))
	r.metrics.reconciled(status.Phase, err, r.now().Sub(began))
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: soonest(plan.LookAgain, acted.LookAgain)}, nil
}

// begin marks what the pass asks of the API server with its id, and bounds its time.
func (r *Reconciler) begin(ctx context.Context, key types.NamespacedName) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ssa.WithOperation(ctx, operation(ctx)), passTimeout)
	end := r.health.pass(key)
	return ctx, func() { end(); cancel() }
}

// operation is the id of the pass under way: the logs have it as reconcileID, events and the API server's audit log have it too.
func operation(ctx context.Context) string { return string(controller.ReconcileIDFromContext(ctx)) }

// report writes the status, once, and tells what changed in it.
func (r *Reconciler) report(ctx context.Context, s Seen, status v1.DatabaseStatus) error {
	before := s.Database.Status
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.writer.Status(ctx, s.Database, status); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !equality.Semantic.DeepEqual(before, status) {
		r.health.wrote(s.Database)
		r.positions.note(s)
	}
	r.metrics.told(s.key(), before, status)
	r.tell(ctx, s.Database, changes(before, status))
	return nil
}

// SetupWithManager registers the reconciler: what wakes it, and how often it may fail.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	if err := index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	asked := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).Named("database").For(&v1.Database{}, builder.WithPredicates(asked))
	for _, obj := range whole() {
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(databaseOf))
	}
	for _, obj := range ByMetadata() {
		b = b.WatchesMetadata(obj, handler.EnqueueRequestsFromMapFunc(databaseOf))
	}
	b = b.Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.databasesOn), builder.WithPredicates(movesInstances()))
	err := b.WatchesRawSource(r.reports.Source()).WithOptions(controller.Options{
		MaxConcurrentReconciles: concurrent,
		EnableWarmup:            new(true), // a manager that stands by has its caches filled when its turn comes
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
	}).Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of Databases: %w", err)
	}
	return errors.Join(mgr.Add(r.reports), mgr.Add(r.issued))
}

// databaseOf is the Database that an object carries the name of.
func databaseOf(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[v1.LabelDatabase]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}
