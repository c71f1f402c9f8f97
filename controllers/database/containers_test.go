package database

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func before(d time.Duration) metav1.Time { return metav1.NewTime(noon().Add(-d)) }

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// failed is a run that ended some time ago after a second.
func failed(ago time.Duration, code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: before(ago + time.Second), FinishedAt: before(ago),
	}}
}

// starting is a pod that has had a node for a while.
func starting(age time.Duration) *corev1.Pod {
	start := before(age)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-1"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: &start, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: start},
		}},
	}
}

func withContainer(age time.Duration, s corev1.ContainerStatus) *corev1.Pod {
	p := starting(age)
	s.Name = "database"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	return p
}

func withoutSandbox(age time.Duration) *corev1.Pod {
	p := starting(age)
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse})
	return p
}

func TestContainerTroubles(t *testing.T) {
	const noServer = "plimsoll-agent run: no PostgreSQL server in the image"
	mount := "its node cannot mount its volumes or give it a network yet: kubectl describe pod orders-1 shows the kubelet's words"
	for sentence, row := range map[string]struct {
		pod  *corev1.Pod
		want *containerTrouble
	}{
		"a pod that is being made has none": {pod: withContainer(time.Second, corev1.ContainerStatus{State: waiting("ContainerCreating", "")})},
		"an init container that is done has none": {
			pod: func() *corev1.Pod {
				p := starting(time.Minute)
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: failed(0, 0, "Completed", "")}}
				return p
			}(),
		},
		"an init container in a crash loop is told with its last words": {
			pod: func() *corev1.Pod {
				p := starting(time.Minute)
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
					Name: "agent", RestartCount: 3, State: waiting("CrashLoopBackOff", "back-off 40s restarting failed container"),
					LastTerminationState: failed(time.Second, 1, "Error", "first\nplimsoll-agent install: the disk is full\n"),
				}}
				return p
			}(),
			want: &containerTrouble{Words: "container agent ended with exit code 1: plimsoll-agent install: the disk is full", Lasting: true},
		},
		"the first failure is told, and no reason to call a person": {
			pod:  withContainer(time.Minute, corev1.ContainerStatus{RestartCount: 1, State: waiting("CrashLoopBackOff", ""), LastTerminationState: failed(time.Second, 1, "Error", noServer)}),
			want: &containerTrouble{Words: "container database ended with exit code 1: " + noServer},
		},
		"between two of its failures the same is told": {
			pod: withContainer(time.Minute, corev1.ContainerStatus{
				RestartCount: 4, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: before(time.Second)}},
				LastTerminationState: failed(40*time.Second, 1, "Error", noServer),
			}),
			want: &containerTrouble{Words: "container database ended with exit code 1: " + noServer, Lasting: true},
		},
		"one that runs for a while has none any more": {
			pod: withContainer(time.Hour, corev1.ContainerStatus{
				RestartCount: 4, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: before(steady)}},
				LastTerminationState: failed(time.Minute, 1, "Error", noServer),
			}),
		},
		"one that had run for a month is not in a loop": {
			pod: withContainer(time.Hour, corev1.ContainerStatus{RestartCount: 4, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", StartedAt: before(720 * time.Hour), FinishedAt: before(time.Second),
			}}}),
			want: &containerTrouble{Words: "container database ended with exit code 137 (OOMKilled)"},
		},
		"a container that cannot be made is given a moment": {
			pod:  withContainer(2*time.Second, corev1.ContainerStatus{State: waiting("CreateContainerConfigError", `secret "orders-1-member" not found`)}),
			want: &containerTrouble{Words: `container database: secret "orders-1-member" not found`, Look: 3 * time.Second},
		},
		"a container that cannot be made is told in the kubelet's words": {
			pod:  withContainer(10*time.Second, corev1.ContainerStatus{State: waiting("RunContainerError", `exec: "/opt/plimsoll/bin/plimsoll-agent": permission denied`)}),
			want: &containerTrouble{Words: `container database: exec: "/opt/plimsoll/bin/plimsoll-agent": permission denied`, Lasting: true},
		},
		"without words the reason stands for them": {
			pod:  withContainer(10*time.Second, corev1.ContainerStatus{State: waiting("CreateContainerError", "")}),
			want: &containerTrouble{Words: "container database: CreateContainerError", Lasting: true},
		},
		"a pod whose volumes are being attached is given time": {
			pod: withoutSandbox(5 * time.Second), want: &containerTrouble{Look: 15 * time.Second},
		},
		"a pod whose volumes do not come is told": {
			pod: withoutSandbox(time.Minute), want: &containerTrouble{Words: mount, Look: 2 * time.Minute},
		},
		"a pod whose volumes do not come for minutes waits for a person": {
			pod: withoutSandbox(nodeTooLong), want: &containerTrouble{Words: mount, Lasting: true},
		},
		"a container that cannot be made in a pod without a start is told at once": {
			pod: func() *corev1.Pod {
				p := withContainer(0, corev1.ContainerStatus{State: waiting("CreateContainerError", "x")})
				p.Status.StartTime = nil
				return p
			}(),
			want: &containerTrouble{Words: "container database: x", Lasting: true},
		},
		"words are bounded": {
			pod:  withContainer(time.Minute, corev1.ContainerStatus{State: waiting("CreateContainerError", strings.Repeat("é", 5000))}),
			want: &containerTrouble{Words: "container database: " + strings.Repeat("é", maxWords/2-2) + "...", Lasting: true},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(row.want, containerTroubleOf(row.pod, noon())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// crashing makes an instance's container fail for the third time.
func (s *scene) crashing(n int32, message string) {
	s.silence(name(n))
	p := s.Pods[name(n)]
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "database", RestartCount: 3, State: waiting("CrashLoopBackOff", ""), LastTerminationState: failed(time.Second, 1, "Error", message),
	}}
}

