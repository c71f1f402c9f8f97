package attribute

import (
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Client is who opens connections to an instance: a workload of the cluster, or one of the kinds below.
type Client struct{ Namespace, Kind, Name string }

// Kinds of clients that are no workloads.
const (
	KindDatabase = "Database" // the instances of one, which stream from each other; its name is the Database's
	KindNode     = "node"     // the node of that name, or a pod in its network
	KindLocal    = "local"    // from the instance's own pod, by the loopback device
	KindOutside  = "outside"  // no pod of the cluster, and no node
	KindUnknown  = "unknown"  // the pods are not known yet
	KindPrivate  = "private"  // an address of a private network, where addresses alone are told
	KindPublic   = "public"   // any other, there
)

// Labels by which the owner of a ReplicaSet's pods is known without reading the ReplicaSet: its name is the owner's and this.
const (
	hashOfDeployment = "pod-template-hash"
	hashOfRollout    = "rollouts-pod-template-hash"
)

// ClientOf tells for which workload a pod runs: its owner, or the owner's where the names of both say so. A Deployment names its ReplicaSets and a
// CronJob its Jobs, and neither has to be read for that.
func ClientOf(pod *corev1.Pod) Client {
	if name := pod.Labels[v1.LabelDatabase]; name != "" && pod.Labels[v1.LabelKind] == v1.KindInstance {
		return Client{Namespace: pod.Namespace, Kind: KindDatabase, Name: name}
	}
	c := Client{Namespace: pod.Namespace, Kind: "Pod", Name: pod.Name}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind == "Node" { // that of a static pod
		return c
	}
	c.Kind, c.Name = owner.Kind, owner.Name
	switch owner.Kind {
	case "ReplicaSet":
		for _, of := range []struct{ label, kind string }{{hashOfDeployment, "Deployment"}, {hashOfRollout, "Rollout"}} {
			if name, ok := strings.CutSuffix(owner.Name, "-"+pod.Labels[of.label]); ok && pod.Labels[of.label] != "" && name != "" {
				return Client{Namespace: pod.Namespace, Kind: of.kind, Name: name}
			}
		}
	case "Job":
		if name, ok := ofCronJob(owner.Name, pod.CreationTimestamp); ok {
			return Client{Namespace: pod.Namespace, Kind: "CronJob", Name: name}
		}
	}
	return c
}

// aWeek in minutes is how long after its time a Job of a CronJob may begin.
const aWeek = 7 * 24 * 60

// ofCronJob is the CronJob that named a Job: after itself, and the minute for which it was due. A number that is not near to when the pod was made
// is a part of somebody's own name, like a date.
func ofCronJob(job string, made metav1.Time) (string, bool) {
	at := strings.LastIndexByte(job, '-')
	if at <= 0 {
		return "", false
	}
	due, err := strconv.ParseInt(job[at+1:], 10, 64)
	if err != nil {
		return "", false
	}
	late := made.Unix()/60 - due
	return job[:at], late >= -1 && late <= aWeek
}

// ByAddress tells what an address alone says of a client.
func ByAddress(a netip.Addr) Client {
	// Carrier-grade NAT (RFC 6598) is a private network, too.
	shared := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, 0, 0}), 10)
	switch {
	case !a.IsValid():
		return Client{Kind: KindUnknown}
	case a.IsLoopback():
		return Client{Kind: KindLocal}
	case a.IsPrivate(), a.IsLinkLocalUnicast(), shared.Contains(a):
		return Client{Kind: KindPrivate}
	}
	return Client{Kind: KindPublic}
}
