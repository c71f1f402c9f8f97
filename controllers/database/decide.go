package database

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

const (
	// slowResync is when a Database is looked at again though nothing happened.
	slowResync = 10 * time.Minute
	// retryStalled is when a Database that waits for a person is looked at again, for what no watch tells.
	retryStalled = 15 * time.Second
)

// Surroundings are what the manager was started with, the same for every Database.
type Surroundings struct {
	// AgentImage is the operator's own image.
	AgentImage string
	// OperatorNamespace is where the manager's pods run.
	OperatorNamespace string
	// OpenShift leaves the user of the pods to the platform.
	OpenShift bool
	// Engines by name.
	Engines policy.Engines
	// Programs are the agents that every instance should run.
	Programs Programs
}

// Plan is what one pass is to do. Apply carries it out in the order of its fields.
type Plan struct {
	// Aims to publish to agents that have another one.
	Aims []Publish
	// Send a program to one agent, to become it under its running server; nil for none.
	Send *Send
	// Inputs that the objects were built from.
	Inputs desired.Inputs
	// Certificates to keep; nil leaves them alone. Password asks for one to be made where there is none.
	Certificates *certificate.Wanted
	// Create makes objects that are never changed; Apply makes objects right.
	Create, Apply []client.Object
	// Adopt is the Secret that cert-manager wrote, to go with the Database; nil if it does.
	Adopt client.Object
	// Roles are the roles that pods should be labelled with.
	Roles map[string]v1.Role
	// Pods to make, after all else exists.
	Pods []*corev1.Pod
	// Remove these, last.
	Remove []Removal
	// LookAgain at the latest.
	LookAgain time.Duration

	// What summarise tells.

	// Leadership that was decided on.
	Leadership Leadership
	// Instances that are told of, by name; Wanted are those that should be.
	Instances, Wanted []string
	// Effective values.
	Effective v1.EffectiveSpec
	// Stalled waits for a person; Working goes on by itself. Nil for neither.
	Stalled, Working *Finding
	// Keeps says of instances why they keep the agent that they have.
	Keeps map[string]string
	// Absent are instances that are fenced and that there are not, nor a volume of theirs.
	Absent []string
	// Answers to requests that are new or changed.
	Answers []v1.RequestStatus
}

// Publish is one aim for one agent.
type Publish struct {
	To       Target
	Aim      engine.Aim
	Revision string
}

// Removal is an object to delete and why, for the event.
type Removal struct {
	Object client.Object
	Why    string
}

// changes says that the plan does more than to tell how things are and to keep objects as the spec and the Lease ask: that what it depends
// on must be each instance's own word, not what the leader passes on. A leader can do much to its Database, but to have another member's
// pod removed, or its authority no longer trusted, by a word in its name is not of that.
func (p Plan) changes(s Seen) bool {
	if len(p.Aims)+len(p.Pods)+len(p.Remove)+len(p.Answers) > 0 || p.Send != nil || p.Working != nil || p.Stalled != nil {
		return true
	}
	if told := s.Database.Status.Effective; told == nil || p.Effective.StorageSize != nil && (told.StorageSize == nil || told.StorageSize.Cmp(*p.Effective.StorageSize) != 0) {
		return true // volumes grow by what agents say of them
	}
	for name, role := range p.Roles {
		wanted := desired.PodRole(p.Inputs, desired.Instance{Ordinal: ordinalOf(s.Database.Name, name)}, role)
		if s.Pods[name].Labels[v1.LabelRole] != wanted.Labels[v1.LabelRole] {
			return true // the Service of replicas selects by it
		}
	}
	return p.Certificates != nil && rotates(s.Secrets.Material)
}

// draft is a plan in the making.
type draft struct {
	Plan
	seen     Seen
	around   Surroundings
	engine   engine.Engine
	database *v1.Database // as the engine should see it: with every fence in its place
	now      time.Time
	topology engine.Topology
	members  []engine.Member // those that exist
	restart  map[string]string
	invalid  bool // the spec breaks a rule: nothing is rolled towards it
	handover *engine.Switchover
	seat     string // the witness that should vote; empty for none
	recovery *recovery
	rotating string // how far a rotation that was asked for is
}

// A step does its part of the draft and says whether the next ones may go on.
type step func(*draft) (goOn bool)

