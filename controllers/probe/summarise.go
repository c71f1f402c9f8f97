package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

const (
	// maxNodes bounds the nodes of a status.
	maxNodes = 100
	// maxMessage bounds others' words.
	maxMessage = 1024
)

// summarise tells how things are. It is pure.
func summarise(s Seen, p Plan, acted error, now time.Time) v1.ProbeStatus {
	status := *s.Probe.Status.DeepCopy()
	status.ObservedGeneration = s.Probe.Generation
	status.Ready = readyOf(s)
	all := nodes(s)
	status.Nodes = all[:min(len(all), maxNodes)]
	status.UnlistedNodes = int32(len(all) - len(status.Nodes) + s.Unseen) //nolint:gosec // nodes of one cluster
	for _, c := range []metav1.Condition{readiness(s, p, acted, all), reconciling(s, acted), stalled(p, acted)} {
		c.ObservedGeneration = s.Probe.Generation
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		c.Message = cut(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func readyOf(s Seen) string {
	if s.DaemonSet == nil {
		return "0/0"
	}
	return fmt.Sprintf("%d/%d", s.DaemonSet.Status.NumberReady, s.DaemonSet.Status.DesiredNumberScheduled)
}

// nodes that a probe runs on, those first that do not measure all.
func nodes(s Seen) []v1.NodeStatus {
	var out []v1.NodeStatus
	for i := range s.Pods {
		if pod := &s.Pods[i]; pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			out = append(out, node(s, pod))
		}
	}
	slices.SortFunc(out, func(a, b v1.NodeStatus) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Name, b.Name))
	})
	// A pod that ends may lie beside the one that comes.
	return slices.CompactFunc(out, func(a, b v1.NodeStatus) bool { return a.Name == b.Name })
}

func rank(state v1.NodeState) int {
	return slices.Index([]v1.NodeState{v1.NodeSilent, v1.NodePartly, v1.NodeWaits, v1.NodeMeasures}, state)
}

func node(s Seen, pod *corev1.Pod) v1.NodeStatus {
	heard, asked := s.Heard[pod.Name]
	switch {
	case !asked:
		return v1.NodeStatus{Name: pod.Spec.NodeName, State: v1.NodeSilent, Message: cut(waitsFor(pod))}
	case heard.Err != nil:
		return v1.NodeStatus{Name: pod.Spec.NodeName, State: v1.NodeSilent, Message: cut(heard.Err.Error())}
	}
	out := heard.Status
	out.Name, out.Message = pod.Spec.NodeName, cut(out.Message)
	return out
}

// waitsFor says why a pod is not ready, in the words of whom it waits for.
func waitsFor(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.LastTerminationState.Terminated != nil:
			return c.State.Waiting.Reason + ": " + cmp.Or(c.LastTerminationState.Terminated.Message, c.State.Waiting.Message)
		case c.State.Waiting != nil && c.State.Waiting.Message != "":
			return c.State.Waiting.Reason + ": " + c.State.Waiting.Message
		case c.State.Terminated != nil:
			return c.State.Terminated.Reason + ": " + c.State.Terminated.Message
		}
	}
	return "its pod " + pod.Name + " is not ready"
}

func condition(kind string, yes bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if yes {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func readiness(s Seen, p Plan, acted error, all []v1.NodeStatus) metav1.Condition {
	is := func(yes bool, reason, message string) metav1.Condition {
		return condition(v1.ConditionReady, yes, reason, message)
	}
	first := len(all) > 0 && all[0].State != v1.NodeMeasures
	switch {
	case s.Probe.Spec.Mode == v1.ProbeOff:
		return is(false, v1.ReasonProbeOff, "nothing is measured: spec.mode is Off")
	case p.Refused != "":
		return is(false, v1.ReasonInvalidSpec, p.Refused)
	case s.DaemonSet == nil && acted != nil:
		return is(false, v1.ReasonNodesNotReady, acted.Error())
	case s.DaemonSet == nil || !current(s) && len(all) == 0:
		return is(false, v1.ReasonNodesNotReady, "the probes are being made")
	case s.DaemonSet.Status.DesiredNumberScheduled == 0:
		return is(false, v1.ReasonNoNodes, "no node is chosen: see spec.nodeSelector and spec.tolerations")
	case len(all)+s.Unseen < int(s.DaemonSet.Status.DesiredNumberScheduled):
		return is(false, v1.ReasonNodesNotReady, fmt.Sprintf("%d of %d probes have a pod; if it stays so, see the events of DaemonSet %s in namespace %s",
			len(all), s.DaemonSet.Status.DesiredNumberScheduled, desired.ProbeName, v1.ProbeNamespace))
	case first && all[0].State == v1.NodeSilent:
		return is(false, v1.ReasonNodesNotReady, words(all, v1.NodeSilent))
	case first && all[0].State == v1.NodePartly:
		return is(false, v1.ReasonNodesPartly, words(all, v1.NodePartly))
	case first:
		return is(false, v1.ReasonNodesNotReady, words(all, v1.NodeWaits))
	}
	return is(true, v1.ReasonAllReady, fmt.Sprintf("all instances of %d nodes are measured", len(all)))
}

// words name how many nodes are in a state, and what the first says.
func words(all []v1.NodeStatus, state v1.NodeState) string {
	n, said := 0, ""
	for _, node := range all {
		if node.State != state {
			continue
		}
		if n++; n == 1 {
			said = node.Name + ": " + cmp.Or(node.Message, strings.ToLower(string(state)))
		}
	}
	return fmt.Sprintf("%d of %d nodes: %s", n, len(all), said)
}

// current says that the DaemonSet's controller has seen its newest spec.
func current(s Seen) bool { return s.DaemonSet.Status.ObservedGeneration >= s.DaemonSet.Generation }

func reconciling(s Seen, acted error) metav1.Condition {
	is := func(yes bool, message string) metav1.Condition {
		reason := v1.ReasonSettled
		if yes {
			reason = v1.ReasonChanging
		}
		return condition(v1.ConditionReconciling, yes, reason, message)
	}
	d := s.DaemonSet
	switch {
	case acted != nil && !final(acted):
		return is(true, "trying again: "+acted.Error())
	case s.Probe.Spec.Mode == v1.ProbeOff && d != nil:
		return is(true, "the probes are being removed")
	case s.Probe.Spec.Mode != v1.ProbeOff && d != nil && (!current(s) || d.Status.UpdatedNumberScheduled < d.Status.DesiredNumberScheduled):
		return is(true, fmt.Sprintf("%d of %d probes are as asked for", d.Status.UpdatedNumberScheduled, d.Status.DesiredNumberScheduled))
	}
	return is(false, "nothing is being changed")
}

func stalled(p Plan, acted error) metav1.Condition {
	switch foreign := (*ssa.ForeignError)(nil); {
	case p.Refused != "":
		return condition(v1.ConditionStalled, true, v1.ReasonInvalidSpec, p.Refused)
	case errors.As(acted, &foreign):
		return condition(v1.ConditionStalled, true, v1.ReasonNameConflict, acted.Error())
	case final(acted):
		return condition(v1.ConditionStalled, true, v1.ReasonInvalidSpec, acted.Error())
	}
	return condition(v1.ConditionStalled, false, v1.ReasonSettled, "nothing waits for a person")
}

// final says that to try again is of no use until a person has done something.
func final(acted error) bool {
	foreign := (*ssa.ForeignError)(nil)
	return errors.As(acted, &foreign) || apierrors.IsInvalid(acted)
}

// cut makes one line of others' words, and bounds it.
func cut(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\ufffd")
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}
