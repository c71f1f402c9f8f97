package database

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// aims are for the agents that are heard of and hold another one. A silent agent keeps what it has and gets its own when it
// speaks again.
func (d *draft) aims() bool {
	for _, to := range targets(d.seen.Database, d.seen.Pods) {
		report := d.seen.report(to.Instance)
		if report == nil {
			continue
		}
		aim := d.aim(to.Instance, report)
		revision, err := aim.Revision()
		if err != nil || revision == report.Revision {
			continue // a value of plain fields always encodes
		}
		d.Aims = append(d.Aims, Publish{To: to, Aim: aim, Revision: revision})
	}
	return true
}

func (d *draft) aim(name string, report *engine.Report) engine.Aim {
	db := d.seen.Database
	a := engine.Aim{
		UID: string(db.UID), Namespace: db.Namespace, Database: db.Name, Member: name, Epoch: d.Leadership.Epoch,
		Bootstrap: d.bootstrap(), Init: d.init(), Synchronous: string(d.Effective.Synchronous),
		Files: d.engine.Files(d.database, d.seen.member(name, d.Leadership), d.members), Accounts: d.seen.Secrets.accounts(),
		Stop: d.stops(name),
		// The newest restart that was carried out stays in the aim, so that it keeps its revision afterwards.
		Restart: report.RestartDone,
	}
	for _, member := range d.Wanted {
		a.Members = append(a.Members, engine.Peer{Name: member, Address: desired.Address(db.Namespace, db.Name, member)})
	}
	if d.seat != "" {
		a.Witness = &engine.Peer{Name: d.seat, Address: desired.Address(db.Namespace, db.Name, d.seat)}
	}
	if token := d.seen.Asked[name]; token != "" {
		a.Restart = token // while its server is down, an instance does not say any more that it needs one
	}
	if token := d.restart[name]; token != "" {
		a.Restart = token
	}
	if name == d.Leadership.Leader {
		a.Switchover = d.handover
	}
	if (name == d.Leadership.Leader || report.Leading) && d.seen.Lease != nil {
		a.LeaseVersion = d.seen.Lease.ResourceVersion // one that leads, and is not who the Lease names, must hear of it
	}
	if report.Leading {
		a.SliceVersion = d.seen.SliceVersion
	}
	if o := d.recovery; o != nil && o.target == name {
		a.Recovery = &o.order
		a.Epoch = max(a.Epoch, db.Status.Epoch) // the Lease may be gone
		for _, name := range sortedKeys(d.seen.Heard) {
			a.Epoch = max(a.Epoch, d.seen.Heard[name].Report.Epoch) // or come from a backup of etcd, and the status with it
		}
	}
	return a
}

// bootstrap names the member that may initialise: by the Lease's own word while nobody ever led, and from its election on, which
// comes before it has data, until a primary has served. The agent asks the record, and its own volume, as well.
func (d *draft) bootstrap() string {
	db := d.seen.Database
	first := desired.InstanceName(db.Name, 1)
	switch {
	case d.seen.Lease == nil || bootstrapped(db):
		return ""
	case d.neverLed():
		return d.seen.Lease.Annotations[v1.AnnotationBootstrap]
	case d.Leadership.Epoch == 1 && d.Leadership.Leader == first && len(d.Leadership.Voters) == 1:
		return first
	default:
		return ""
	}
}

// init is what a new database begins with. Its SQL is dropped once a primary served: it has run, and may hold secrets.
func (d *draft) init() engine.DatabaseInit {
	db := d.seen.Database
	out := engine.DatabaseInit{Name: db.Spec.Bootstrap.Database, Owner: ownerName(db), Version: db.Spec.Version}
	if out.Name == "" {
		out.Name = "app"
	}
	if !bootstrapped(db) {
		out.SQL = d.seen.Secrets.SQL
	}
	return out
}

// roles are labelled for people and for the Service of replicas. A silent instance keeps its label: it may well serve. So do all until
// clients are sent to a new leader: kube-proxy takes over changes of Services once a second, and that one must not come second.
func (d *draft) roles() bool {
	d.Roles = map[string]v1.Role{}
	unrouted := d.unrouted()
	for name, pod := range d.seen.Pods {
		if pod.DeletionTimestamp != nil || ordinalOf(d.seen.Database.Name, name) == 0 {
			continue
		}
		role, label := roleOf(d.seen.report(name)), v1.Role(pod.Labels[v1.LabelRole])
		if role == v1.RoleUnknown || unrouted && label != "" {
			role = label
		}
		d.Roles[name] = role
	}
	return true
}

// unrouted says that the lead changes hands: the leader of the Lease has let go of it, and there are enough voters for another and nothing that lasts
// keeps them from it; or a new one tells of the change that brought it, and not yet that clients are sent to it. Labels do not wait for more than that.
func (d *draft) unrouted() bool {
	r := d.seen.report(d.Leadership.Leader)
	switch {
	case r == nil:
		return false
	case !r.Leading || r.Epoch != d.Leadership.Epoch:
		heard := 0
		for _, voter := range d.Leadership.Voters {
			v := d.seen.report(voter)
			if v != nil && v.Waits != nil && slices.Contains(lasting(), v.Waits.For) {
				return false
			}
			if v != nil {
				heard++
			}
		}
		return heard > len(d.Leadership.Voters)/2
	}
	return r.HandOver != nil && r.HandOver.Epoch == d.Leadership.Epoch && r.HandOver.Routed == 0 &&
		d.now.Sub(time.UnixMilli(r.HandOver.Elected)) < routeMost
}

// routeMost is how long labels wait for clients to be sent to a new leader; one that cannot write where they go may take long.
const routeMost = 30 * time.Second

// filesHash names a configuration.
func filesHash(files map[string]string) string {
	h := sha256.New()
	for _, name := range sortedKeys(files) {
		fmt.Fprintf(h, "%s\x00%d\x00%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
