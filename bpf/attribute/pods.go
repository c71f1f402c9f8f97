package attribute

import (
	"fmt"
	"net/netip"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Pods knows which address is whose, in the whole cluster. It is the store of a reflector of pods and keeps of each what it must: no pod. That of a
// node is known by the pods that run there, so that nodes need not be read.
type Pods struct {
	mu     sync.RWMutex
	synced bool
	pods   map[types.UID]seen
	owners map[netip.Addr]owner
	nodes  map[netip.Addr]node
	// Addresses whose pod is gone, until another has them: what its connections did last is counted after that.
	former map[netip.Addr]unique.Handle[Client]
}

type seen struct {
	addresses, hosts []netip.Addr
}

type owner struct {
	pod    types.UID
	client unique.Handle[Client]
}

type node struct {
	client unique.Handle[Client]
	pods   int
}

// mostFormer bounds the addresses of pods that are gone.
const mostFormer = 4096

// NewPods makes a store that knows nothing.
func NewPods() *Pods {
	p := &Pods{}
	p.clear()
	return p
}

func (p *Pods) clear() {
	p.pods, p.owners, p.nodes = map[types.UID]seen{}, map[netip.Addr]owner{}, map[netip.Addr]node{}
	if p.former == nil {
		p.former = map[netip.Addr]unique.Handle[Client]{}
	}
}

// Whose tells who has an address.
func (p *Pods) Whose(a netip.Addr) Client {
	if a.IsLoopback() {
		return Client{Kind: KindLocal}
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if o, ok := p.owners[a]; ok {
		return o.client.Value()
	}
	if n, ok := p.nodes[a]; ok {
		return n.client.Value()
	}
	if c, ok := p.former[a]; ok {
		return c.Value()
	}
	if !p.synced || !a.IsValid() {
		return Client{Kind: KindUnknown}
	}
	return Client{Kind: KindOutside}
}

// Transformer implements cache.TransformingStore: a long list of pods shrinks as it comes.
func (p *Pods) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			return shrunk(pod), nil
		}
		return object, nil
	}
}

// shrunk is what this store needs of a pod.
func shrunk(pod *corev1.Pod) *corev1.Pod {
	s := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, PodIPs: pod.Status.PodIPs, HostIP: pod.Status.HostIP, HostIPs: pod.Status.HostIPs},
	}
	for _, label := range []string{v1.LabelDatabase, v1.LabelKind, hashOfDeployment, hashOfRollout} {
		if value, ok := pod.Labels[label]; ok {
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[label] = value
		}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		s.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return s
}

// Add implements cache.ReflectorStore.
func (p *Pods) Add(object any) error { return p.Update(object) }

// Update implements cache.ReflectorStore.
func (p *Pods) Update(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a pod was to come, and not %T", object)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(pod.UID)
	p.learn(pod)
	return nil
}

// Delete implements cache.ReflectorStore.
func (p *Pods) Delete(object any) error {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a pod was to go, and not %T", object)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(pod.UID)
	return nil
}

// Replace implements cache.ReflectorStore.
func (p *Pods) Replace(objects []any, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.pods {
		for _, a := range o.addresses {
			p.leave(a, p.owners[a].client)
		}
	}
	p.clear()
	for _, object := range objects {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("pods were to come, and not %T", object)
		}
		p.learn(pod)
	}
	p.synced = true
	return nil
}

// Resync implements cache.ReflectorStore.
func (p *Pods) Resync() error { return nil }

func (p *Pods) learn(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return // its address may be another's by now
	}
	var s seen
	for _, ip := range append([]corev1.HostIP{{IP: pod.Status.HostIP}}, pod.Status.HostIPs...) {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil || len(s.hosts) > 0 && s.hosts[0] == a.Unmap() {
			continue
		}
		a = a.Unmap()
		s.hosts = append(s.hosts, a)
		n := p.nodes[a]
		p.nodes[a] = node{client: unique.Make(Client{Kind: KindNode, Name: pod.Spec.NodeName}), pods: n.pods + 1}
	}
	if pod.Spec.HostNetwork {
		p.pods[pod.UID] = s
		return
	}
	client := unique.Make(ClientOf(pod))
	for _, ip := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil || len(s.addresses) > 0 && s.addresses[0] == a.Unmap() {
			continue
		}
		a = a.Unmap()
		s.addresses = append(s.addresses, a)
		p.owners[a] = owner{pod.UID, client}
		delete(p.former, a)
	}
	if len(s.addresses)+len(s.hosts) > 0 {
		p.pods[pod.UID] = s
	}
}

func (p *Pods) forget(uid types.UID) {
	s := p.pods[uid]
	delete(p.pods, uid)
	for _, a := range s.hosts {
		n := p.nodes[a]
		if n.pods--; n.pods > 0 {
			p.nodes[a] = n
		} else {
			delete(p.nodes, a)
		}
	}
	for _, a := range s.addresses {
		if o := p.owners[a]; o.pod == uid { // and not another's already
			delete(p.owners, a)
			p.leave(a, o.client)
		}
	}
}

func (p *Pods) leave(a netip.Addr, client unique.Handle[Client]) {
	if len(p.former) >= mostFormer {
		clear(p.former)
	}
	p.former[a] = client
}
