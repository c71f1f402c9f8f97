package database

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func conditions(s Seen, p Plan, acted Acted, status v1.DatabaseStatus) []metav1.Condition {
	return []metav1.Condition{ready(s, p, status), reconciling(s, p, acted), stalled(p, acted), durable(s, p)}
}

func condition(kind string, yes bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: oneLine(message)}
	if yes {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// oneLine is for tables and for `kubectl wait`: errors that were joined, and what other programs say, come in several lines.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return cut(strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "; "), maxMessage)
}

func ready(s Seen, p Plan, status v1.DatabaseStatus) metav1.Condition {
	is := func(yes bool, reason, message string) metav1.Condition {
		return condition(v1.ConditionReady, yes, reason, message)
	}
	if t := volumeTrouble(s, p.Leadership.Leader); t != nil {
		return is(false, t.Reason, t.Message)
	}
	switch {
	case allReady(s, p, status):
		return is(true, v1.ReasonAllReady, fmt.Sprintf("%s leads, and %s instances are ready", status.Leader, status.Ready))
	case s.Database.Spec.Maintenance.Hibernated:
		return is(false, v1.ReasonHibernated, "the instances are stopped; set spec.maintenance.hibernated to false to start them again")
	case status.Phase == v1.PhaseCreating || status.Phase == v1.PhasePending:
		return is(false, v1.ReasonCreating, fmt.Sprintf("%s instances are ready", status.Ready))
	case unheard(s, p):
		return metav1.Condition{
			Type: v1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1.ReasonLeaderSilent,
			Message: fmt.Sprintf("whether %s takes writes is not known: %s", status.Leader, silentWords),
		}
	case waitsForReplicas(s, p):
		return is(false, v1.ReasonNoMajority, writesWait)
	case !serves(s, p) && olderLease(s) != "":
		return is(false, v1.ReasonLeaseOlder, olderLease(s))
	case !serves(s, p) && lostMajority(s, p.Leadership) != "":
		return is(false, v1.ReasonMajorityLost, lostMajority(s, p.Leadership))
	case !serves(s, p) && p.Leadership.Degraded:
		return is(false, v1.ReasonNoPrimary, fmt.Sprintf("no instance takes writes: %s alone is known to hold the newest ones, so no other may lead until it is back", p.Leadership.Leader)+leaderless(s, v1.ReasonOnlyLastLeader))
	case !serves(s, p):
		return is(false, v1.ReasonNoPrimary, "no instance takes writes"+cmp.Or(leaderless(s), "; status.instances shows what each waits for")+perhapsLost(s, p.Leadership))
	default:
		return is(false, v1.ReasonInstancesNotReady, fmt.Sprintf("%s instances are ready: waiting for %s", status.Ready, listed(notReady(p, status))))
	}
}

// volumeTrouble says that an instance cannot write for want of a volume that takes it; nil if it can.
func volumeTrouble(s Seen, name string) *Finding {
	r := s.report(name)
	if r == nil || r.Reason != v1.ReasonVolumeFull && r.Reason != v1.ReasonVolumeHangs {
		return nil
	}
	return &Finding{r.Reason, name + ": " + r.Problem}
}

func notReady(p Plan, status v1.DatabaseStatus) []string {
	var out []string
	for _, name := range p.Wanted {
		if !slices.ContainsFunc(status.Instances, func(i v1.InstanceStatus) bool { return i.Name == name && i.Ready }) {
			out = append(out, name)
		}
	}
	return out
}

func reconciling(s Seen, p Plan, acted Acted) metav1.Condition {
	is := func(yes bool, reason, message string) metav1.Condition {
		return condition(v1.ConditionReconciling, yes, reason, message)
	}
	switch {
	case s.Database.Spec.Maintenance.Paused:
		return is(false, v1.ReasonPaused, "the operator changes nothing; set spec.maintenance.paused to false to let it act again")
	case acted.Foreign == nil && acted.Err != nil:
		return is(true, v1.ReasonChanging, "trying again: "+acted.Err.Error())
	case p.Working != nil:
		return is(true, p.Working.Reason, p.Working.Message)
	case s.Database.Spec.Maintenance.Hibernated:
		return is(false, v1.ReasonHibernated, "the instances are stopped and the volumes are kept")
	default:
		return is(false, v1.ReasonSettled, settledMessage(p))
	}
}

