package database

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// The driver's and the agent's words for an instance whose volume holds no data.
const (
	saysNoPrimary = "NoPrimary"
	saysDataLost  = "DataLost"
)

// recovery is an order for one agent.
type recovery struct {
	target string
	order  engine.Recovery
}

// recoverRequest hands the order of a person to the instance that was named. The manager writes no Lease: the agent does, and only over
// the version on which the loss was accepted, after all others that run have said that they know of no leader.
func (d *draft) recoverRequest() bool {
	r, goOn := d.open(kindRecover, d.seen.Database.Annotations[v1.AnnotationRecover])
	if !goOn {
		return true
	}
	answer, answers := d.recoverAnswer(r)
	wrong, waits := d.unrecoverable(r), d.recoverWaits(r)
	switch {
	case answers && answer.State != string(v1.RequestRunning):
		d.say(r, v1.RequestState(answer.State), answer.Message)
	case d.Leadership.Recovered.ID == r.ID && serves(d.seen, d.Plan):
		d.say(r, v1.RequestDone, fmt.Sprintf("%s leads with epoch %d", d.Leadership.Leader, d.Leadership.Epoch))
	case wrong != "" && d.Leadership.Recovered.ID != r.ID:
		d.say(r, v1.RequestFailed, wrong)
	case d.now.After(r.Expires.Add(grace)) || d.now.After(r.Expires) && !answers:
		d.say(r, v1.RequestExpired, "it was not begun in time"+waits)
	default:
		d.say(r, v1.RequestRunning, strings.TrimPrefix(answer.Message+waits, "; "))
		d.work(v1.ReasonChanging, "giving the lead to %s as requested, after the loss of a majority%s", r.Target, waits)
		d.recovery = &recovery{r.Target, engine.Recovery{
			ID: r.ID, LeaseVersion: r.LeaseVersion, Lost: d.notRunning(r.Target), Within: r.Expires.Sub(d.started(r)).Milliseconds(),
		}}
		d.LookAgain = soonest(d.LookAgain, r.Expires.Sub(d.now)+grace)
	}
	return true
}

// recoverAnswer is what the named instance itself says.
func (d *draft) recoverAnswer(r *request) (engine.Answer, bool) {
	report := d.seen.report(r.Target)
	if report == nil {
		return engine.Answer{}, false
	}
	i := slices.IndexFunc(report.Requests, func(a engine.Answer) bool { return a.ID == r.ID })
	if i < 0 {
		return engine.Answer{}, false
	}
	return report.Requests[i], true
}

// unrecoverable is what makes the request wrong by what the manager sees; empty if nothing does.
func (d *draft) unrecoverable(r *request) string {
	off := fenced(d.seen.Database)
	switch {
	case !r.AcceptLoss:
		return "acceptLoss is not true: what the instance lacks would be lost"
	case r.LeaseVersion == "":
		return "leaseVersion is missing: the resourceVersion of the Lease on which the loss was accepted"
	case r.Target == "" || !d.wants(r.Target):
		return fmt.Sprintf("there is no instance %q", r.Target)
	case off[r.Target] || off["*"]:
		return r.Target + " is fenced: unfence it first"
	}
	for _, name := range sortedKeys(d.seen.Heard) {
		// One that leads by an epoch that the Lease, as it is known here, does not have may do so by this very request.
		if report := d.seen.report(name); report.Leading && (name != r.Target || report.Epoch <= recordIn(d.seen.Lease).Epoch) {
			return fmt.Sprintf("%s leads with epoch %d: nothing is lost", name, report.Epoch)
		}
	}
	return ""
}

// recoverWaits is what the request waits for, to be said behind another word.
func (d *draft) recoverWaits(r *request) string {
	if d.seen.report(r.Target) == nil {
		return "; the agent of " + r.Target + " is not heard"
	}
	for _, name := range d.whoMayLead() {
		if name != r.Target && d.seen.report(name) == nil && podReady(d.podOf(name)) {
			may := "it may lead"
			if name == d.Leadership.Witness {
				may = "a leader may count on it"
			}
			return fmt.Sprintf("; %s is not heard, and the kubelet finds it ready: %s. Delete its pod if it does not run", name, may)
		}
	}
	return ""
}

