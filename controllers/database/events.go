package database

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Recorder sends events; it is the part of client-go's that is used.
type Recorder interface {
	AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any)
}

// maxNote is what the API server takes.
const maxNote = 1024

// occurrence is one thing that changed.
type occurrence struct{ Type, Reason, Action, Note string }

// changes are what is worth an event between two statuses. It is pure: an event tells of a change, never of a state.
func changes(before, now v1.DatabaseStatus) []occurrence {
	var out []occurrence
	add := func(kind, reason, action, note string) { out = append(out, occurrence{kind, reason, action, note}) }
	if c, ok := changed(before, now, v1.ConditionStalled); ok && c.Status == metav1.ConditionTrue {
		add(corev1.EventTypeWarning, c.Reason, "Wait", c.Message)
	}
	if c, ok := changed(before, now, v1.ConditionReady); ok {
		_, turns := turned(before, now, v1.ConditionReady)
		switch {
		case !turns && !onVolumes(c.Reason): // one instance after the other waits for something
		case c.Status == metav1.ConditionTrue:
			add(corev1.EventTypeNormal, c.Reason, "Serve", c.Message)
		case meta.FindStatusCondition(before.Conditions, v1.ConditionReady) != nil:
			add(corev1.EventTypeWarning, c.Reason, "Serve", c.Message)
		}
	}
	if o, ok := waits(before, now); ok {
		out = append(out, o)
	}
	if c, ok := turned(before, now, v1.ConditionDurable); ok && c.Status == metav1.ConditionFalse {
		kind := corev1.EventTypeWarning
		if c.Reason == v1.ReasonAsynchronous {
			kind = corev1.EventTypeNormal // as asked
		}
		add(kind, c.Reason, "Replicate", c.Message)
	}
	for _, h := range newHandOvers(before, now) {
		add(corev1.EventTypeNormal, "HandOver", "Lead", handed(h))
	}
	for _, h := range foundOut(before, now) {
		add(corev1.EventTypeWarning, v1.ReasonWritesLost, "Lead", fmt.Sprintf("when %s took over from %s with epoch %d, acknowledged writes were lost: %s", h.To, h.From, h.Epoch, h.Loss))
	}
	for _, r := range now.Requests {
		if old, ok := answered(before.Requests, r.ID, r.Kind); ok && old.State == r.State {
			continue
		}
		kind := corev1.EventTypeNormal
		if r.State == v1.RequestFailed || r.State == v1.RequestExpired {
			kind = corev1.EventTypeWarning
		}
		note := fmt.Sprintf("request %s (%s): %s", r.ID, r.Kind, r.State)
		if r.Message != "" {
			note += ": " + r.Message
		}
		add(kind, "Request"+string(r.State), "Answer", note)
	}
	for _, i := range now.Instances {
		if note := starved(instanceOf(before, i.Name), i); note != "" {
			add(corev1.EventTypeWarning, v1.ReasonOutOfMemory, "Run", note)
		}
		if o, ok := stands(instanceOf(before, i.Name), i); ok {
			out = append(out, o)
		}
	}
	if a, b := sizeOf(before), sizeOf(now); a != "" && b != "" && a != b {
		add(corev1.EventTypeNormal, "Growing", "Grow", fmt.Sprintf("data volumes grow from %s to %s", a, b))
	}
	return out
}

// handed is a change of hands in a sentence.
func handed(h v1.HandOver) string {
	note := fmt.Sprintf("%s leads with epoch %d", h.To, h.Epoch)
	switch {
	case h.Cause == causeRaise:
		note = fmt.Sprintf("%s leads on, with the new epoch %d: %s", h.To, h.Epoch, h.Why)
	case h.From != "":
		note = fmt.Sprintf("%s took over from %s with epoch %d in %d ms", h.To, h.From, h.Epoch, h.DurationMillis)
	}
	note += " (" + h.Cause + ")"
	if h.Waited != "" {
		note += "; it waited " + h.Waited
	}
	return note
}

// onVolumes are reasons that are told also of a Database that was not ready before: a person must do something.
func onVolumes(reason string) bool {
	return reason == v1.ReasonVolumeFull || reason == v1.ReasonVolumeHangs
}

// stands tells of a replica that begins to stand still, that is held, or that is copied anew for it.
func stands(before, now v1.InstanceStatus) (occurrence, bool) {
	note := now.Name + ": " + now.Message
	switch {
	case now.Reason == v1.ReasonStandsStill && now.State == cloning && before.State != cloning:
		return occurrence{corev1.EventTypeWarning, v1.ReasonCopiedAnew, "Replicate", note}, true
	case now.Reason == before.Reason:
		return occurrence{}, false
	case now.Reason == v1.ReasonStandsStill:
		return occurrence{corev1.EventTypeWarning, now.Reason, "Replicate", note}, true
	case now.Reason == v1.ReasonReplayHeld:
		return occurrence{corev1.EventTypeNormal, now.Reason, "Replicate", note}, true
	}
	return occurrence{}, false
}

// starved tells that an instance lost a process, or all, because its memory was at its limit; empty if it did not.
func starved(before, now v1.InstanceStatus) string {
	what := ""
	switch {
	case now.OutOfMemoryAt != nil && (before.OutOfMemoryAt == nil || before.OutOfMemoryAt.Before(now.OutOfMemoryAt)):
		what = "its whole container"
	case now.MemoryKills > before.MemoryKills:
		what = "a process of its server, which ended all sessions for that"
	default:
		return ""
	}
	return fmt.Sprintf("%s: its memory was at its limit, and the kernel killed %s; raise spec.resources.limits.memory, or let each session use less (work_mem, max_connections)", now.Name, what)
}

// cloning is the state of an instance that copies the primary's data.
const cloning = "cloning"

func instanceOf(s v1.DatabaseStatus, name string) v1.InstanceStatus {
	for _, i := range s.Instances {
		if i.Name == name {
			return i
		}
	}
	return v1.InstanceStatus{}
}

func sizeOf(s v1.DatabaseStatus) string {
	if s.Effective == nil || s.Effective.StorageSize == nil {
		return ""
	}
	return s.Effective.StorageSize.String()
}

// changed says whether a condition's status or reason is another one now; turned looks at its status alone.
func changed(before, now v1.DatabaseStatus, kind string) (metav1.Condition, bool) {
	a, b := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(now.Conditions, kind)
	if b == nil {
		return metav1.Condition{}, false
	}
	return *b, a == nil || a.Status != b.Status || a.Reason != b.Reason
}

func turned(before, now v1.DatabaseStatus, kind string) (metav1.Condition, bool) {
	a, b := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(now.Conditions, kind)
	if b == nil {
		return metav1.Condition{}, false
	}
	return *b, a == nil || a.Status != b.Status
}

// tell sends what changed, under the pass's operation.
func (r *Reconciler) tell(ctx context.Context, d *v1.Database, all []occurrence) {
	marks := map[string]string{v1.AnnotationOperation: operation(ctx)}
	for _, o := range all {
		r.events.AnnotatedEventf(d, nil, marks, o.Type, o.Reason, o.Action, "%s", cut(o.Note, maxNote))
	}
}

// cut bounds a text that may hold others' words, between two characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
