package database

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

const (
	// callTimeout bounds one call, or one handful of calls, to the API server or to an agent.
	callTimeout = 10 * time.Second
	// zonesFor is how long a node's zone is remembered, and maxZones of how many nodes.
	zonesFor = time.Hour
	maxZones = 5000
)

// observe reads everything that a pass needs. It only reads; an agent that is silent is a member without a report, no error.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (Seen, error) {
	d := &v1.Database{}
	if err := r.read.Get(ctx, key, d); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(key)
			return Seen{}, nil
		}
		return Seen{}, fmt.Errorf("read Database %s: %w", key, err)
	}
	s := Seen{Database: d, Zones: map[string]string{}}
	var err error
	if s.Pods, s.Claims, err = r.owned(ctx, d); err != nil {
		return Seen{}, err
	}
	if s.Lease, err = r.lease(ctx, d); err != nil {
		return Seen{}, err
	}
	s.Heard = r.reports.Follow(key, targets(d, s.Pods))
	for _, pod := range s.Pods {
		if zone, known := r.zones.of(ctx, r.live, pod.Spec.NodeName, r.now()); known {
			s.Zones[pod.Spec.NodeName] = zone
		}
	}
	s.Asked, s.Attempts = r.asked.open(key, s.Heard), r.attempts.of(key, s.Heard)
	if d.DeletionTimestamp != nil {
		return s, nil
	}
	if s.Secrets, err = r.vault.secrets(ctx, d, secretInstances(s), s.failures(), r.now()); err != nil {
		return Seen{}, err
	}
	s.Issuing = r.issuing(ctx, d, s.Secrets)
	return s, nil
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.reports.Forget(key)
	r.metrics.forget(key)
	r.vault.forget(key)
	r.asked.forget(key)
	r.attempts.forget(key)
	r.positions.forget(key)
	r.agents.Forget(key)
}

func (r *Reconciler) owned(ctx context.Context, d *v1.Database) (map[string]*corev1.Pod, map[string]*corev1.PersistentVolumeClaim, error) {
	mine := []client.ListOption{client.InNamespace(d.Namespace), client.MatchingLabels{v1.LabelDatabase: d.Name}}
	var pods corev1.PodList
	if err := r.read.List(ctx, &pods, mine...); err != nil {
		return nil, nil, fmt.Errorf("list the pods of Database %s/%s: %w", d.Namespace, d.Name, err)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.read.List(ctx, &claims, mine...); err != nil {
		return nil, nil, fmt.Errorf("list the claims of Database %s/%s: %w", d.Namespace, d.Name, err)
	}
	byName := map[string]*corev1.Pod{}
	for i := range pods.Items {
		byName[pods.Items[i].Name] = &pods.Items[i]
	}
	held := map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims.Items {
		held[claims.Items[i].Name] = &claims.Items[i]
	}
	return byName, held, nil
}

func (r *Reconciler) lease(ctx context.Context, d *v1.Database) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: d.Namespace, Name: desired.LeaseName(d.Name)}
	if err := r.read.Get(ctx, key, lease); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // a Lease that is not there yet is an answer, not an error
		}
		return nil, fmt.Errorf("read Lease %s: %w", key, err)
	}
	return lease, nil
}

// targets are the agents that can be reached: of pods of this very Database, with an address.
func targets(d *v1.Database, pods map[string]*corev1.Pod) []Target {
	var out []Target
	for _, name := range sortedKeys(pods) {
		pod := pods[name]
		if pod.Status.PodIP == "" || ordinalOf(d.Name, name) == 0 || !ownedBy(pod.OwnerReferences, d.UID) {
			continue
		}
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		out = append(out, Target{
			Namespace: d.Namespace, Database: d.Name, Instance: name, UID: string(d.UID), PodUID: string(pod.UID), PodIP: pod.Status.PodIP,
		})
	}
	return out
}

// secretInstances are those whose certificates are looked after: the wanted ones and those that have a pod.
func secretInstances(s Seen) []string {
	names := sortedKeys(s.Pods)
	for n := int32(1); n <= replicas(s.Database); n++ {
		names = append(names, desired.InstanceName(s.Database.Name, n))
	}
	out := names[:0]
	for _, name := range names {
		if ordinalOf(s.Database.Name, name) > 0 {
			out = append(out, name)
		}
	}
	return byOrdinal(s.Database.Name, out)
}

func replicas(d *v1.Database) int32 {
	if d.Spec.Replicas == nil {
		return 3
	}
	return *d.Spec.Replicas
}

// failures is the sum of the refused logins that the agents count.
func (s Seen) failures() int64 {
	var sum int64
	for _, h := range s.Heard {
		sum += h.Report.AuthFailures
	}
	return sum
}

// zones remembers the zones of nodes: they hardly change, and a watch of all nodes would cost every cluster.
type zones struct {
	mu    sync.Mutex
	known map[string]zone
}

type zone struct {
	name string
	at   time.Time
}

func newZones() *zones { return &zones{known: map[string]zone{}} }

func (z *zones) of(ctx context.Context, live client.Reader, node string, now time.Time) (string, bool) {
	if node == "" {
		return "", false
	}
	z.mu.Lock()
	seen, ok := z.known[node]
	z.mu.Unlock()
	if !ok || now.Sub(seen.at) >= zonesFor {
		seen = zone{name: readZone(ctx, live, node), at: now}
		z.keep(node, seen)
	}
	return seen.name, seen.name != ""
}

func (z *zones) keep(node string, seen zone) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.known) >= maxZones {
		clear(z.known) // a bound, not a policy: the next passes fill it again
	}
	z.known[node] = seen
}

// readZone of a node. It is only for people and dashboards: a node that cannot be read has none, and is asked again after an hour.
func readZone(ctx context.Context, live client.Reader, node string) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := live.Get(ctx, types.NamespacedName{Name: node}, meta); err != nil {
		return ""
	}
	return meta.Labels[corev1.LabelTopologyZone]
}
