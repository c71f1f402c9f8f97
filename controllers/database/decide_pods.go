package database

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

// hibernate stops the servers, the replicas' first so that the primary's last write is not one that a replica lacks unseen, then
// removes the pods. The volumes stay.
func (d *draft) hibernate() bool {
	if !d.seen.Database.Spec.Maintenance.Hibernated {
		return true
	}
	if len(d.seen.Pods) > 0 {
		d.work(v1.ReasonChanging, "stopping %d instances", len(d.seen.Pods))
	}
	for _, name := range sortedKeys(d.seen.Pods) {
		if d.allStopped() && d.seen.Pods[name].DeletionTimestamp == nil {
			d.remove(name, "the Database is hibernated")
		}
	}
	for _, name := range sortedKeys(d.seen.Witnesses) {
		if d.allStopped() {
			d.dismiss(name, "the Database is hibernated")
		}
	}
	d.aims()
	return false
}

// fences tells of those that fence nothing: a server runs that somebody may believe stopped. It comes last, so that it hides nothing
// that keeps the Database from serving.
func (d *draft) fences() {
	db := d.seen.Database
	if db.DeletionTimestamp != nil {
		return
	}
	if wrong := policy.WrongFences(db); wrong != "" && d.Stalled == nil {
		d.Stalled = &Finding{v1.ReasonInvalidAnnotation, wrong}
	}
	for _, name := range policy.AbsentFences(db) {
		if d.seen.Claims[name] == nil && !slices.Contains(d.Instances, name) && !d.wants(name) {
			d.Absent = append(d.Absent, name)
		}
	}
}

// stops says whether an instance's server is to be stopped.
func (d *draft) stops(name string) bool {
	off := fenced(d.seen.Database)
	if off[name] || off["*"] {
		return true
	}
	if !d.seen.Database.Spec.Maintenance.Hibernated {
		return false
	}
	return name != d.Leadership.Leader || d.allStopped(name)
}

// allStopped says that every server is, but those of the instances that are named. A silent instance has nobody left to wait for.
func (d *draft) allStopped(except ...string) bool {
	for name := range d.seen.Pods {
		r := d.seen.report(name)
		if r != nil && r.Role != engine.Stopped && r.State != "stopped" && r.State != "fenced" && !slices.Contains(except, name) {
			return false
		}
	}
	return true
}

// pods makes those that are missing, and clears away those that ended for good.
func (d *draft) pods() bool {
	for _, name := range d.Wanted {
		pod := d.seen.Pods[name]
		switch {
		case pod == nil && d.mayExist(name) && !d.volumeGoing(name):
			d.Pods = append(d.Pods, desired.Pod(d.Inputs, d.instance(name)))
			d.work(d.madeReason(), "starting %s", name)
		case pod == nil:
			d.work(d.madeReason(), "%s waits for the first instance", name)
		case pod.DeletionTimestamp != nil:
			// A pod of a silent node stays so until the node is back or gone for certain: nothing else may take its volume.
			d.work(d.madeReason(), "waiting for the old pod of %s to end", name)
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			d.remove(name, "its pod ended: "+ended(pod))
		}
	}
	return true
}

func (d *draft) madeReason() string {
	if bootstrapped(d.seen.Database) {
		return v1.ReasonChanging
	}
	return v1.ReasonCreating
}

func (d *draft) volumeGoing(name string) bool {
	for _, claim := range []string{name, desired.WALClaimName(name)} {
		if c := d.seen.Claims[claim]; c != nil && c.DeletionTimestamp != nil {
			return true
		}
	}
	return false
}

func ended(pod *corev1.Pod) string {
	if pod.Status.Reason != "" {
		return pod.Status.Reason
	}
	return string(pod.Status.Phase)
}

func (d *draft) remove(name, why string) {
	d.Remove = append(d.Remove, Removal{Object: d.seen.Pods[name], Why: why})
	d.work(v1.ReasonChanging, "replacing %s: %s", name, why)
}

// shrink removes an instance that the topology has no more, once the leader has taken its vote away.
func (d *draft) shrink() bool {
	if d.Leadership.Epoch == 0 && !d.neverLed() {
		return true // the Lease is gone: who votes is unknown until the leader has written it again
	}
	for _, name := range d.Instances {
		if d.wants(name) {
			continue
		}
		pod := d.seen.Pods[name]
		switch {
		case d.votes(name):
			d.work(v1.ReasonChanging, "removing %s: waiting for %s to take its vote away", name, orUnknown(d.Leadership.Leader))
		case pod != nil && pod.DeletionTimestamp == nil:
			d.Remove = append(d.Remove, Removal{Object: pod, Why: "fewer replicas are wanted"})
			d.work(v1.ReasonChanging, "removing %s", name)
		case pod != nil:
			d.work(v1.ReasonChanging, "removing %s: waiting for its pod to end", name)
		}
	}
	d.dropClaims()
	return true
}

// votes says that an instance counts in majorities by the Lease or by the leader's own word, whichever is behind.
func (d *draft) votes(name string) bool {
	if d.Leadership.votes(name) {
		return true
	}
	leader := d.seen.report(d.Leadership.Leader)
	return leader != nil && slices.Contains(leader.Voters, name)
}

