package database

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestWantOfMemoryIsTold once: of a process of the server by the agent's word, of the whole container by the kubelet's.
func TestWantOfMemoryIsTold(t *testing.T) {
	at := metav1.NewTime(noon().Add(-time.Minute))
	killed := func(s *scene, at metav1.Time) {
		end := &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: at}
		s.Pods["orders-2"].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "database", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: end},
		}}
	}
	for sentence, row := range map[string]struct {
		before v1.InstanceStatus
		now    func(*scene)
		want   string
	}{
		"nothing": {v1.InstanceStatus{}, func(*scene) {}, ""},
		"a process": {
			v1.InstanceStatus{MemoryKills: 1}, func(s *scene) { s.report("orders-2", func(r *engine.Report) { r.MemoryKills = 2 }) }, "a process of its server",
		},
		"none since":          {v1.InstanceStatus{MemoryKills: 2}, func(s *scene) { s.report("orders-2", func(r *engine.Report) { r.MemoryKills = 2 }) }, ""},
		"a container anew":    {v1.InstanceStatus{MemoryKills: 2}, func(s *scene) { s.report("orders-2", func(r *engine.Report) { r.MemoryKills = 0 }) }, ""},
		"silent":              {v1.InstanceStatus{MemoryKills: 2}, func(s *scene) { delete(s.Heard, "orders-2") }, ""},
		"the container":       {v1.InstanceStatus{}, func(s *scene) { killed(s, at) }, "its whole container"},
		"told before":         {v1.InstanceStatus{OutOfMemoryAt: &at}, func(s *scene) { killed(s, at) }, ""},
		"another time":        {v1.InstanceStatus{OutOfMemoryAt: &at}, func(s *scene) { killed(s, metav1.NewTime(noon())) }, "its whole container"},
		"told, and forgotten": {v1.InstanceStatus{OutOfMemoryAt: &at}, func(*scene) {}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			row.before.Name = "orders-2"
			s.Database.Status.Instances = []v1.InstanceStatus{row.before}
			row.now(s)
			for name, pod := range s.Pods {
				slim, err := new(slimmer).pod(pod.DeepCopy())
				if err != nil {
					t.Fatal(err)
				}
				s.Pods[name] = slim.(*corev1.Pod)
			}
			now := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
			var got []string
			for _, o := range changes(s.Database.Status, now) {
				if o.Reason == v1.ReasonOutOfMemory {
					got = append(got, o.Note)
				}
			}
			if told := strings.Join(got, "\n"); (told == "") != (row.want == "") || !strings.Contains(told, row.want) || len(got) > 1 {
				t.Errorf("told %q, want words of %q", told, row.want)
			}
			for _, o := range changes(now, now) {
				t.Errorf("told once more: %+v", o)
			}
		})
	}
}