// decide plans one pass from what was seen. It is pure: the same Seen at the same time gives the same plan.
func decide(s Seen, around Surroundings, now time.Time) Plan {
	d := &draft{seen: s, around: around, now: now, restart: map[string]string{}}
	d.Leadership, d.Keeps = s.leadership(), map[string]string{}
	d.Instances = d.existing()
	d.LookAgain = resync(s.Database)
	for _, next := range []step{
		(*draft).deleting, (*draft).knownEngine, (*draft).inputs, (*draft).paused, (*draft).refuse, (*draft).earlierVolumes,
		(*draft).credentials, (*draft).rotateRequest, (*draft).objects, (*draft).plan, (*draft).claims, (*draft).hibernate, (*draft).pods,
		(*draft).witness, (*draft).shrink, (*draft).roll, (*draft).restartRequest, (*draft).switchoverRequest, (*draft).vacate, (*draft).recoverRequest,
		(*draft).aims, (*draft).roles,
		(*draft).findings, (*draft).programs,
	} {
		if !next(d) {
			break
		}
	}
	d.fences()
	if d.rotating != "" {
		d.work(v1.ReasonChanging, "changing the certificates as requested: %s", d.rotating) // last: it may take long, and is no news
	}
	return d.Plan
}

// resync is spread by the UID, so that a manager that starts does not look at every Database at the same instant again.
func resync(d *v1.Database) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(d.UID))
	return slowResync - slowResync/10 + time.Duration(h.Sum32()%1000)*slowResync/5000
}

func (d *draft) stall(reason, format string, args ...any) {
	if d.Stalled == nil {
		d.Stalled = &Finding{reason, fmt.Sprintf(format, args...)}
	}
	d.LookAgain = soonest(d.LookAgain, retryStalled)
}

func (d *draft) work(reason, format string, args ...any) {
	if d.Working == nil {
		d.Working = &Finding{reason, fmt.Sprintf(format, args...)}
	}
}

// existing are the instances that there are: those with a pod, those with a vote, and those with a claim that they will need
// again. A claim that was kept when its instance was removed is none.
func (d *draft) existing() []string {
	db := d.seen.Database
	names := sortedKeys(d.seen.Pods)
	names = append(names, d.Leadership.Voters...)
	for n := int32(1); n <= replicas(db); n++ {
		if name := desired.InstanceName(db.Name, n); d.seen.Claims[name] != nil {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return ordinalOf(db.Name, name) == 0 })
	return byOrdinal(db.Name, names)
}

// neverLed says that no member of this Database ever led: only then may a new, empty database be made.
func (d *draft) neverLed() bool {
	if d.seen.Database.Status.Epoch > 0 || d.Leadership.Epoch > 0 || bootstrapped(d.seen.Database) {
		return false
	}
	for _, h := range d.seen.Heard {
		if h.Report.Epoch > 0 {
			return false
		}
	}
	// Further instances are made only once one leads: a claim of theirs shows that one did, though its record is gone.
	first := desired.InstanceName(d.seen.Database.Name, 1)
	for name, claim := range d.seen.Claims {
		if claim.Annotations[v1.AnnotationDatabaseUID] == string(d.seen.Database.UID) && name != first && name != desired.WALClaimName(first) {
			return false
		}
	}
	return true
}

// deleting leaves everything to the garbage collector: the objects are owned, and volumes that are kept are not.
func (d *draft) deleting() bool {
	if d.seen.Database.DeletionTimestamp == nil {
		return true
	}
	d.LookAgain = 0
	return false
}

func (d *draft) knownEngine() bool {
	d.engine = d.around.Engines[d.seen.Database.Spec.Engine]
	if d.engine == nil {
		d.stall(v1.ReasonInvalidSpec, "spec.engine: %q is not known; use postgres", d.seen.Database.Spec.Engine)
		return false
	}
	d.database = d.seen.Database.DeepCopy()
	d.database.Spec.Maintenance.Fenced = sortedKeys(fenced(d.seen.Database))
	return true
}

// inputs settles what holds where the spec leaves a choice.
func (d *draft) inputs() bool {
	db := d.seen.Database
	parts := d.engine.Parts(d.database)
	d.Effective = v1.EffectiveSpec{Image: parts.Image, Synchronous: synchronous(db), Parameters: d.engine.Effective(d.database)}
	if db.Spec.Image != "" {
		d.Effective.Image = db.Spec.Image
	}
	size := d.storageSize()
	d.Effective.StorageSize = &size
	if !d.around.OpenShift {
		user := parts.RunAsUser
		d.Effective.RunAsUser = &user
	}
	if db.Spec.RunAsUser != nil {
		user := *db.Spec.RunAsUser
		d.Effective.RunAsUser = &user
	}
	d.Inputs = desired.Inputs{
		Database: d.database, Parts: parts, Effective: d.Effective, AgentImage: d.around.AgentImage,
		OperatorNamespace: d.around.OperatorNamespace, OpenShift: d.around.OpenShift, Witness: d.Leadership.Witness != "",
	}
	// Until the engine is asked, what is there is wanted, or else the first names.
	if d.Wanted = slices.Clone(d.Instances); len(d.Wanted) < int(replicas(db)) {
		d.Wanted = nil
		for n := int32(1); n <= replicas(db); n++ {
			d.Wanted = append(d.Wanted, desired.InstanceName(db.Name, n))
		}
	}
	return true
}