func orUnknown(name string) string {
	if name == "" {
		return "a leader"
	}
	return name
}

// dropClaims deletes the volumes of removed instances where the policy says so. They are those of this Database whose instance
// has no pod, no vote and no place.
func (d *draft) dropClaims() {
	if d.seen.Database.Spec.DeletionPolicy != v1.DeletionDelete || d.Leadership.Epoch == 0 {
		return
	}
	for _, name := range sortedKeys(d.seen.Claims) {
		claim := d.seen.Claims[name]
		instance := claim.Labels[v1.LabelInstance]
		if ordinalOf(d.seen.Database.Name, instance) == 0 || slices.Contains(d.Instances, instance) || d.wants(instance) || claim.DeletionTimestamp != nil {
			continue
		}
		d.Remove = append(d.Remove, Removal{Object: claim, Why: "its instance was removed and spec.deletionPolicy is Delete"})
	}
}

// outdated says that a pod was made from another spec than it would be now.
func (d *draft) outdated(name string) bool {
	pod := d.seen.Pods[name]
	return pod != nil && pod.DeletionTimestamp == nil && desired.PodHash(pod) != desired.PodHash(desired.Pod(d.Inputs, d.instance(name)))
}

// broken says that the kubelet and the agent agree that an instance does not serve: replacing it makes nothing worse.
func (d *draft) broken(name string) bool {
	pod, r := d.seen.Pods[name], d.seen.report(name)
	return pod != nil && !podReady(pod) && (r == nil || !r.Ready)
}

// adrift says that an instance serves and the leader does not count it: its new pod may be the cure, and is missed by nobody.
func (d *draft) adrift(name string) bool {
	return d.serves(name) && d.seen.report(d.Leadership.Leader) != nil && !d.inStep(name)
}

// idle says that no process of an instance's server can run: its pod has not got so far, or its container is between two failures.
func (d *draft) idle(name string) bool {
	pod := d.seen.Pods[name]
	if pod == nil || podReady(pod) || d.seen.report(name) != nil {
		return false
	}
	if pod.Status.Phase == corev1.PodPending {
		return true
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == desired.DatabaseContainer {
			return c.State.Waiting != nil || c.State.Terminated != nil
		}
	}
	return false
}

// findings tells of pods that cannot start and of servers that fail.
func (d *draft) findings() bool {
	if lost := lostMajority(d.seen, d.Leadership); lost != "" && bootstrapped(d.seen.Database) {
		d.stall(v1.ReasonMajorityLost, "%s", lost)
	}
	if older := olderLease(d.seen); older != "" {
		d.stall(v1.ReasonLeaseOlder, "%s", older)
	}
	for _, name := range byOrdinal(d.seen.Database.Name, sortedKeys(d.seen.Pods)) {
		pod := d.seen.Pods[name]
		if pod.DeletionTimestamp != nil {
			continue
		}
		if image, message, bad := imageProblem(pod); bad {
			d.stall(v1.ReasonImagePull, "%s: image %s cannot be pulled: %s; correct spec.image, spec.version or spec.imagePullSecrets", name, image, message)
		}
		d.containers(name, pod)
		if c := podCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			d.stall(v1.ReasonUnschedulable, "%s: %s; add nodes, lower spec.resources or relax spec.scheduling", name, c.Message)
		}
		if r := d.seen.report(name); r != nil && r.State == "failed" {
			d.stall(v1.ReasonServerFailed, "%s: %s", name, r.Problem)
		}
	}
	for _, name := range d.Wanted {
		if d.seen.Pods[name] != nil && !d.Leadership.votes(name) {
			d.work(d.madeReason(), "waiting for %s to get a vote", name)
		}
	}
	return true
}

// containers tells of one that cannot start, once it is no matter of a moment. An agent that is heard of speaks for itself.
func (d *draft) containers(name string, pod *corev1.Pod) {
	t := containerTroubleOf(pod, d.now)
	if t == nil || d.seen.report(name) != nil {
		return
	}
	if t.Lasting {
		d.stall(v1.ReasonContainerFailed, "%s: %s; correct spec.image or spec.version, or what kubectl describe pod %s names", name, t.Words, name)
		return
	}
	d.LookAgain = soonest(d.LookAgain, t.Look)
}

// imageProblem is the kubelet's word about an image that it cannot get.
func imageProblem(pod *corev1.Pod) (image, message string, bad bool) {
	for _, c := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		if c.State.Waiting == nil {
			continue
		}
		switch c.State.Waiting.Reason {
		case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
			return c.Image, pullMessage(c.State.Waiting.Message, c.State.Waiting.Reason), true
		}
	}
	return "", "", false
}

// pullMessage is the cause in the kubelet's words. It alternates between the error and the pause after it, which repeats the error;
// what people read should stay the same.
func pullMessage(message, reason string) string {
	if _, cause, ok := strings.Cut(message, ": ErrImagePull: "); ok {
		return cause
	}
	if message == "" {
		return reason
	}
	return message
}
