package database

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// handOverWindow is how long one attempt at a hand-over of the manager's own lasts before another is made.
const handOverWindow = 2 * time.Minute

// roll changes one instance at a time: by a new pod where its spec changed, else by a restart of its server. The engine says
// which is next for the changes that it knows of; for the others the order is the same: broken ones, replicas, the leader.
func (d *draft) roll() bool {
	t := d.topology
	if !d.busy() && d.replaceIdle() {
		return true
	}
	held := d.busy() || d.invalid
	if !held && d.waits() {
		return true
	}
	if t.Reason != "" {
		d.work(v1.ReasonChanging, "%s", t.Reason)
	}
	if held {
		return true
	}
	switch {
	case t.Restart != "" && d.outdated(t.Restart):
		d.remove(t.Restart, "its pod's spec changed")
	case t.Restart != "":
		d.restart[t.Restart] = d.parametersToken(t.Restart)
	case t.Switchover != "":
		d.handOver("roll", t.Switchover)
	default:
		d.rollPods()
	}
	return true
}

// waits says that what the engine wants next must wait for another instance.
func (d *draft) waits() bool {
	next := d.topology.Restart
	if d.topology.Switchover != "" {
		next = d.Leadership.Leader
	}
	if next == "" {
		return false
	}
	if other := d.unconvergedBeside(next); other != "" {
		d.work(v1.ReasonChanging, "waiting for %s to take its configuration", other)
		return true
	}
	if other := d.unhealthyBeside(next); other != "" {
		d.work(v1.ReasonChanging, "%s before %s is restarted", d.lacking(other), next)
		return true
	}
	return false
}

// replaceIdle replaces an outdated pod that can lose nothing, and so waits for nobody: one without a process, and one of a Database
// that never served. Several may have got the same wrong image.
func (d *draft) replaceIdle() bool {
	for _, name := range slices.Backward(d.Wanted) {
		if d.outdated(name) && (d.idle(name) || d.broken(name) && !bootstrapped(d.seen.Database)) {
			d.remove(name, "its pod's spec changed")
			return true
		}
	}
	return false
}

// unconvergedBeside is the first wanted instance but one that has not taken its aim yet: until all have, who needs a restart is not
// known, and the leader might hand over to one that needs it as much.
func (d *draft) unconvergedBeside(name string) string {
	for _, other := range d.Wanted {
		r := d.seen.report(other)
		if other == name || r == nil {
			continue // that a silent one is waited for, or not, is the engine's answer
		}
		if revision, err := d.aim(other, r).Revision(); err != nil || r.Revision != revision || !r.Converged {
			return other
		}
	}
	return ""
}

// busy says that pods come or go already, so that nothing else may be taken down.
func (d *draft) busy() bool {
	if len(d.Pods) > 0 || len(d.Remove) > 0 {
		return true
	}
	for _, pod := range d.seen.Pods {
		if pod.DeletionTimestamp != nil {
			return true
		}
	}
	return slices.ContainsFunc(d.Instances, func(name string) bool { return !d.wants(name) })
}

func (d *draft) rollPods() {
	var stale []string
	for _, name := range slices.Backward(d.Wanted) { // the highest number first
		if d.outdated(name) {
			stale = append(stale, name)
		}
	}
	if len(stale) == 0 {
		return
	}
	for _, name := range stale {
		if (d.broken(name) || d.adrift(name)) && name != d.Leadership.Leader && d.unfitBeside(name, d.healthy) == "" || len(d.Wanted) == 1 {
			d.remove(name, "its pod's spec changed")
			return
		}
	}
	if i := slices.IndexFunc(stale, func(name string) bool { return name != d.Leadership.Leader }); i >= 0 {
		if other := d.unhealthyBeside(stale[i]); other != "" {
			d.work(v1.ReasonChanging, "%s before %s is replaced", d.lacking(other), stale[i])
			return
		}
		d.remove(stale[i], "its pod's spec changed")
		return
	}
	leader := d.Leadership.Leader
	if other := d.unhealthyBeside(leader); other != "" {
		d.work(v1.ReasonChanging, "%s before the leadership of %s is handed over", d.lacking(other), leader)
		return
	}
	if best := d.successor(); best != "" {
		d.handOver("roll", best)
		return
	}
	d.work(v1.ReasonChanging, "waiting for a replica that can take over from %s before it is replaced", leader)
}

