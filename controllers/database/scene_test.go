package database

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

// noon is when every scene plays.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC) }

func surroundings() Surroundings {
	return Surroundings{
		AgentImage: "registry.test/plimsoll:v1", OperatorNamespace: "plimsoll-system",
		Engines: policy.Engines{v1.EnginePostgres: postgres.New(postgres.Options{})},
	}
}

// scene is a Seen that is easy to change. Instances are named by their number.
type scene struct{ Seen }

// empty is a new Database with nothing there yet.
func empty(replicas int32) *scene {
	d := &v1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "u1", Generation: 1},
		Spec: v1.DatabaseSpec{
			Engine: v1.EnginePostgres, Version: "15", Replicas: &replicas, MaxReplicas: new(int32(9)), DeletionPolicy: v1.DeletionRetain,
			Storage: v1.StorageSpec{Size: resource.MustParse("10Gi")}, Bootstrap: v1.BootstrapSpec{Database: "app", Owner: "app"},
			Scheduling: v1.SchedulingSpec{Spread: "preferred"},
		},
	}
	if replicas == 2 {
		d.Spec.Replication.Witness = v1.WitnessNone // the scenes of a witness ask for one
	}
	return &scene{Seen{
		Database: d, Witnesses: map[string]*corev1.Pod{}, Pods: map[string]*corev1.Pod{}, Claims: map[string]*corev1.PersistentVolumeClaim{}, Heard: map[string]Heard{},
		Secrets: Secrets{Owner: "app", Password: "secret", Verifier: "SCRAM-SHA-256$x"},
	}}
}

// settled runs as its spec asks: orders-1 leads, all are ready, and there is nothing to do.
func settled(replicas int32) *scene {
	s := empty(replicas)
	d := s.Database
	for n := int32(1); n <= replicas; n++ {
		s.instance(n)
	}
	d.Status = v1.DatabaseStatus{Epoch: 1, Leader: "orders-1", Version: "15.18", Phase: v1.PhaseRunning}
	s.lead(1, 1)
	s.obey()
	return s
}

func name(n int32) string { return fmt.Sprintf("orders-%d", n) }

// instance adds a pod, its volume and its agent.
func (s *scene) instance(n int32) {
	s.claim(n, "10Gi", "10Gi")
	plan := decide(s.Seen, surroundings(), noon())
	pod := desired.Pod(plan.Inputs, desired.Instance{Ordinal: n})
	pod.UID = types.UID(fmt.Sprintf("pod-%d", n))
	pod.Labels[v1.LabelRole] = "replica"
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", n), Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	s.Pods[name(n)] = pod
	s.Heard[name(n)] = Heard{At: noon(), Report: engine.Report{
		Instance: name(n), UID: "u1", Role: engine.Replica, State: "running", Ready: true, Version: "15.18",
		Position: engine.Position{Timeline: 1, Bytes: 100, Text: "0/64"}, Data: engine.VolumeUse{Size: 10 << 30, Used: 1 << 30}, Converged: true,
	}}
}

func (s *scene) claim(n int32, asked, capacity string) {
	s.Claims[name(n)] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name(n), UID: types.UID("claim-" + name(n)),
			Labels:      map[string]string{v1.LabelDatabase: "orders", v1.LabelInstance: name(n)},
			Annotations: map[string]string{v1.AnnotationDatabaseUID: "u1"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asked)}}},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)},
		},
	}
}

// lead makes an instance the leader, with everyone who is heard of as a voter.
func (s *scene) lead(n int32, epoch int64) {
	voters := sortedKeys(s.Heard)
	raw, _ := json.Marshal(Leadership{Epoch: epoch, Leader: name(n), Voters: voters})
	s.Lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "orders", Annotations: map[string]string{v1.AnnotationLeadership: string(raw)}}}
	for other := range s.Heard {
		s.report(other, func(r *engine.Report) {
			r.Epoch, r.Leader, r.Voters, r.Leading, r.Role = epoch, name(n), voters, other == name(n), engine.Replica
			if r.Leading {
				r.Role, r.InSync, r.SyncWanted = engine.Primary, len(voters)-1, len(voters)/2
				r.Streaming = slices.DeleteFunc(slices.Clone(voters), func(v string) bool { return v == name(n) })
			}
		})
	}
}

// voters writes others into the Lease and the leader's report.
func (s *scene) voters(names ...string) {
	l := s.leadership()
	l.Voters = names
	raw, _ := json.Marshal(l)
	s.Lease.Annotations[v1.AnnotationLeadership] = string(raw)
	s.report(l.Leader, func(r *engine.Report) { r.Voters = names })
}