// synchronous is the mode that holds: one instance has nobody to wait for, and of two with a witness either should go on without the other.
func synchronous(d *v1.Database) v1.SynchronousMode {
	switch {
	case replicas(d) == 1:
		return v1.SynchronousNone
	case d.Spec.Replication.Synchronous != "":
		return d.Spec.Replication.Synchronous
	case wantsWitness(d):
		return v1.SynchronousPreferred
	default:
		return v1.SynchronousRequired
	}
}

func (d *draft) paused() bool { return !d.seen.Database.Spec.Maintenance.Paused }

// refuse acts on nothing that the rules forbid. They are asked here too, since the webhook may not run. A Database that runs is
// looked after all the same, so that one wrong field costs no certificate and no lost pod; only its instances are not rolled.
func (d *draft) refuse() bool {
	asked := d.seen.Database
	if runs := d.runs(); asked.Status.Version == "" && runs != "" {
		asked = asked.DeepCopy()
		asked.Status.Version = runs // a status that was lost must not let another major version onto the data
	}
	problems := policy.Check(nil, asked, d.around.Engines)
	if len(problems) == 0 {
		return true
	}
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Error())
	}
	slices.Sort(texts)
	d.stall(v1.ReasonInvalidSpec, "%s", strings.Join(texts, "; "))
	d.invalid = true
	return d.Leadership.Epoch > 0
}

// runs is the version of the leader's server, or of any that is heard of.
func (d *draft) runs() string {
	for _, name := range append([]string{d.Leadership.Leader}, sortedKeys(d.seen.Heard)...) {
		if r := d.seen.report(name); r != nil && r.Version != "" {
			return r.Version
		}
	}
	return ""
}

// earlierVolumes refuses to start on the data of another Database, or to mix it with this one's.
func (d *draft) earlierVolumes() bool {
	var names []string
	for _, name := range sortedKeys(d.seen.Claims) {
		instance := strings.TrimSuffix(name, "-wal")
		if ordinalOf(d.seen.Database.Name, instance) != 0 && d.seen.Claims[name].Annotations[v1.AnnotationDatabaseUID] != string(d.seen.Database.UID) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return true
	}
	d.stall(v1.ReasonVolumesExist, "volumes of an earlier Database of this name exist: %s; delete these PersistentVolumeClaims, or choose another name", strings.Join(names, ", "))
	return d.Leadership.Epoch > 0 // a stray claim does not stop the care for one that runs
}

// objects are those that a Database has whatever its instances do.
func (d *draft) objects() bool {
	bootstrap := ""
	if d.neverLed() {
		bootstrap = desired.InstanceName(d.seen.Database.Name, 1)
	}
	d.Create = append(d.Create, desired.Lease(d.Inputs, bootstrap), desired.EndpointSlice(d.Inputs))
	for _, s := range desired.Services(d.Inputs) {
		d.Apply = append(d.Apply, s)
	}
	d.Apply = append(d.Apply,
		desired.ServiceAccount(d.Inputs), desired.Role(d.Inputs), desired.RoleBinding(d.Inputs),
		desired.NetworkPolicy(d.Inputs), desired.PodDisruptionBudget(d.Inputs))
	return true
}

// plan asks the engine for the nearest safe topology.
func (d *draft) plan() bool {
	for _, name := range d.Instances {
		d.members = append(d.members, d.seen.member(name, d.Leadership))
	}
	d.topology = d.engine.Next(d.database, d.members)
	d.Wanted = byOrdinal(d.seen.Database.Name, d.topology.Members)
	return true
}

func (d *draft) wants(name string) bool { return slices.Contains(d.Wanted, name) }

// instance is what the builders need to know of one.
func (d *draft) instance(name string) desired.Instance {
	i := desired.Instance{Ordinal: ordinalOf(d.seen.Database.Name, name)}
	if c := d.seen.Claims[name]; c != nil {
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		i.HeldData = &size
	}
	if c := d.seen.Claims[desired.WALClaimName(name)]; c != nil {
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		i.HeldWAL = &size
	}
	return i
}
