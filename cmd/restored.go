package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leases are those of the leader election, which every replica of the manager reads or writes every few seconds. The version of one only
// grows, unless etcd was restored from a backup. Where that was done without moving all versions on, the watches of this process hear of
// nothing until they have grown past those that it knows, and its caches show what is no more, for hours perhaps. It must begin anew.
type leases struct {
	coordinationclient.LeasesGetter
	// back is told once that versions went back.
	back func(error)
	// most is how long who holds the Lease may go on after its last renewal.
	most time.Duration

	mu      sync.Mutex
	newest  string
	told    bool
	renewed time.Time // when the newest write was begun; zero for one that only looks
}

// Leases implements LeasesGetter.
func (l *leases) Leases(namespace string) coordinationclient.LeaseInterface {
	return watchedLeases{l.LeasesGetter.Leases(namespace), l}
}

// saw a version of the one Lease. What cannot be compared tells nothing.
func (l *leases) saw(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return lease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	order, compared := resourceversion.CompareResourceVersion(lease.ResourceVersion, l.newest)
	switch {
	case l.newest == "" || compared == nil && order > 0:
		l.newest = lease.ResourceVersion
	case compared == nil && order < 0 && !l.told:
		l.told = true
		l.back(fmt.Errorf("the Lease %s/%s went back from version %s to %s: etcd was restored from a backup, and what this manager knows may never be brought up to date; it starts anew",
			lease.Namespace, lease.Name, l.newest, lease.ResourceVersion))
	}
	return lease, nil
}

// late says that it is over for who held the Lease. The election would still try to release it, for as long as two requests may take, and
// the passes under way go on meanwhile: beside those of the next manager, whose time has come. One whose last renewal was answered late may
// still overlap with the next for a retry's time; each write says which version it replaces.
func (l *leases) late() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() || time.Since(l.renewed) < l.most {
		return nil
	}
	return fmt.Errorf("the Lease was last renewed %s ago, and another manager may act", time.Since(l.renewed).Round(time.Millisecond))
}

func (l *leases) wrote(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = at
}

// watchedLeases are the calls that the election makes.
type watchedLeases struct {
	coordinationclient.LeaseInterface
	of *leases
}

// Get implements LeaseInterface. The election names no version, so the answer is the newest of all API servers.
func (w watchedLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := w.of.late(); err != nil {
		return nil, err
	}
	return w.of.saw(w.LeaseInterface.Get(ctx, name, o))
}

// Update implements LeaseInterface.
func (w watchedLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := w.of.late(); err != nil {
		return nil, err
	}
	begun := time.Now()
	out, err := w.LeaseInterface.Update(ctx, lease, o)
	if err == nil {
		w.of.wrote(begun)
	}
	return w.of.saw(out, err)
}
