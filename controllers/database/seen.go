package database

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Seen is everything that one pass knows. It is read once and never changed.
type Seen struct {
	// Database as it was read; nil if there is none.
	Database *v1.Database
	// Pods and Claims of the Database's instances, by their own name, and the pods of its witnesses.
	Pods      map[string]*corev1.Pod
	Witnesses map[string]*corev1.Pod
	Claims    map[string]*corev1.PersistentVolumeClaim
	// Lease of the Database; nil if there is none.
	Lease *coordinationv1.Lease
	// SliceVersion is the resourceVersion of the EndpointSlice for writes; empty if there is none.
	SliceVersion string
	// Heard are the agents' newest reports; a silent one is absent.
	Heard map[string]Heard
	// Nodes of the pods, by name; one that there is not is nil or absent.
	Nodes map[string]*corev1.Node
	// Secrets as they were last read.
	Secrets Secrets
	// Issuing is what cert-manager does about the server's certificate.
	Issuing Issuing
	// Asked are the restarts that were last published, by instance: one that is not done yet stays asked for.
	Asked map[string]string
	// Attempts are the programs that were sent to agents and do not run there yet, by instance.
	Attempts map[string]Attempt
}

// Leadership is who leads, by the newest word of the Lease and of the members.
type Leadership struct {
	Epoch  int64    `json:"epoch"`
	Leader string   `json:"leader"`
	Voters []string `json:"voters"`
	// Witness is the voter that holds no data; empty for none.
	Witness string `json:"witness,omitempty"`
	// Degraded: only Leader is known to hold everything that was acknowledged, and nobody else may be elected.
	Degraded bool `json:"degraded,omitempty"`
	// Switchover is the id of the last one that was carried out.
	Switchover string `json:"switchover"`
	// Recovered is the last time that a person accepted a loss.
	Recovered struct {
		ID string `json:"id"`
	} `json:"recovered"`
}

// recordIn reads the Lease's record. It is the agents' own; what cannot be read is as good as none, and the members still say who leads.
func recordIn(lease *coordinationv1.Lease) Leadership {
	var l Leadership
	if lease == nil || json.Unmarshal([]byte(lease.Annotations[v1.AnnotationLeadership]), &l) != nil || !l.sound() {
		return Leadership{}
	}
	return l
}

// leadership reads the Lease's record. A member that says that it leads by a later epoch is ahead of this manager's cache.
func (s Seen) leadership() Leadership {
	l := recordIn(s.Lease)
	for _, name := range sortedKeys(s.Heard) {
		r := s.Heard[name].Report
		if r.Leading && r.Epoch > l.Epoch {
			l = Leadership{Epoch: r.Epoch, Leader: name, Voters: r.Voters, Switchover: l.Switchover, Witness: l.Witness, Recovered: l.Recovered}
		}
	}
	slices.Sort(l.Voters)
	return l
}

// What an agent writes at the most; epochs are numbers that every reader of JSON holds exactly.
const (
	maxEpoch  = 1 << 53
	maxVoters = 15
)

// sound says that an agent may have written it.
func (l Leadership) sound() bool {
	return l.Epoch > 0 && l.Epoch <= maxEpoch && l.Leader != "" && slices.Contains(l.Voters, l.Leader) && len(l.Voters) <= maxVoters
}

func (l Leadership) votes(name string) bool { return slices.Contains(l.Voters, name) }

// key of the Database.
func (s Seen) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Database.Namespace, Name: s.Database.Name}
}

// relayed says that something was heard of an instance through its leader alone.
func (s Seen) relayed() bool {
	for _, h := range s.Heard {
		if h.Relayed {
			return true
		}
	}
	return false
}

// report of an instance; nil while it is silent.
func (s Seen) report(name string) *engine.Report {
	heard, ok := s.Heard[name]
	if !ok {
		return nil
	}
	r := heard.Report
	return &r
}

// member is one instance as the engine wants to see it.
func (s Seen) member(name string, l Leadership) engine.Member {
	m := engine.Member{
		Name: name, Ordinal: ordinalOf(s.Database.Name, name), Address: desired.Address(s.Database.Namespace, s.Database.Name, name),
		Leader: l.Leader == name, Voter: l.votes(name), Report: s.report(name),
	}
	if pod := s.Pods[name]; pod != nil {
		m.Node, m.Zone, m.Image = pod.Spec.NodeName, s.zone(pod), databaseImage(pod)
	}
	return m
}

// zone of a pod's node; empty where it is not known.
func (s Seen) zone(pod *corev1.Pod) string {
	n := s.Nodes[pod.Spec.NodeName]
	if n == nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}

func databaseImage(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == desired.DatabaseContainer {
			return c.Image
		}
	}
	return ""
}

// ordinalOf is the number in an instance's name, 0 if it is no instance of the Database.
func ordinalOf(database, instance string) int32 {
	text, ok := strings.CutPrefix(instance, database+"-")
	if !ok || text == "" || text[0] == '0' || text[0] == '+' {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0
	}
	return int32(n)
}

// witnessOf is the number in a witness's name, 0 if it is no witness of the Database.
func witnessOf(database, name string) int32 {
	number, ok := strings.CutPrefix(name, database+"-w")
	if !ok {
		return 0
	}
	return ordinalOf(database, database+"-"+number)
}

// byOrdinal sorts instances by their number.
func byOrdinal(database string, names []string) []string {
	out := slices.Clone(names)
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(ordinalOf(database, a), ordinalOf(database, b)) })
	return slices.Compact(out)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// podReady is the kubelet's word.
func podReady(pod *corev1.Pod) bool {
	return podCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	if pod == nil {
		return corev1.PodCondition{}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// soonest is the shorter of two waits, where 0 is none.
func soonest(a, b time.Duration) time.Duration {
	switch {
	case a <= 0:
		return b
	case b <= 0:
		return a
	default:
		return min(a, b)
	}
}
