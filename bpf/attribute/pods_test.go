package attribute

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var _ cache.TransformingStore = (*Pods)(nil)

// at is a pod of a Deployment that has an address, on node-1.
func at(name, deployment string, ips ...string) *corev1.Pod {
	pod := owned("ReplicaSet", deployment+"-7d9f", map[string]string{hashOfDeployment: "7d9f"})
	pod.Name, pod.UID, pod.Spec.NodeName = name, types.UID(name), "node-1"
	pod.Status.HostIP, pod.Status.HostIPs = "192.168.1.1", []corev1.HostIP{{IP: "192.168.1.1"}, {IP: "fd00::1"}}
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		pod.Status.PodIP = ips[0]
	}
	return pod
}

func deployment(name string) Client { return Client{"app", "Deployment", name} }

func TestWhoseAnAddressIs(t *testing.T) {
	p := NewPods()
	expect := func(want map[string]Client) {
		t.Helper()
		got := map[string]Client{}
		for address := range want {
			got[address] = p.Whose(netip.MustParseAddr(address))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	node, outside := Client{Kind: KindNode, Name: "node-1"}, Client{Kind: KindOutside}
	expect(map[string]Client{"10.0.0.1": {Kind: KindUnknown}, "127.0.0.1": {Kind: KindLocal}})

	do(p.Replace([]any{at("a", "web", "10.0.0.1", "fd00:1::1"), at("b", "worker", "10.0.0.2")}, "1"))
	expect(map[string]Client{
		"10.0.0.1": deployment("web"), "fd00:1::1": deployment("web"), "10.0.0.2": deployment("worker"), "10.0.0.3": outside,
		"192.168.1.1": node, "fd00::1": node, "203.0.113.7": outside,
	})
	// A pod of the node's network has no address of its own; one that waits for an address has none yet.
	hosted := at("c", "proxy", "192.168.1.1")
	hosted.Spec.HostNetwork = true
	do(p.Add(hosted))
	do(p.Add(at("d", "late")))
	expect(map[string]Client{"192.168.1.1": node, "10.0.0.4": outside})
	do(p.Update(at("d", "late", "10.0.0.4")))
	expect(map[string]Client{"10.0.0.4": deployment("late")})
	// One that is gone is known until another has its address, whichever is told first.
	do(p.Delete(at("a", "web", "10.0.0.1")))
	expect(map[string]Client{"10.0.0.1": deployment("web")})
	do(p.Add(at("e", "next", "10.0.0.1")))
	do(p.Add(at("f", "next", "10.0.0.2")))
	do(p.Delete(cache.DeletedFinalStateUnknown{Obj: at("b", "worker", "10.0.0.2")}))
	expect(map[string]Client{"10.0.0.1": deployment("next"), "10.0.0.2": deployment("next")})
	// One that has ended has an address in its status that may be another's.
	ended := at("f", "next", "10.0.0.2")
	ended.Status.Phase = corev1.PodSucceeded
	do(p.Update(ended))
	do(p.Add(at("g", "third", "10.0.0.2")))
	do(p.Update(ended))
	expect(map[string]Client{"10.0.0.2": deployment("third")})
	// What a new list does not have is gone, and the node with its last pod.
	do(p.Replace(nil, "2"))
	expect(map[string]Client{"10.0.0.2": deployment("third"), "192.168.1.1": outside})
	if len(p.pods)+len(p.owners)+len(p.nodes) != 0 {
		t.Errorf("pods that are gone are kept: %d, %d addresses, %d nodes", len(p.pods), len(p.owners), len(p.nodes))
	}
}

func TestAddressesOfPodsThatAreGoneAreBounded(t *testing.T) {
	p := NewPods()
	for i := range 3 * mostFormer {
		pod := at(fmt.Sprint(i), "web", netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
		if err := p.Add(pod); err != nil {
			t.Fatal(err)
		}
		if err := p.Delete(pod); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.former); n > mostFormer {
		t.Errorf("%d are kept, more than %d", n, mostFormer)
	}
}

// TestWhatPodsOfAClusterTake prints the figure of decision 0014: memory for 10,000 pods of 500 Deployments.
func TestWhatPodsOfAClusterTake(t *testing.T) {
	before := heap()
	p := NewPods()
	for i := range 10_000 {
		pod := at(fmt.Sprintf("web-%03d-7d9f-%05d", i%500, i), fmt.Sprintf("web-%03d", i%500), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
		pod.UID = types.UID(fmt.Sprintf("%08x-77aa-4c0e-9b3f-5d6c2f10ab34", i))
		pod.Status.HostIP, pod.Status.HostIPs = fmt.Sprintf("192.168.%d.1", i%100), nil
		if err := p.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	const most = 8 << 20
	took := heap() - before
	if t.Logf("10,000 pods: %.1f MiB", float64(took)/(1<<20)); took > most {
		t.Errorf("%d bytes, want at most %d", took, most)
	}
	runtime.KeepAlive(p)
}

func TestAPodShrinksToWhatIsNeeded(t *testing.T) {
	pod := at("a", "web", "10.0.0.1")
	pod.Labels["app"], pod.Annotations = "web", map[string]string{"much": "text"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:1"}}
	shrunkAny, err := NewPods().Transformer()(pod)
	if err != nil {
		t.Fatal(err)
	}
	small := shrunkAny.(*corev1.Pod)
	if small.Annotations != nil || small.ManagedFields != nil || small.Spec.Containers != nil || len(small.Labels) != 1 || len(small.OwnerReferences) != 1 {
		t.Errorf("it is still %+v", small)
	}
	if diff := cmp.Diff(ClientOf(pod), ClientOf(small)); diff != "" {
		t.Errorf("whose it is (-want +got)\n%s", diff)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
