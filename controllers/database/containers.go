package database

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// containerPatience is for what heals by itself in a moment, as a Secret that comes just after its pod.
	containerPatience = 5 * time.Second
	// nodePatience and nodeTooLong are for volumes that are attached and networks that are made: clouds take a minute for them.
	nodePatience = 20 * time.Second
	nodeTooLong  = 3 * time.Minute
	// restartsTold is how often a container may have failed before a person is asked: the first failure may be chance.
	restartsTold = 2
	// steady is how long a container that failed before must run to count as started, and briefRun how long one that failed may have
	// run for its failures to belong together.
	steady   = 10 * time.Second
	briefRun = time.Minute
	// maxWords bounds what is repeated of the kubelet's and a program's words.
	maxWords = 400
)

// containerTrouble is a container that does not start, or does not keep running.
type containerTrouble struct {
	// Words of the kubelet or of the program itself. They stay the same from one try to the next.
	Words string
	// Lasting says that it will not heal by itself; Look is when it will count as lasting, 0 if time alone does not tell.
	Lasting bool
	Look    time.Duration
}

// containerTroubleOf a pod; nil if there is none, or if its image cannot be had, which imageProblem tells.
func containerTroubleOf(pod *corev1.Pod, now time.Time) *containerTrouble {
	if pod == nil || pod.DeletionTimestamp != nil || podReady(pod) {
		return nil
	}
	if t := sandboxTrouble(pod, now); t != nil {
		return t
	}
	for _, c := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		if t := stateTrouble(pod, c, now); t != nil {
			return t
		}
	}
	return nil
}

func stateTrouble(pod *corev1.Pod, c corev1.ContainerStatus, now time.Time) *containerTrouble {
	last := c.LastTerminationState.Terminated
	switch {
	case c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff":
		return &containerTrouble{Words: ending(c.Name, last), Lasting: c.RestartCount >= restartsTold}
	case c.State.Waiting != nil && cannotBeMade(c.State.Waiting.Reason):
		t := &containerTrouble{Words: fmt.Sprintf("container %s: %s", c.Name, words(c.State.Waiting.Message, c.State.Waiting.Reason))}
		t.after(latest(pod.Status.StartTime, last), containerPatience, now)
		return t
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		end := c.State.Terminated
		return &containerTrouble{Words: ending(c.Name, end), Lasting: c.RestartCount >= restartsTold && brief(end)}
	case c.State.Running != nil && c.RestartCount >= restartsTold && last != nil && last.ExitCode != 0 && brief(last) && now.Sub(c.State.Running.StartedAt.Time) < steady:
		// Between two of its failures: what was told stays told.
		return &containerTrouble{Words: ending(c.Name, last), Lasting: true}
	}
	return nil
}

// sandboxTrouble is of a pod that has a node and nothing else yet: a volume that cannot be mounted, or no network. The kubelet says
// which in an event alone.
func sandboxTrouble(pod *corev1.Pod, now time.Time) *containerTrouble {
	c := podCondition(pod, corev1.PodReadyToStartContainers)
	scheduled := podCondition(pod, corev1.PodScheduled)
	if c.Status != corev1.ConditionFalse || scheduled.Status != corev1.ConditionTrue || pod.Status.PodIP != "" {
		return nil
	}
	since := scheduled.LastTransitionTime.Time
	if wait := since.Add(nodePatience).Sub(now); wait > 0 {
		return &containerTrouble{Look: wait}
	}
	t := &containerTrouble{Words: fmt.Sprintf("its node cannot mount its volumes or give it a network yet: kubectl describe pod %s shows the kubelet's words", pod.Name)}
	t.after(since, nodeTooLong, now)
	return t
}

// after makes it lasting from a while after the begin on.
func (t *containerTrouble) after(begin time.Time, patience time.Duration, now time.Time) {
	if wait := begin.Add(patience).Sub(now); wait > 0 {
		t.Look = wait
		return
	}
	t.Lasting = true
}

func cannotBeMade(reason string) bool {
	switch reason {
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError", "PostStartHookError", "PreCreateHookError":
		return true
	}
	return false
}

// ending is how a container ended, with the last line that its program said.
func ending(container string, end *corev1.ContainerStateTerminated) string {
	if end == nil {
		return fmt.Sprintf("container %s ended, and the kubelet does not say how", container)
	}
	how := fmt.Sprintf("container %s ended with exit code %d", container, end.ExitCode)
	if end.Reason != "" && end.Reason != "Error" {
		how += " (" + end.Reason + ")"
	}
	if said := words(end.Message, ""); said != "" {
		how += ": " + said
	}
	return how
}

// words are the last line of a message, bounded; or else what stands for it.
func words(message, otherwise string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	text := strings.TrimSpace(lines[len(lines)-1])
	if text == "" {
		return otherwise
	}
	return cut(text, maxWords)
}

// starvedAt is when the kernel last ended a container whose memory was at its limit; nil if its last end was another one.
func starvedAt(c corev1.ContainerStatus) *metav1.Time {
	for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if end != nil && end.Reason == "OOMKilled" {
			return &end.FinishedAt
		}
	}
	return nil
}

func brief(end *corev1.ContainerStateTerminated) bool {
	return end.FinishedAt.Sub(end.StartedAt.Time) < briefRun
}

// latest of a pod's start and the end of its container's last run; the zero time, which is long ago, if the kubelet says neither.
func latest(start *metav1.Time, end *corev1.ContainerStateTerminated) time.Time {
	var begin time.Time
	if start != nil {
		begin = start.Time
	}
	if end != nil && end.FinishedAt.After(begin) {
		return end.FinishedAt.Time
	}
	return begin
}