// notRunning are the members that the manager does not hear and the kubelet does not find ready. A kubelet that is silent itself is
// believed to be gone after the cluster's own time for that; the person who accepts the loss vouches for the rest.
func (d *draft) notRunning(target string) []string {
	var out []string
	for _, name := range d.whoMayLead() {
		if name != target && d.seen.report(name) == nil && !podReady(d.podOf(name)) {
			out = append(out, name)
		}
	}
	return out
}

// podOf a member, the witness among them: its grant keeps a leader as any other's does. Nil without one.
func (d *draft) podOf(name string) *corev1.Pod {
	if pod := d.seen.Pods[name]; pod != nil {
		return pod
	}
	return d.seen.Witnesses[name]
}

func (d *draft) whoMayLead() []string {
	return byOrdinal(d.seen.Database.Name, slices.Concat(d.Leadership.Voters, d.Wanted))
}

// lostMajority says that so many voters have lost their data that nobody can be elected, and what to do; empty if that is not so, or not
// known. The last leader can be elected with voters that hold none: it has all.
func lostMajority(s Seen, l Leadership) string {
	var lost []string
	for _, name := range l.Voters {
		if name != l.Witness && hasLostData(s, name) { // which never had any
			lost = append(lost, name)
		}
	}
	only := l.Degraded && slices.Contains(lost, l.Leader) // nobody else may be elected
	if !only && len(l.Voters)-len(lost) >= len(l.Voters)/2+1 || !slices.Contains(lost, l.Leader) {
		return ""
	}
	said := fmt.Sprintf("%s of the voters %s have lost their data, with the leader's: nobody can be elected", listed(lost), listed(l.Voters))
	if len(l.Voters) == 1 {
		said = l.Leader + " has lost its data, and is the only voter: nobody can be elected"
	}
	if only {
		said = fmt.Sprintf("%s has lost its data, and it alone was known to hold the newest writes: nobody else can be elected", l.Leader)
	}
	best := mostAdvanced(s)
	if best == "" {
		return said + ". No instance is heard of that holds data: bring a volume's content back from a backup"
	}
	return fmt.Sprintf("%s. If they are lost for good: kubectl plimsoll recover %s -n %s --from %s shows what would be lost", said, s.Database.Name, s.Database.Namespace, best)
}

// olderLease says that instances would take over and may not, because the Lease is not the newest that they saw, and what to do. It does
// not pass by itself: what the newest said is not known any more, and who led by it may not lead by this one either.
func olderLease(s Seen) string {
	var aside []string
	for _, name := range sortedKeys(s.Heard) {
		r := s.Heard[name].Report
		if r.Leading {
			return ""
		}
		if r.Reason == v1.ReasonLeaseOlder {
			aside = append(aside, name)
		}
	}
	best := mostAdvanced(s)
	if len(aside) == 0 || best == "" {
		return ""
	}
	return fmt.Sprintf("the Lease is missing or older than what %s saw there: it was deleted, or etcd was restored from a backup, and no leader is left to repair it. kubectl plimsoll recover %s -n %s --from %s shows what would be lost; start the other instances first, one of them may have got further",
		listed(aside), s.Database.Name, s.Database.Namespace, best)
}

// perhapsLost is a hint where too few voters are heard of with data, and nobody knows whether the others come back.
func perhapsLost(s Seen, l Leadership) string {
	there := 0
	for _, name := range l.Voters {
		if r := s.report(name); r != nil && (r.Position.Timeline > 0 || name == l.Witness) {
			there++
		}
	}
	best := mostAdvanced(s)
	if best == "" || there >= len(l.Voters)/2+1 || s.report(l.Leader) != nil && !hasLostData(s, l.Leader) {
		return ""
	}
	return fmt.Sprintf(". Of the voters %s too few are there: bring one back; if a majority is lost for good, kubectl plimsoll recover %s -n %s --from %s shows what would be lost", listed(l.Voters), s.Database.Name, s.Database.Namespace, best)
}

// hasLostData by the instance's own word, or because its volume is gone.
func hasLostData(s Seen, name string) bool {
	if r := s.report(name); r != nil {
		return r.Reason == saysNoPrimary || r.Reason == saysDataLost
	}
	return s.Claims[name] == nil
}

// mostAdvanced is the instance that is heard of and has got furthest; empty if none has data.
func mostAdvanced(s Seen) string {
	best := ""
	var at engine.Position
	for _, name := range sortedKeys(s.Heard) {
		p := s.Heard[name].Report.Position
		if p.Timeline > at.Timeline || p.Timeline == at.Timeline && p.Bytes > at.Bytes {
			best, at = name, p
		}
	}
	return best
}
