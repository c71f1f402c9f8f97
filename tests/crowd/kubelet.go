package crowd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

// Kubelet runs the pods that appear: each gets an address, and an agent there. Those that are deleted end at once.
type Kubelet struct {
	Client client.Client
	Agents *Agents
	// Node whose pods it runs; empty for all, whether a scheduler has placed them or not.
	Node string
	// Address of the n-th pod, from one.
	Address func(n int) (string, error)

	next atomic.Int64
}

// Attend looks after the pods that the cache shows, until the context ends.
func (k *Kubelet) Attend(ctx context.Context, pods cache.Cache) error {
	mine := func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && k.runs(pod) && (pod.Status.PodIP == "" || pod.DeletionTimestamp != nil)
	}
	return attend(ctx, pods, &corev1.Pod{}, mine, k.run)
}

func (k *Kubelet) runs(pod *corev1.Pod) bool { return k.Node == "" || pod.Spec.NodeName == k.Node }

// run a pod, or end it.
func (k *Kubelet) run(ctx context.Context, key client.ObjectKey) error {
	var pod corev1.Pod
	if err := k.Client.Get(ctx, key, &pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch {
	case !k.runs(&pod):
		return nil
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, &pod)
	case pod.Status.PodIP != "":
		return nil
	}
	var secret corev1.Secret
	if err := k.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: desired.MemberName(pod.Name)}, &secret); err != nil {
		return err
	}
	address, err := k.Address(int(k.next.Add(1)))
	if err != nil {
		return err
	}
	database := databaseOf(&pod)
	record := func(epoch int64, leader string, voters []string) {
		k.record(context.WithoutCancel(ctx), database, epoch, leader, voters)
	}
	if err := k.Agents.add(database.String(), pod.Name, owner(&pod), address, pod.Annotations[v1.AnnotationSecretsHash], secret.Data, record); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := k.Client.Get(ctx, key, &pod); err != nil {
			return err
		}
		pod.Status = running(pod.Status, address, metav1.Now())
		return k.Client.Status().Update(ctx, &pod)
	})
}

// running is the status of a pod that runs and is ready; what the scheduler said of it stays.
func running(was corev1.PodStatus, address string, now metav1.Time) corev1.PodStatus {
	out := *was.DeepCopy()
	out.Phase, out.PodIP, out.PodIPs, out.StartTime = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}, &now
	ours := []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady}
	out.Conditions = slices.DeleteFunc(out.Conditions, func(c corev1.PodCondition) bool { return slices.Contains(ours, c.Type) })
	for _, kind := range ours {
		out.Conditions = append(out.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return out
}

// end a pod that was deleted, and its agent before it.
func (k *Kubelet) end(ctx context.Context, pod *corev1.Pod) error {
	k.Agents.remove(databaseOf(pod).String(), pod.Name)
	return client.IgnoreNotFound(k.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}

func databaseOf(pod *corev1.Pod) client.ObjectKey {
	return client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[v1.LabelDatabase]}
}

func owner(pod *corev1.Pod) string {
	for _, o := range pod.OwnerReferences {
		return string(o.UID)
	}
	return ""
}

// record writes the leadership into the Lease, as a leader's agent does: by Update.
func (k *Kubelet) record(ctx context.Context, database client.ObjectKey, epoch int64, leader string, voters []string) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	raw, _ := json.Marshal(map[string]any{"version": 1, "epoch": epoch, "leader": leader, "voters": voters, "timeline": epoch})
	_ = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a Database whose Lease is never written is never ready
		var lease coordinationv1.Lease
		if err := k.Client.Get(ctx, client.ObjectKey{Namespace: database.Namespace, Name: desired.LeaseName(database.Name)}, &lease); err != nil {
			return err
		}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[v1.AnnotationLeadership] = string(raw)
		return k.Client.Update(ctx, &lease)
	})
}

const (
	// attendants at work on objects of a kind at one time.
	attendants = 8
	// callLimit of one piece of work, and syncLimit of the first list of a kind.
	callLimit = 10 * time.Second
	syncLimit = time.Minute
	// What failed, as a kubelet's wait for a Secret, is tried again after a pause that doubles between these.
	minPause = 20 * time.Millisecond
	maxPause = 2 * time.Second
)

// attend does something for each object of a kind that wants it, until the context ends.
func attend(ctx context.Context, objects cache.Cache, kind client.Object, wants func(client.Object) bool, do func(context.Context, client.ObjectKey) error) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[client.ObjectKey](minPause, maxPause))
	context.AfterFunc(ctx, queue.ShutDown)
	first, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	informer, err := objects.GetInformer(first, kind)
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	look := func(o any) {
		if object, ok := o.(client.Object); ok && wants(object) {
			queue.Add(client.ObjectKeyFromObject(object))
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, now any) { look(now) }})
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	for range attendants {
		go func() {
			for {
				key, ended := queue.Get()
				if ended {
					return
				}
				bounded, cancel := context.WithTimeout(ctx, callLimit)
				if err := do(bounded, key); err != nil {
					queue.AddRateLimited(key)
				} else {
					queue.Forget(key)
				}
				cancel()
				queue.Done(key)
			}
		}()
	}
	return nil
}