func settledMessage(p Plan) string {
	if len(p.Absent) > 0 {
		return "nothing is to do; to be fenced, but no instance: " + listed(p.Absent)
	}
	return "nothing is to do"
}

func stalled(p Plan, acted Acted) metav1.Condition {
	switch {
	case p.Stalled != nil:
		return condition(v1.ConditionStalled, true, p.Stalled.Reason, p.Stalled.Message)
	case acted.Issuer != nil:
		return condition(v1.ConditionStalled, true, acted.Issuer.Reason, acted.Issuer.Message)
	case acted.Foreign != nil && acted.Foreign.Kind == "Secret":
		return condition(v1.ConditionStalled, true, v1.ReasonSecretConflict, acted.Foreign.Error())
	case acted.Foreign != nil:
		return condition(v1.ConditionStalled, true, v1.ReasonNameConflict, acted.Foreign.Error())
	default:
		return condition(v1.ConditionStalled, false, v1.ReasonSettled, "nothing waits for a person")
	}
}

func durable(s Seen, p Plan) metav1.Condition {
	leader := s.report(p.Leadership.Leader)
	mode := synchronous(s.Database)
	switch {
	case leader == nil || leader.Role != engine.Primary:
		return metav1.Condition{Type: v1.ConditionDurable, Status: metav1.ConditionUnknown, Reason: v1.ReasonNoPrimary, Message: "no primary says how its writes are held"}
	case mode == v1.SynchronousNone:
		return condition(v1.ConditionDurable, false, v1.ReasonAsynchronous, "writes wait for no replica, as asked: the newest can be lost with the primary")
	case leader.InSync >= leader.SyncWanted && leader.SyncWanted > 0 && p.Leadership.Degraded:
		return condition(v1.ConditionDurable, false, v1.ReasonNoMajority, fmt.Sprintf("replicas are catching up with what %s acknowledged alone; no other instance may lead until one holds all of it", p.Leadership.Leader))
	case leader.InSync >= leader.SyncWanted && leader.SyncWanted > 0:
		return condition(v1.ConditionDurable, true, v1.ReasonMajority, inStep(leader.InSync, leader.SyncWanted))
	case leader.SyncWanted == 0:
		return condition(v1.ConditionDurable, false, v1.ReasonNoMajority, "the leader is the only voter: writes wait for no replica until one has joined again")
	case mode == v1.SynchronousPreferred && p.Leadership.Degraded:
		return condition(v1.ConditionDurable, false, v1.ReasonNoMajority, fmt.Sprintf("too few replicas are in step: writes go on, and %s alone is known to hold the newest; no other instance may lead until one has caught up", p.Leadership.Leader))
	case mode == v1.SynchronousPreferred:
		return condition(v1.ConditionDurable, false, v1.ReasonNoMajority, "too few replicas are in step: writes wait until the Lease says that the leader goes on without them")
	default:
		return condition(v1.ConditionDurable, false, v1.ReasonNoMajority, writesWait)
	}
}

const writesWait = "too few replicas are in step: writes wait for one that is"

// waitsForReplicas says that what is written now is not acknowledged before another replica is in step.
func waitsForReplicas(s Seen, p Plan) bool {
	leader := s.report(p.Leadership.Leader)
	return leader != nil && leader.Role == engine.Primary && leader.Ready && synchronous(s.Database) == v1.SynchronousRequired && leader.InSync < leader.SyncWanted
}

// inStep says how many replicas follow closely, and how many of them a write waits for.
func inStep(replicas, waits int) string {
	switch {
	case replicas == 1:
		return "1 replica is in step, and each write waits for it"
	case replicas == 2 && waits == 2:
		return "2 replicas are in step, and each write waits for both"
	case replicas == waits:
		return fmt.Sprintf("%d replicas are in step, and each write waits for all of them", replicas)
	default:
		return fmt.Sprintf("%d replicas are in step, and each write waits for %d of them", replicas, waits)
	}
}
