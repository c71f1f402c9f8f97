package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestWaitingBelievesAStallOnlyWhenItLasts(t *testing.T) {
	now := time.Unix(0, 0)
	w := waiting{now: func() time.Time { return now }}
	stalled := v1.Database{Status: v1.DatabaseStatus{ObservedGeneration: 1, Ready: "0/3", Conditions: []metav1.Condition{
		{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Message: "no instance runs"},
		{Type: v1.ConditionStalled, Status: metav1.ConditionTrue, Message: "create Secret x"},
	}}}
	stalled.Generation = 1
	for _, at := range []time.Duration{0, stalledFor} {
		now = time.Unix(0, 0).Add(at)
		if ready, err := w.look(stalled); ready || err != nil {
			t.Fatalf("after %s: ready %v, error %v", at, ready, err)
		}
	}
	now = now.Add(time.Second)
	if _, err := w.look(stalled); err == nil || err.Error() != "create Secret x" {
		t.Errorf("error %v, want the condition's message", err)
	}
	if w.detail != "0/3 ready, no instance runs" {
		t.Errorf("told %q", w.detail)
	}
}

func TestReadyOfAnOlderGenerationDoesNotCount(t *testing.T) {
	d := v1.Database{Status: v1.DatabaseStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}}}
	for generation, want := range map[int64]bool{1: true, 2: false} {
		d.Generation = generation
		w := waiting{now: time.Now}
		if ready, err := w.look(d); ready != want || err != nil {
			t.Errorf("generation %d: ready %v, error %v", generation, ready, err)
		}
	}
}

func TestInWordsNamesWhoIsNotReady(t *testing.T) {
	d := v1.Database{Status: v1.DatabaseStatus{ObservedGeneration: 1, Ready: "1/3", Instances: []v1.InstanceStatus{
		{Name: "orders-1", State: "running", Ready: true}, {Name: "orders-2", State: "cloning"},
	}}}
	if diff := cmp.Diff("1/3 ready, orders-2 cloning", inWords(d)); diff != "" {
		t.Error(diff)
	}
}

func TestProgressWritesPlainLinesWithoutATerminal(t *testing.T) {
	var out strings.Builder
	at := time.Unix(0, 0)
	p := &progress{out: &out, now: func() time.Time { return at }}
	if err := p.do("one", func(func(string)) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := p.do("two", func(func(string)) error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := "...  one\nok   one  (0s)\n...  two\nFAIL two  (0s)\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestALineOnATerminalFitsAndReplacesTheLast(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, terminal: true, now: time.Now}
	p.line(strings.Repeat("x", 200), false)
	want := "\r\x1b[K" + strings.Repeat("x", width-1) + "…"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestLastLineHandsOnWholeLines(t *testing.T) {
	var got []string
	l := &lastLine{to: func(s string) { got = append(got, s) }}
	for _, piece := range []string{"build", "ing a\nbuilding b\n\n", "rest"} {
		if _, err := io.WriteString(l, piece); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"building a", "building b"}, got); diff != "" {
		t.Error(diff)
	}
}
