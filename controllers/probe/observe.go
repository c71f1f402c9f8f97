package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

const (
	listTimeout = 10 * time.Second
	// askTimeout bounds a question to a node, and askAtOnce how many are under way.
	askTimeout = 2 * time.Second
	askAtOnce  = 32
	// maxPods bounds the nodes that are looked at in a pass.
	maxPods = 5000
)

// Seen is all that a pass decides on.
type Seen struct {
	// Probe is nil if there is none of the name.
	Probe     *v1.Probe
	DaemonSet *appsv1.DaemonSet // nil if there is none
	Pods      []corev1.Pod
	Unseen    int               // pods beyond those that a pass looks at
	Heard     map[string]Answer // by pod, of those that are ready
}

// Answer of a node's probe.
type Answer struct {
	Status v1.NodeStatus
	Err    error
}

// observe reads all that there is to see.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (Seen, error) {
	s := Seen{Probe: &v1.Probe{}, DaemonSet: &appsv1.DaemonSet{}}
	if err := r.Read.Get(ctx, key, s.Probe); err != nil {
		return Seen{}, client.IgnoreNotFound(err)
	}
	err := r.Read.Get(ctx, client.ObjectKey{Namespace: v1.ProbeNamespace, Name: desired.ProbeName}, s.DaemonSet)
	if apierrors.IsNotFound(err) {
		s.DaemonSet = nil
		return s, nil
	}
	if err != nil {
		return Seen{}, fmt.Errorf("read the DaemonSet of the probes: %w", err)
	}
	if s.Pods, s.Unseen, err = r.pods(ctx); err != nil {
		return Seen{}, err
	}
	s.Heard = r.ask(ctx, s.Pods)
	return s, nil
}

// pods of the probes, and how many more there are.
func (r *Reconciler) pods(ctx context.Context) ([]corev1.Pod, int, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(v1.ProbeNamespace), client.MatchingLabels(desired.ProbeSelector()), client.Limit(maxPods))
	if err != nil {
		return nil, 0, fmt.Errorf("list the pods of the probes: %w", err)
	}
	more := 0
	if n := pods.RemainingItemCount; n != nil {
		more = int(*n)
	}
	return pods.Items, more, nil
}

// ask the probes that are ready, some at a time.
func (r *Reconciler) ask(ctx context.Context, pods []corev1.Pod) map[string]Answer {
	heard := map[string]Answer{}
	var mu sync.Mutex
	var all sync.WaitGroup
	free := make(chan struct{}, askAtOnce)
	for i := range pods {
		if !ready(&pods[i]) {
			continue
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			status, err := r.Asker.Ask(ctx, &pods[i])
			mu.Lock()
			defer mu.Unlock()
			heard[pods[i].Name] = Answer{status, err}
		})
	}
	all.Wait()
	return heard
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.Status.PodIP != ""
		}
	}
	return false
}
