package database

import (
	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// vacate hands the lead over from a node that its pod will have to leave, so that the eviction which follows meets a replica. It does so
// only to an instance on a node that stays: with none it waits, and no two nodes that both go can pass the lead to and fro.
func (d *draft) vacate() bool {
	leader := d.Leadership.Leader
	why := d.goes(leader)
	if why == "" || d.handover != nil || len(d.restart) > 0 || len(d.Remove) > 0 || !d.leads(leader) || d.seen.Pods[leader].DeletionTimestamp != nil {
		return true
	}
	to := d.refuge()
	if to == "" {
		return true
	}
	d.work(v1.ReasonChanging, "handing over from %s to %s: the node %s %s", leader, to, d.seen.Pods[leader].Spec.NodeName, why)
	d.handOver("drain", to)
	return true
}

// leads says that an instance leads by its own word, and that clients are sent to it. That it is ready is not asked: it is not while it hands over, and
// a wish that is taken back then would call that off.
func (d *draft) leads(name string) bool {
	r := d.seen.report(name)
	return r != nil && r.Leading && r.Role == engine.Primary && (r.Waits == nil || r.Waits.For != v1.ReasonNotRouted)
}

// goes says why an instance will have to leave its node; empty if it need not, as far as is known.
func (d *draft) goes(name string) string {
	pod := d.seen.Pods[name]
	if pod == nil {
		return ""
	}
	return leaving(d.seen.Nodes[pod.Spec.NodeName], pod)
}

// refuge is the healthy replica that is least behind, of those that stay where they are. One that must be replaced or restarted itself is
// none: the lead would come back at once.
func (d *draft) refuge() string {
	return d.leastBehind(func(name string) bool {
		known := d.seen.Nodes[d.seen.Pods[name].Spec.NodeName] != nil
		return known && d.goes(name) == "" && !d.outdated(name) && len(d.seen.report(name).RestartPending) == 0
	})
}
