package database

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

const (
	// witnessPatience is how long a witness may be silent and not ready before another one is made.
	witnessPatience = 30 * time.Second
	// witnessNames is how many names there are. A name comes again only after all others, so that a pod which still runs on a node that
	// nobody hears, though the cluster has forgotten it, is not taken for its successor; and no more Secrets than that are left behind.
	witnessNames = 99
)

// wantsWitness says that the Database should have a third voter without data.
func wantsWitness(d *v1.Database) bool {
	return replicas(d) == 2 && d.Spec.Replication.Witness != v1.WitnessNone
}

// witness keeps one beside two instances. A pod that is lost, on its way out, or beside an instance gets a successor, of another name;
// the leader exchanges their votes, and who has none goes.
func (d *draft) witness() bool {
	if d.Leadership.Epoch == 0 || !bootstrapped(d.seen.Database) {
		return true
	}
	if wantsWitness(d.seen.Database) {
		d.seat = d.bestWitness()
		if next := nextWitness(d.seen, d.Leadership); next != "" && d.needsWitness() {
			d.Pods = append(d.Pods, desired.Witness(d.Inputs, next))
		}
	}
	for _, name := range sortedKeys(d.seen.Witnesses) {
		switch pod := d.seen.Witnesses[name]; {
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			d.dismiss(name, "its pod ended: "+ended(pod))
		case name != d.seat && !d.votes(name) && !d.rising(name):
			d.dismiss(name, "it is no witness any more")
		}
	}
	return true
}

// bestWitness is who should have the vote: the one that has it while it is well, else one that could take it.
func (d *draft) bestWitness() string {
	now := d.Leadership.Witness
	if d.wellWitness(now) {
		return now
	}
	for _, name := range sortedKeys(d.seen.Witnesses) {
		if name != now && d.wellWitness(name) && podReady(d.seen.Witnesses[name]) {
			return name
		}
	}
	if d.seen.Witnesses[now] != nil {
		return now // better than none: it may be back
	}
	return ""
}

// needsWitness says that there is none that is well, or on its way.
func (d *draft) needsWitness() bool {
	for name := range d.seen.Witnesses {
		if d.wellWitness(name) {
			return false
		}
	}
	return true
}

// rising says that a witness is to take the vote of one that is not well.
func (d *draft) rising(name string) bool {
	return wantsWitness(d.seen.Database) && d.wellWitness(name) && !d.wellWitness(d.Leadership.Witness)
}

// wellWitness says that there is such a witness, and that nothing asks for another one.
func (d *draft) wellWitness(name string) bool {
	pod := d.seen.Witnesses[name]
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if desired.PodHash(pod) != desired.PodHash(desired.Witness(d.Inputs, name)) {
		return false
	}
	if !podReady(pod) && d.seen.report(name) == nil {
		if c := podCondition(pod, corev1.PodReady); !c.LastTransitionTime.IsZero() && pod.Spec.NodeName != "" {
			if still := d.now.Sub(c.LastTransitionTime.Time); still >= witnessPatience {
				return false
			}
			d.LookAgain = soonest(d.LookAgain, witnessPatience)
		}
	}
	for _, member := range d.seen.Pods {
		if member.Spec.NodeName != "" && member.Spec.NodeName == pod.Spec.NodeName {
			return false // an instance was placed beside it: a node would take the majority with it
		}
	}
	return true
}

func (d *draft) dismiss(name, why string) {
	if pod := d.seen.Witnesses[name]; pod.DeletionTimestamp == nil {
		d.Remove = append(d.Remove, Removal{Object: pod, Why: why})
	}
}

// nextWitness is the name of the next one to make; empty where none is wanted.
func nextWitness(s Seen, l Leadership) string {
	db := s.Database
	if !wantsWitness(db) {
		return ""
	}
	last := witnessOf(db.Name, l.Witness)
	if w := db.Status.Witness; w != nil {
		last = max(last, witnessOf(db.Name, w.Name))
	}
	for name := range s.Witnesses {
		last = max(last, witnessOf(db.Name, name))
	}
	next := desired.WitnessName(db.Name, last%witnessNames+1)
	if s.Witnesses[next] != nil || slices.Contains(l.Voters, next) {
		return ""
	}
	return next
}

// witnessStatus tells of the witness, and what it waits for.
func witnessStatus(s Seen, p Plan, old *v1.WitnessStatus) *v1.WitnessStatus {
	if !wantsWitness(s.Database) && p.Leadership.Witness == "" {
		return nil
	}
	name := p.Leadership.Witness
	for other := range s.Witnesses {
		if witnessOf(s.Database.Name, other) > witnessOf(s.Database.Name, name) {
			name = other
		}
	}
	for _, pod := range p.Pods {
		if witnessOf(s.Database.Name, pod.Name) > 0 {
			name = pod.Name
		}
	}
	if name == "" && old != nil {
		name = old.Name
	}
	if name == "" {
		return nil
	}
	w := &v1.WitnessStatus{Name: name, Voter: p.Leadership.votes(name)}
	pod := s.Witnesses[name]
	if pod == nil {
		w.Message = "its pod is being made"
		return w
	}
	w.Node = pod.Spec.NodeName
	c := podCondition(pod, corev1.PodScheduled)
	switch {
	case c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable:
		w.Message = oneLine("it needs a node on which no instance runs: " + c.Message + "; until then the loss of either instance stops writes")
	case !podReady(pod):
		w.Message = "the kubelet does not find it ready"
	case !w.Voter:
		w.Message = "it waits for its vote"
	}
	return w
}
