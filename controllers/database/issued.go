package database

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

// retryIssued is how long an API server that cannot say whether it has cert-manager's kinds is left alone.
const retryIssued = 10 * time.Second

// Issued follows the Certificates that Plimsoll asked cert-manager for, by metadata alone, and wakes the Databases whose Certificate
// changes: cert-manager writes the Secret, which nobody may watch, before it writes that. Its cache is its own and begins when the
// cluster has that kind: a cluster without cert-manager is normal, and must turn no cache of the manager red.
type Issued struct {
	mapper  meta.RESTMapper
	open    func() (cache.Cache, error)
	changed func(types.NamespacedName)
	log     logr.Logger
	wanted  chan struct{}

	mu   sync.Mutex
	held cache.Cache // nil until it is filled
}

// NewIssued makes one. When a Certificate changes, vault reads the Secrets of its Database again and reports wakes the reconciler. Open
// makes a cache of the manager's namespaces that holds no more than what carries Plimsoll's label.
func NewIssued(mapper meta.RESTMapper, open func() (cache.Cache, error), vault *Vault, reports *Reports, log logr.Logger) *Issued {
	changed := func(database types.NamespacedName) {
		vault.doubt(database)
		reports.wake(database)
	}
	return &Issued{mapper: mapper, open: open, changed: changed, log: log, wanted: make(chan struct{}, 1)}
}

// NeedLeaderElection says that only the elected manager follows.
func (i *Issued) NeedLeaderElection() bool { return true }

// Start follows until ctx ends. Where the kind does not exist it waits for a Database that wants it.
func (i *Issued) Start(ctx context.Context) error {
	for {
		kind := desired.IssuedKind()
		_, err := i.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		var again <-chan time.Time
		switch {
		case err == nil:
			if err = i.follow(ctx); ctx.Err() != nil {
				return nil
			}
			i.log.Info("cannot follow the Certificates of cert-manager; trying again", "error", err.Error())
			again = time.After(retryIssued)
		case !meta.IsNoMatchError(err):
			again = time.After(retryIssued)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-i.wanted:
		case <-again:
		}
	}
}

// want says that a Certificate was made, so that the kind exists.
func (i *Issued) want() {
	select {
	case i.wanted <- struct{}{}:
	default:
	}
}

func (i *Issued) follow(ctx context.Context) error {
	held, err := i.open()
	if err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	informer, err := held.GetInformer(ctx, emptyCertificate(), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: i.wake, UpdateFunc: func(_, now any) { i.wake(now) }, DeleteFunc: i.wake,
	}); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	i.mu.Lock()
	i.held = held
	i.mu.Unlock()
	return held.Start(ctx)
}

func (i *Issued) wake(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	c, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || c.Labels[v1.LabelDatabase] == "" {
		return
	}
	i.changed(types.NamespacedName{Namespace: c.Namespace, Name: c.Labels[v1.LabelDatabase]})
}

// certificate of a Database as it was last heard of; nil without one, and before the first list.
func (i *Issued) certificate(ctx context.Context, d *v1.Database) *metav1.PartialObjectMetadata {
	i.mu.Lock()
	held := i.held
	i.mu.Unlock()
	if held == nil {
		return nil
	}
	informer, err := held.GetInformer(ctx, emptyCertificate(), cache.BlockUntilSynced(false))
	if err != nil || !informer.HasSynced() {
		return nil
	}
	found := emptyCertificate()
	if held.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: desired.IssuedName(d.Name)}, found) != nil || !ownedBy(found.OwnerReferences, d.UID) {
		return nil
	}
	return found
}

func emptyCertificate() *metav1.PartialObjectMetadata {
	c := &metav1.PartialObjectMetadata{}
	c.SetGroupVersionKind(desired.IssuedKind())
	return c
}