func TestAContainerThatFailsIsToldAndReplaced(t *testing.T) {
	replacing := func(n int32) gist {
		return gist{Working: "Changing: replacing " + name(n) + ": its pod's spec changed", Remove: []string{"pod " + name(n)}}
	}
	for sentence, row := range map[string]struct {
		scene   func() *scene
		want    gist
		message string
	}{
		"a person is asked": {
			scene: func() *scene { s := settled(1); s.crashing(1, "no PostgreSQL server in the image"); return s },
			want: gist{
				Stalled: "ContainerFailed: orders-1: container database ended with exit code 1: no PostgreSQL server in the image; correct spec.image or spec.version, or what kubectl describe pod orders-1 names",
			},
			message: "container database ended with exit code 1: no PostgreSQL server in the image",
		},
		"the first pod of a new Database is replaced once its image is corrected": {
			scene: func() *scene {
				s := empty(3)
				s.instance(1)
				s.Lease = settled(1).Lease.DeepCopy()
				s.Lease.Annotations = map[string]string{v1.AnnotationBootstrap: "orders-1"}
				s.crashing(1, "x")
				s.Database.Spec.Image = "registry.test/postgres:15"
				return s
			},
			want: func() gist {
				g := replacing(1)
				g.Working, g.Bootstrap = "Creating: orders-2 waits for the first instance", "orders-1"
				g.Stalled = "ContainerFailed: orders-1: container database ended with exit code 1: x; correct spec.image or spec.version, or what kubectl describe pod orders-1 names"
				return g
			}(),
			message: "container database ended with exit code 1: x",
		},
		"the first leader is replaced, too, while it never served": {
			scene: func() *scene {
				s := empty(3)
				s.instance(1)
				s.lead(1, 1)
				s.obey()
				s.report("orders-1", func(r *engine.Report) {
					r.Ready, r.State, r.Role, r.Version, r.Problem = false, "failed", engine.Stopped, "", "spec.version asks for another"
				})
				s.Pods["orders-1"].Status.Conditions = nil
				for _, n := range []int32{2, 3} {
					s.instance(n)
					s.crashing(n, "x")
				}
				s.Database.Spec.Image = "registry.test/postgres:15"
				return s
			},
			want: func() gist {
				g := replacing(3)
				g.Stalled = "ServerFailed: orders-1: spec.version asks for another"
				return g
			}(),
			message: "spec.version asks for another",
		},
		"two that got the same wrong image do not wait for each other": {
			scene: func() *scene {
				s := settled(3)
				s.crashing(2, "x")
				s.crashing(3, "x")
				s.Database.Spec.Image = "registry.test/postgres:15"
				return s
			},
			want: func() gist {
				g := replacing(3)
				g.Stalled = "ContainerFailed: orders-2: container database ended with exit code 1: x; correct spec.image or spec.version, or what kubectl describe pod orders-2 names"
				return g
			}(),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := row.scene()
			plan, got := play(t, s)
			got.Aims = nil
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			status := summarise(s.Seen, plan, Acted{}, noon())
			if status.Instances[0].Message != row.message {
				t.Errorf("orders-1 says %q, want %q", status.Instances[0].Message, row.message)
			}
		})
	}
}