// report changes what an instance says.
func (s *scene) report(instance string, change func(*engine.Report)) {
	h := s.Heard[instance]
	change(&h.Report)
	s.Heard[instance] = h
}

// obey lets every agent take the aim that it would get now.
func (s *scene) obey() {
	for range 5 {
		for _, p := range decide(s.Seen, surroundings(), noon()).Aims {
			s.report(p.To.Instance, func(r *engine.Report) { r.Revision = p.Revision })
		}
	}
}

// streaming makes the leader say who follows it.
func (s *scene) streaming(names ...string) {
	s.report(s.leadership().Leader, func(r *engine.Report) { r.Streaming = names })
}

func (s *scene) silence(instance string) { delete(s.Heard, instance) }

func (s *scene) annotate(key, value string) { s.Database.Annotations = map[string]string{key: value} }

// gist is what a plan comes to, for tables.
type gist struct {
	Stalled, Working string
	Pods, Remove     []string
	Claims           []string
	Aims             []string
	Answers          []string
	Bootstrap        string
}

func gistOf(s Seen, p Plan) gist {
	g := gist{Stalled: p.Stalled.String(), Working: p.Working.String()}
	for _, pod := range p.Pods {
		g.Pods = append(g.Pods, pod.Name)
	}
	for _, r := range p.Remove {
		kind := "pod "
		if _, ok := r.Object.(*corev1.PersistentVolumeClaim); ok {
			kind = "volume "
		}
		g.Remove = append(g.Remove, kind+r.Object.GetName())
	}
	for _, o := range p.Apply {
		c, ok := o.(*corev1.PersistentVolumeClaim)
		if !ok {
			continue
		}
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		held := s.Claims[c.Name]
		if held == nil || held.Spec.Resources.Requests.Storage().Cmp(size) != 0 {
			g.Claims = append(g.Claims, c.Name+" "+size.String())
		}
	}
	for _, o := range p.Create {
		if l, ok := o.(*coordinationv1.Lease); ok {
			g.Bootstrap = l.Annotations[v1.AnnotationBootstrap]
		}
	}
	for _, a := range p.Aims {
		g.Aims = append(g.Aims, aimGist(a.Aim))
	}
	for _, a := range p.Answers {
		text := fmt.Sprintf("%s %s: %s", a.Kind, a.ID, a.State)
		if a.Message != "" {
			text += ", " + a.Message
		}
		g.Answers = append(g.Answers, text)
	}
	return g
}

func aimGist(a engine.Aim) string {
	members := make([]string, 0, len(a.Members))
	for _, m := range a.Members {
		members = append(members, strings.TrimPrefix(m.Name, "orders-"))
	}
	text := fmt.Sprintf("%s: members %s epoch %d", a.Member, strings.Join(members, ","), a.Epoch)
	if a.Bootstrap != "" {
		text += " bootstrap " + a.Bootstrap
	}
	if a.Stop {
		text += " stop"
	}
	if a.Restart != "" {
		text += " restart " + strings.SplitN(a.Restart, "-", 2)[0]
	}
	if a.Switchover != nil {
		text += " switchover " + a.Switchover.ID + " to " + a.Switchover.Target
	}
	if o := a.Recovery; o != nil {
		text += " recover " + o.ID + " on " + o.LeaseVersion + " lost " + strings.Join(o.Lost, ",")
	}
	return text
}

// play decides a scene and shows its gist; a second look at the same scene must give the same plan.
func play(t *testing.T, s *scene) (Plan, gist) {
	t.Helper()
	plan := decide(s.Seen, surroundings(), noon())
	again := gistOf(s.Seen, decide(s.Seen, surroundings(), noon()))
	first := gistOf(s.Seen, plan)
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("two looks at the same gave two plans:\n%+v\n%+v", first, again)
	}
	cached := asCached(t, s.Seen)
	planned := decide(cached, surroundings(), noon())
	if d := cmp.Diff(first, gistOf(cached, planned)); d != "" {
		t.Errorf("the cache lacks something that decides (-whole +cached):\n%s", d)
	}
	if d := cmp.Diff(summarise(s.Seen, plan, Acted{}, noon()), summarise(cached, planned, Acted{}, noon())); d != "" {
		t.Errorf("the cache lacks something that is told (-whole +cached):\n%s", d)
	}
	return plan, first
}