// successor is the healthy replica that is least behind, the first by number among equals.
func (d *draft) successor() string {
	// One that will have to leave its node only where there is no other: the lead would have to move once more.
	if best := d.refuge(); best != "" {
		return best
	}
	return d.leastBehind(func(string) bool { return true })
}

func (d *draft) leastBehind(fit func(name string) bool) string {
	best, bestLag := "", int64(0)
	for _, name := range d.Wanted {
		if name == d.Leadership.Leader || !d.healthy(name) || !fit(name) {
			continue
		}
		lag := lagClass(d.seen.report(name).LagBytes) // for a few bytes no hand-over that is under way is called off for another
		if lag >= 0 && (best == "" || lag < bestLag) {
			best, bestLag = name, lag
		}
	}
	return best
}

// handOver asks the leader to hand over for a purpose of the manager's. The id comes from the time's window, so that every pass of it
// publishes the same aim, and a failed attempt is made again only in the next; and from the epoch, because an earlier leader may have
// handed over by the same words, to whomever, and what the Lease says was carried out is not begun again.
func (d *draft) handOver(purpose, target string) {
	window := d.now.Truncate(handOverWindow)
	id := fmt.Sprintf("%s-%s-%d-%d", purpose, target, d.Leadership.Epoch, window.Unix())
	d.LookAgain = soonest(d.LookAgain, window.Add(handOverWindow).Sub(d.now)+time.Second)
	d.work(v1.ReasonChanging, "handing over from %s to %s", d.Leadership.Leader, target)
	d.handover = &engine.Switchover{ID: id, Target: target, Within: handOverWindow.Milliseconds()}
}

// parametersToken changes with the configuration, so that a restart for a parameter that wants one is made once.
func (d *draft) parametersToken(name string) string {
	return "parameters-" + filesHash(d.engine.Files(d.database, d.seen.member(name, d.Leadership), d.members))
}

// restartRequest works through a request for a restart: replicas one by one, then the leader hands over and is the last.
func (d *draft) restartRequest() bool {
	r, goOn := d.open(kindRestart, d.seen.Database.Annotations[v1.AnnotationRestart])
	if !goOn {
		return true
	}
	targets := d.Wanted
	if r.Target != "" {
		if !d.wants(r.Target) {
			d.say(r, v1.RequestFailed, "there is no instance "+r.Target)
			return true
		}
		targets = []string{r.Target}
	}
	token := "request-" + r.ID
	rest := slices.DeleteFunc(slices.Clone(targets), func(name string) bool {
		report := d.seen.report(name)
		return report != nil && report.RestartDone == token
	})
	begun := len(rest) < len(targets) || d.running(r)
	switch {
	case len(rest) == 0 && d.unhealthyBeside("") == "":
		d.say(r, v1.RequestDone, "restarted "+listed(targets))
		return true
	case !begun && d.now.After(r.Expires):
		d.say(r, v1.RequestExpired, "it was not begun in time")
		return true
	}
	d.say(r, v1.RequestRunning, "")
	if len(rest) == 0 || d.busy() || len(d.restart) > 0 || d.handover != nil {
		d.work(v1.ReasonChanging, "waiting to go on with the restart %s", r.ID)
		return true
	}
	d.restartNext(rest, token, len(targets) > 1)
	return true
}

func (d *draft) restartNext(rest []string, token string, all bool) {
	next := rest[len(rest)-1]
	if i := slices.IndexFunc(rest, func(name string) bool { return name != d.Leadership.Leader }); i >= 0 {
		next = rest[i]
	}
	fit := d.healthy
	if next == d.Leadership.Leader && !all {
		fit = d.serves // writes stop in any case, and the restart may be what lets the replicas follow again
	}
	// One that is down already may be the very reason for the request.
	if other := d.unfitBeside(next, fit); other != "" {
		d.work(v1.ReasonChanging, "%s before %s is restarted", d.lacking(other), next)
		return
	}
	if best := d.successor(); next == d.Leadership.Leader && all && best != "" {
		d.handOver("restart", best)
		return
	}
	d.restart[next] = token
	d.work(v1.ReasonChanging, "restarting %s as requested", next)
}

