package database

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	open    OpenIssued
	changed func(types.NamespacedName)
	log     logr.Logger
	wanted  chan struct{}

	mu   sync.Mutex
	held cache.Cache // nil until it is filled
}

// OpenIssued makes a cache of the manager's namespaces that holds no more than what carries Plimsoll's label, and calls failed when a
// watch of it ends with an error.
type OpenIssued func(failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error)

// errGone says that cert-manager's kinds were removed while they were followed.
var errGone = errors.New("the kind is gone")

// NewIssued makes one. When a Certificate changes, vault reads the Secrets of its Database again and reports wakes the reconciler.
func NewIssued(mapper meta.RESTMapper, open OpenIssued, vault *Vault, reports *Reports, log logr.Logger) *Issued {
	changed := func(database types.NamespacedName) {
		vault.doubt(database)
		reports.wake(database)
	}
	return &Issued{mapper: mapper, open: open, changed: changed, log: log, wanted: make(chan struct{}, 1)}
}

// NeedLeaderElection says that only the elected manager follows.
func (i *Issued) NeedLeaderElection() bool { return true }

// Start follows until ctx ends. Where the kind does not exist, or not any more, it waits until a Certificate could be asked for: what
// the mapper says then is not asked, since it remembers kinds that are gone.
func (i *Issued) Start(ctx context.Context) error {
	for {
		var again <-chan time.Time
		err := i.exists()
		if err == nil {
			err = i.follow(ctx)
		}
		switch {
		case errors.Is(err, errGone):
			select {
			case <-i.wanted: // from before it went
			default:
			}
		case !meta.IsNoMatchError(err) && ctx.Err() == nil:
			i.log.Info("cannot follow the Certificates of cert-manager; trying again", "error", err.Error())
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

// exists is nil if the cluster has, or once had, the kind.
func (i *Issued) exists() error {
	kind := desired.IssuedKind()
	_, err := i.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	return err
}

// want says that a Certificate was made, so that the kind exists.
func (i *Issued) want() {
	select {
	case i.wanted <- struct{}{}:
	default:
	}
}

func (i *Issued) follow(ctx context.Context) error {
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	var filled atomic.Bool
	held, err := i.open(func(ctx context.Context, r *toolscache.Reflector, err error) {
		// One that was never filled goes on trying: it leaves goroutines behind if it is stopped.
		if apierrors.IsNotFound(err) && filled.Load() {
			gone(errGone)
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
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
	go func() { filled.Store(held.WaitForCacheSync(ctx)) }()
	i.hold(held)
	defer i.hold(nil)
	if err := held.Start(ctx); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return context.Cause(ctx)
}

func (i *Issued) hold(c cache.Cache) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = c
}

func (i *Issued) following() cache.Cache {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.held
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
	held := i.following()
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
