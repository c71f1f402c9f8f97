package database

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestWhatIsDoneIsDecidedOnFirstHandWords: only a plan with nothing to do may rest on what the leader passes on.
func TestWhatIsDoneIsDecidedOnFirstHandWords(t *testing.T) {
	rest := func() *scene {
		s := settled(3)
		s.Pods["orders-1"].Labels[v1.LabelRole] = string(v1.RolePrimary)
		plan := decide(s.Seen, surroundings(), noon())
		s.Database.Status.Effective = &plan.Effective
		return s
	}
	for name, row := range map[string]struct {
		change func(*scene)
		want   bool
	}{
		"nothing is to do":             {func(*scene) {}, false},
		"a follower is silent":         {func(s *scene) { s.silence("orders-3") }, false},
		"a configuration to publish":   {func(s *scene) { s.Database.Spec.Parameters = map[string]string{"work_mem": "5MB"} }, true},
		"a pod to make":                {func(s *scene) { delete(s.Pods, "orders-3"); s.silence("orders-3") }, true},
		"a pod to remove":              {func(s *scene) { s.Database.Spec.Replicas = new(int32(1)) }, true},
		"a person's request to answer": {func(s *scene) { s.annotate(v1.AnnotationSwitchover, `{"id":"x"}`) }, true},
		"an instance that fails":       {func(s *scene) { s.report("orders-3", func(r *engine.Report) { r.State = "failed" }) }, true},
		"a follower that is called a primary, which no Service would lead to": {func(s *scene) {
			s.report("orders-3", func(r *engine.Report) { r.Role = engine.Primary })
		}, true},
		"a follower that is stopped, and that no Service leads to any more": {func(s *scene) {
			s.report("orders-3", func(r *engine.Report) { r.Role = engine.Stopped })
			delete(s.Pods["orders-3"].Labels, v1.LabelRole)
		}, false},
		"a status that tells no size": {func(s *scene) { s.Database.Status.Effective = nil }, true},
		"a full volume of a follower, which is to grow": {func(s *scene) {
			most := s.Database.Spec.Storage.Size.DeepCopy()
			most.Add(s.Database.Spec.Storage.Size)
			s.Database.Spec.Storage.Growth = &v1.GrowthSpec{MaxSize: most}
			s.report("orders-3", func(r *engine.Report) { r.Data.Used = r.Data.Size * 9 / 10 })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := rest()
			row.change(s)
			if got := decide(s.Seen, surroundings(), noon()).changes(s.Seen); got != row.want {
				t.Errorf("it wants each one's own word: %v, want %v", got, row.want)
			}
		})
	}
}

// TestEachPartOfAPlanWantsFirstHandWords alone, whatever else comes with it in a real pass.
func TestEachPartOfAPlanWantsFirstHandWords(t *testing.T) {
	small, large := resource.MustParse("1Gi"), resource.MustParse("2Gi")
	turning := newRotating(t)
	turning.pass("c", noon())
	authority := turning.Secrets.Material
	for name, row := range map[string]struct {
		plan   Plan
		change func(*Seen)
		want   bool
	}{
		"nothing":                  {},
		"an aim":                   {plan: Plan{Aims: make([]Publish, 1)}, want: true},
		"a program to send":        {plan: Plan{Send: &Send{}}, want: true},
		"a pod to make":            {plan: Plan{Pods: make([]*corev1.Pod, 1)}, want: true},
		"something to remove":      {plan: Plan{Remove: make([]Removal, 1)}, want: true},
		"an answer to a person":    {plan: Plan{Answers: make([]v1.RequestStatus, 1)}, want: true},
		"work that goes on":        {plan: Plan{Working: &Finding{}}, want: true},
		"what a person must mend":  {plan: Plan{Stalled: &Finding{}}, want: true},
		"a status that tells none": {change: func(s *Seen) { s.Database.Status.Effective = nil }, want: true},
		"a size, where none was told": {
			plan: Plan{Effective: v1.EffectiveSpec{StorageSize: &small}}, change: func(s *Seen) { s.Database.Status.Effective.StorageSize = nil }, want: true,
		},
		"another size":                {plan: Plan{Effective: v1.EffectiveSpec{StorageSize: &large}}, want: true},
		"the same size":               {plan: Plan{Effective: v1.EffectiveSpec{StorageSize: &small}}},
		"another role":                {plan: Plan{Roles: map[string]v1.Role{"orders-2": v1.RolePrimary}}, want: true},
		"the same role":               {plan: Plan{Roles: map[string]v1.Role{"orders-2": v1.RoleReplica}}},
		"certificates":                {plan: Plan{Certificates: &certificate.Wanted{}}},
		"a change of the authority":   {plan: Plan{Certificates: &certificate.Wanted{}}, change: func(s *Seen) { s.Secrets.Material = authority }, want: true},
		"a change that is left alone": {change: func(s *Seen) { s.Secrets.Material = authority }},
	} {
		t.Run(name, func(t *testing.T) {
			s := settled(2)
			s.Database.Status.Effective = &v1.EffectiveSpec{StorageSize: &small}
			row.plan.Inputs.Database = s.Database
			if row.change != nil {
				row.change(&s.Seen)
			}
			if got := row.plan.changes(s.Seen); got != row.want {
				t.Errorf("it wants each one's own word: %v, want %v", got, row.want)
			}
		})
	}
}