// switchoverRequest hands a request to the leader and passes its answer on.
func (d *draft) switchoverRequest() bool {
	r, goOn := d.open(kindSwitchover, d.seen.Database.Annotations[v1.AnnotationSwitchover])
	if !goOn {
		return true
	}
	if answer, ok := d.agentsAnswer(r.ID); ok && answer.State != string(v1.RequestRunning) {
		d.say(r, v1.RequestState(answer.State), answer.Message)
		return true
	}
	leader := d.Leadership.Leader
	switch {
	case d.Leadership.Switchover == r.ID:
		d.say(r, v1.RequestDone, leader+" leads")
	case len(d.Wanted) < 2:
		d.say(r, v1.RequestFailed, "there is no replica to hand over to")
	case r.Target != "" && !d.wants(r.Target):
		d.say(r, v1.RequestFailed, "there is no instance "+r.Target)
	case r.Target != "" && r.Target == leader:
		d.say(r, v1.RequestDone, leader+" leads")
	case !d.now.After(r.Expires):
		d.say(r, v1.RequestRunning, "")
		d.work(v1.ReasonChanging, "handing over from %s as requested", orUnknown(leader))
		d.handover = &engine.Switchover{ID: r.ID, Target: r.Target, Within: r.Expires.Sub(d.started(r)).Milliseconds()}
		d.LookAgain = soonest(d.LookAgain, r.Expires.Sub(d.now)+time.Second)
	case d.running(r) && !d.withdrawn() && !d.now.After(r.Expires.Add(grace)):
		d.say(r, v1.RequestRunning, "")
		d.work(v1.ReasonChanging, "waiting for the end of the switchover %s, whose time is over", r.ID)
		d.LookAgain = soonest(d.LookAgain, r.Expires.Add(grace).Sub(d.now)+time.Second)
	default:
		d.say(r, v1.RequestExpired, "it was not carried out in time")
	}
	return true
}

// grace is what a switchover that was published gets after its expiry for its answer to arrive: the leader may have handed over just
// before.
const grace = 30 * time.Second

// withdrawn says that the leader has taken an aim without the switchover, and so will not begin it any more.
func (d *draft) withdrawn() bool {
	report := d.seen.report(d.Leadership.Leader)
	if report == nil || !report.Leading {
		return false
	}
	revision, err := d.aim(d.Leadership.Leader, report).Revision()
	return err == nil && report.Revision == revision
}

// open parses the annotation and says whether there is still something to do for it.
func (d *draft) open(kind, raw string) (*request, bool) {
	r := parseRequest(kind, raw)
	if r == nil {
		return nil, false
	}
	if old, ok := answered(d.seen.Database.Status.Requests, r.ID, kind); ok && finished(old) && r.Problem == "" {
		return r, false
	}
	if r.Problem != "" {
		d.say(r, v1.RequestFailed, r.Problem)
		return r, false
	}
	return r, true
}

func (d *draft) say(r *request, state v1.RequestState, message string) {
	a := r.answer(state, d.now, message)
	at := metav1.NewTime(d.started(r))
	a.StartedAt = &at
	d.Answers = append(d.Answers, a)
}

// started is when the request was taken up: once status holds it, no later pass and no other manager has another answer.
func (d *draft) started(r *request) time.Time {
	if old, ok := answered(d.seen.Database.Status.Requests, r.ID, r.Kind); ok && old.StartedAt != nil {
		return old.StartedAt.Time
	}
	return d.now.Truncate(time.Second)
}

func (d *draft) running(r *request) bool {
	old, ok := answered(d.seen.Database.Status.Requests, r.ID, r.Kind)
	return ok && old.State == v1.RequestRunning
}

// agentsAnswer is what any member says of a request; an end counts more than a beginning.
func (d *draft) agentsAnswer(id string) (engine.Answer, bool) {
	var found engine.Answer
	ok := false
	for _, name := range sortedKeys(d.seen.Heard) {
		for _, a := range d.seen.Heard[name].Report.Requests {
			if a.ID == id && (!ok || found.State == string(v1.RequestRunning)) {
				found, ok = a, true
			}
		}
	}
	return found, ok
}

func listed(names []string) string {
	out := ""
	for i, name := range names {
		if i > 0 {
			out += ", "
		}
		out += name
	}
	return out
}
