package scale

import (
	"context"
	"encoding/json"
	"fmt"
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

// kubelet runs the pods that appear: each gets a loopback address, and an agent there.
type kubelet struct {
	direct client.Client
	agents *agents
	queue  workqueue.TypedRateLimitingInterface[client.ObjectKey]
	next   atomic.Int64
}

// kubelets at work at one time.
const kubelets = 8

// attend looks after the pods that the cache shows, until the context ends.
func (k *kubelet) attend(ctx context.Context, pods cache.Cache) error {
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[client.ObjectKey]())
	informer, err := pods.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if pod, ok := o.(*corev1.Pod); ok && pod.Status.PodIP == "" {
			k.queue.Add(client.ObjectKeyFromObject(pod))
		}
	}})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	for range kubelets {
		go func() {
			for {
				key, ended := k.queue.Get()
				if ended {
					return
				}
				if err := k.run(ctx, key); err != nil {
					k.queue.AddRateLimited(key) // such as a kubelet that waits for a Secret
				} else {
					k.queue.Forget(key)
				}
				k.queue.Done(key)
			}
		}()
	}
	return nil
}

func (k *kubelet) run(ctx context.Context, key client.ObjectKey) error {
	var pod corev1.Pod
	var secret corev1.Secret
	if err := k.direct.Get(ctx, key, &pod); err != nil {
		return err
	}
	if err := k.direct.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: desired.MemberName(pod.Name)}, &secret); err != nil {
		return err
	}
	database := client.ObjectKey{Namespace: key.Namespace, Name: pod.Labels[v1.LabelDatabase]}
	n := k.next.Add(1)
	address := fmt.Sprintf("127.%d.%d.%d", 100+n>>14, n>>7&127+1, n&127+1)
	record := func(epoch int64, leader string, voters []string) { k.record(ctx, database, epoch, leader, voters) }
	if err := k.agents.add(database.String(), pod.Name, owner(&pod), address, pod.Annotations[v1.AnnotationSecretsHash], secret.Data, record); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := k.direct.Get(ctx, key, &pod); err != nil {
			return err
		}
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		return k.direct.Status().Update(ctx, &pod)
	})
}

func owner(pod *corev1.Pod) string {
	for _, o := range pod.OwnerReferences {
		return string(o.UID)
	}
	return ""
}

// record writes the leadership into the Lease, as a leader's agent does: by Update.
func (k *kubelet) record(ctx context.Context, database client.ObjectKey, epoch int64, leader string, voters []string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	raw, _ := json.Marshal(map[string]any{"version": 1, "epoch": epoch, "leader": leader, "voters": voters, "timeline": epoch})
	_ = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a Database whose Lease is never written is never ready
		var lease coordinationv1.Lease
		if err := k.direct.Get(ctx, client.ObjectKey{Namespace: database.Namespace, Name: desired.LeaseName(database.Name)}, &lease); err != nil {
			return err
		}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[v1.AnnotationLeadership] = string(raw)
		return k.direct.Update(ctx, &lease)
	})
}
