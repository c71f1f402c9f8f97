package database

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

// callTimeout bounds one call, or one handful of calls, to the API server or to an agent.
const callTimeout = 10 * time.Second

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
	s := Seen{Database: d, Nodes: map[string]*corev1.Node{}}
	var err error
	if s.Pods, s.Claims, err = r.owned(ctx, d); err != nil {
		return Seen{}, err
	}
	s.apart()
	if s.Lease, err = r.lease(ctx, d); err != nil {
		return Seen{}, err
	}
	if s.SliceVersion, err = r.slice(ctx, d); err != nil {
		return Seen{}, err
	}
	s.Heard = r.reports.Follow(key, append(targets(d, s.Pods), targets(d, s.Witnesses)...), recordIn(s.Lease).Leader)
	for _, pod := range s.Pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		if s.Nodes[pod.Spec.NodeName], err = r.node(ctx, pod.Spec.NodeName); err != nil {
			return Seen{}, err
		}
	}
	s.Asked, s.Attempts = r.asked.open(key, s.Heard), r.attempts.of(key, s.Heard, r.now())
	if d.DeletionTimestamp != nil {
		return s, nil
	}
	if s.Secrets, err = r.vault.secrets(ctx, d, secretInstances(s), s.failures(), r.now()); err != nil {
		return Seen{}, err
	}
	s.Issuing = r.issuing(ctx, d, s.Secrets)
	return s, nil
}

// apart keeps the pods of witnesses from those of instances: what is done for instances is not for them.
func (s *Seen) apart() {
	s.Witnesses = map[string]*corev1.Pod{}
	for name, pod := range s.Pods {
		if witnessOf(s.Database.Name, name) > 0 {
			s.Witnesses[name] = pod
			delete(s.Pods, name)
		}
	}
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
	mine := []client.ListOption{client.InNamespace(d.Namespace), client.MatchingFields{byDatabase: d.Name}}
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

// slice is the version of the EndpointSlice for writes; empty if there is none.
func (r *Reconciler) slice(ctx context.Context, d *v1.Database) (string, error) {
	slice := &metav1.PartialObjectMetadata{}
	slice.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	key := types.NamespacedName{Namespace: d.Namespace, Name: desired.EndpointSliceName(d.Name)}
	if err := r.read.Get(ctx, key, slice); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("read EndpointSlice %s: %w", key, err)
	}
	return slice.ResourceVersion, nil
}

// targets are the agents that can be reached: of pods of this very Database, with an address.
func targets(d *v1.Database, pods map[string]*corev1.Pod) []Target {
	var out []Target
	for _, name := range sortedKeys(pods) {
		pod := pods[name]
		if pod.Status.PodIP == "" || ordinalOf(d.Name, name)+witnessOf(d.Name, name) == 0 || !ownedBy(pod.OwnerReferences, d.UID) {
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

// secretInstances are those whose certificates are looked after: the wanted ones, those that have a pod, and the witnesses.
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
	out = byOrdinal(s.Database.Name, out)
	if next := nextWitness(s, s.leadership()); next != "" {
		out = append(out, next)
	}
	return append(out, sortedKeys(s.Witnesses)...)
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
