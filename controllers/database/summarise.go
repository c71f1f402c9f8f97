package database

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// maxHandOvers is how many changes of the leader status keeps.
const maxHandOvers = 10

// maxMessage bounds a message that may hold others' words, as an event's note is bounded.
const maxMessage = maxNote

// summarise tells how things are: the new status, from the old one and what this pass saw, planned and did. It is pure.
func summarise(s Seen, p Plan, acted Acted, now time.Time) v1.DatabaseStatus {
	d := s.Database
	status := *d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	status.Selector = labels.SelectorFromSet(desired.InstanceSelector(d.Name)).String()
	if p.Leadership.Epoch >= status.Epoch && p.Leadership.Epoch > 0 {
		status.Epoch, status.Leader, status.Voters = p.Leadership.Epoch, p.Leadership.Leader, p.Leadership.Voters
	}
	status.Witness = witnessStatus(s, p, status.Witness)
	status.Instances = instances(s, p, now)
	status.Replicas, status.ReadyReplicas = 0, 0
	for _, i := range status.Instances {
		if s.Pods[i.Name] != nil {
			status.Replicas++
		}
		if i.Ready {
			status.ReadyReplicas++
		}
	}
	status.Ready = fmt.Sprintf("%d/%d", status.ReadyReplicas, replicas(d))
	if leader := s.report(p.Leadership.Leader); leader != nil && leader.Role == engine.Primary && leader.Ready && leader.Version != "" {
		status.Version = leader.Version
	}
	if p.Effective.Image != "" {
		effective := p.Effective
		status.Effective = &effective
	}
	if expiries := acted.Expiries; len(expiries) > 0 {
		status.Certificates = nil
		for _, name := range sortedKeys(expiries) {
			status.Certificates = append(status.Certificates, v1.CertificateStatus{Name: name, NotAfter: metav1.NewTime(expiries[name].UTC().Truncate(time.Second))})
		}
	}
	status.Requests = withAnswers(status.Requests, p.Answers)
	status.HandOvers = handOvers(status.HandOvers, s)
	status.Phase = phase(s, p, status)
	for _, c := range conditions(s, p, acted, status) {
		c.ObservedGeneration = d.Generation
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func instances(s Seen, p Plan, now time.Time) []v1.InstanceStatus {
	names := byOrdinal(s.Database.Name, append(slices.Clone(p.Instances), p.Wanted...))
	out := make([]v1.InstanceStatus, 0, len(names))
	for _, name := range names {
		if s.Pods[name] == nil && !slices.Contains(p.Instances, name) && p.Leadership.Epoch == 0 && ordinalOf(s.Database.Name, name) != 1 {
			continue // not begun yet
		}
		out = append(out, instance(s, p, name, now))
	}
	return out
}

// silentWords are said of an instance that only the kubelet hears.
const silentWords = "the kubelet finds it ready, but the manager has not heard its agent; if it stays so, check the network policies for port 7470"

func instance(s Seen, p Plan, name string, now time.Time) v1.InstanceStatus {
	pod, r := s.Pods[name], s.report(name)
	i := v1.InstanceStatus{Name: name, Role: roleOf(r), Voter: p.Leadership.votes(name)}
	before := instanceOf(s.Database.Status, name)
	i.MemoryKills, i.OutOfMemoryAt = before.MemoryKills, before.OutOfMemoryAt
	if pod != nil {
		i.Node, i.Zone = pod.Spec.NodeName, s.zone(pod)
		for _, c := range pod.Status.ContainerStatuses {
			i.OutOfMemoryAt = cmp.Or(starvedAt(c), i.OutOfMemoryAt)
		}
	}
	switch {
	case r != nil:
		i.State, i.Ready, i.Version, i.Position = r.State, r.Ready, r.Version, r.Position.Text
		i.RestartPending, i.MemoryKills = len(r.RestartPending) > 0, r.MemoryKills
		if r.LagBytes >= 0 {
			lag := r.LagBytes
			i.LagBytes = &lag
		}
		i.Reason, i.Message = r.Reason, cmp.Or(oneLine(r.Problem), fullness(r), p.Keeps[name])
		if i.Reason == "" && r.Waits != nil {
			i.Reason, i.Message = r.Waits.For, oneLine(r.Waits.Text)
		}
		if i.Ready && !podReady(pod) {
			i.Ready, i.Message = false, cmp.Or(i.Message, "the kubelet does not find it ready: no Service for reads leads to it")
		}
	case pod == nil:
		i.State, i.Message = "stopped", "it has no pod"
	case podReady(pod):
		// The kubelet reaches it though the manager does not. That a pod is new is no reason to take it for ready unheard.
		since := podCondition(pod, corev1.PodReady).LastTransitionTime
		i.State, i.Ready, i.Message = "silent", now.Sub(since.Time) > silentAfter, silentWords
		i.Version = versionTold(s.Database, name)
	default:
		i.State, i.Message = "starting", oneLine(waitsFor(s, name, now))
	}
	if i.Position == "" {
		i.LastPosition = positionTold(s.Database, name)
	}
	return i
}

// positionTold is the last position that status told of an instance.
func positionTold(d *v1.Database, name string) string {
	for _, i := range d.Status.Instances {
		if i.Name == name {
			return cmp.Or(i.Position, i.LastPosition)
		}
	}
	return ""
}

// nearlyFull is from when on a volume is worth a word, in per cent: what grows by itself has grown before.
const nearlyFull = 95

// fullness names a volume with hardly any room left. A replica whose log finds none holds up the writes of all. The number is left
// out, so that the word does not change with each write.
func fullness(r *engine.Report) string {
	switch {
	case percent(r.Data) >= nearlyFull:
		return "its data volume is nearly full; raise spec.storage.size, and spec.storage.growth.maxSize where it is set"
	case percent(r.WAL) >= nearlyFull:
		return "its volume of the write-ahead log is nearly full; raise spec.storage.wal.size"
	default:
		return ""
	}
}

// versionTold is what status says of an instance's server so far.
func versionTold(d *v1.Database, name string) string {
	for _, i := range d.Status.Instances {
		if i.Name == name {
			return i.Version
		}
	}
	return ""
}

// waitsFor says why a pod does not run yet, in the words of whom it waits for.
func waitsFor(s Seen, name string, now time.Time) string {
	pod := s.Pods[name]
	if pod.DeletionTimestamp != nil {
		return "its old pod is ending"
	}
	if c := podCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse {
		return c.Message
	}
	if image, message, bad := imageProblem(pod); bad {
		return fmt.Sprintf("image %s cannot be pulled: %s", image, message)
	}
	if t := containerTroubleOf(pod, now); t != nil {
		return t.Words
	}
	return ""
}

// handOvers adds what the leaders report to what is known, newest first.
func handOvers(known []v1.HandOver, s Seen) []v1.HandOver {
	out := slices.Clone(known)
	for _, name := range sortedKeys(s.Heard) {
		if told := raised(name, s.Heard[name].Report.Raised); told != nil && !slices.ContainsFunc(out, func(o v1.HandOver) bool { return o.Epoch == told.Epoch }) {
			out = append(out, *told)
		}
		h := s.Heard[name].Report.HandOver
		if h == nil || h.Promoted == 0 {
			continue
		}
		told := v1.HandOver{
			Epoch: h.Epoch, From: h.From, To: name, Cause: h.Cause, Why: h.Why, Waited: h.Waited, Steps: steps(h),
			At: metav1.NewTime(time.UnixMilli(h.Promoted).UTC().Truncate(time.Second)), DurationMillis: took(h),
		}
		told.LostBytes, told.Loss = lost(h)
		switch i := slices.IndexFunc(out, func(o v1.HandOver) bool { return o.Epoch == h.Epoch }); {
		case i < 0:
			out = append(out, told)
		case out[i].To == name:
			if told.LostBytes == nil && out[i].LostBytes != nil {
				told.LostBytes, told.Loss = out[i].LostBytes, out[i].Loss // the old leader has told
			}
			out[i] = told // clients may have been sent there since
		}
	}
	slices.SortFunc(out, func(a, b v1.HandOver) int { return int(b.Epoch - a.Epoch) })
	settleLosses(out, s)
	return out[:min(len(out), maxHandOvers)]
}

// raised is a new epoch of a leader that goes on leading, as status tells it; nil for none.
func raised(name string, r *engine.Raise) *v1.HandOver {
	if r == nil {
		return nil
	}
	return &v1.HandOver{
		Epoch: r.Epoch, From: name, To: name, Cause: causeRaise, Why: cut(r.Why, maxMessage), At: metav1.NewTime(time.UnixMilli(r.At).UTC().Truncate(time.Second)),
		LostBytes: new(int64), Loss: "nothing: the same instance went on leading",
	}
}

// steps of a change of hands that did occur, in the order of time.
func steps(h *engine.HandOver) []v1.HandOverStep {
	var out []v1.HandOverStep
	at := map[string]int64{"seen": h.Seen, "released": h.Released, "expired": h.Expired, "elected": h.Elected, "promoted": h.Promoted, "routed": h.Routed}
	for _, name := range []string{"seen", "expired", "released", "elected", "promoted", "routed"} {
		if at[name] > 0 {
			out = append(out, v1.HandOverStep{Name: name, AfterMillis: at[name]})
		}
	}
	slices.SortStableFunc(out, func(a, b v1.HandOverStep) int { return cmp.Compare(a.AfterMillis, b.AfterMillis) })
	for i := range slices.Backward(out) {
		out[i].AfterMillis -= out[0].AfterMillis
	}
	return out
}

// took is from the first sign that the old leader was going to the first write that clients could make.
func took(h *engine.HandOver) int64 {
	end := max(h.Promoted, h.Routed)
	for _, begin := range []int64{h.Seen, h.Released, h.Expired, h.Elected} {
		if begin > 0 && begin <= end {
			return end - begin
		}
	}
	return 0
}

// serves says that a primary takes writes, by its own word, and that clients are sent to it.
func serves(s Seen, p Plan) bool {
	leader := s.report(p.Leadership.Leader)
	return leader != nil && leader.Role == engine.Primary && leader.Ready && (leader.Waits == nil || leader.Waits.For != v1.ReasonNotRouted)
}

// unheard says that whether a primary takes writes is not known: the kubelet finds the leader ready, but its agent is silent.
func unheard(s Seen, p Plan) bool {
	leader := p.Leadership.Leader
	return s.report(leader) == nil && podReady(s.Pods[leader])
}

func phase(s Seen, p Plan, status v1.DatabaseStatus) v1.Phase {
	d := s.Database
	all := allReady(s, p, status)
	switch {
	case d.DeletionTimestamp != nil:
		return v1.PhaseDeleting
	case d.Spec.Maintenance.Hibernated && len(s.Pods) == 0 && !d.Spec.Maintenance.Paused:
		return v1.PhaseHibernated
	case len(s.Pods) == 0 && p.Leadership.Epoch == 0 && status.Epoch == 0 && p.Stalled != nil:
		return v1.PhasePending
	case status.Epoch == 0 || status.Version == "":
		return v1.PhaseCreating
	case unheard(s, p):
		return v1.PhaseDegraded
	case !serves(s, p):
		return v1.PhaseDown
	case volumeTrouble(s, p.Leadership.Leader) != nil:
		return v1.PhaseDegraded
	case (!all || p.Working != nil) && (d.Status.Phase == v1.PhaseCreating || d.Status.Phase == v1.PhasePending || d.Status.Phase == ""):
		return v1.PhaseCreating
	case p.Working != nil:
		return v1.PhaseChanging
	case !all:
		return v1.PhaseDegraded
	default:
		return v1.PhaseRunning
	}
}

// allReady says that a primary serves, that its commits wait for nobody who is not there, and that every instance that was asked for is
// ready, fenced ones apart: those are down because someone asked for that, too, but they are not ready.
func allReady(s Seen, p Plan, status v1.DatabaseStatus) bool {
	if !serves(s, p) || waitsForReplicas(s, p) {
		return false
	}
	ready := map[string]bool{}
	for _, i := range status.Instances {
		ready[i.Name] = i.Ready
	}
	for _, name := range p.Wanted {
		if !ready[name] {
			return false
		}
	}
	return len(p.Wanted) == int(replicas(s.Database))
}
