package database

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// FuzzRequest: whatever stands in the annotation, the answer can be stored, and nothing is carried out without an id and an end.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", `{"id":"a","expires":"2026-01-02T15:04:05Z"}`, `{"id":"a b"}`, `{"id":"a","expires":"tomorrow"}`, strings.Repeat("x", 2000),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r := parseRequest(kindSwitchover, raw)
		if r == nil {
			if raw != "" {
				t.Error("an annotation is left without an answer")
			}
			return
		}
		if !requestID.MatchString(r.ID) {
			t.Errorf("id %q cannot be answered", r.ID)
		}
		if r.Problem == "" && (r.Expires.IsZero() || r.ID == "malformed-switchover" && !strings.Contains(raw, "malformed-switchover")) {
			t.Errorf("%q would be carried out", raw)
		}
		if a := r.answer(v1.RequestFailed, noon(), r.Problem); a.FinishedAt == nil || len(a.Message) > 1024 {
			t.Errorf("answer %+v", a)
		}
	})
}

func TestAnswersAreBoundedAndNewestFirst(t *testing.T) {
	var old []v1.RequestStatus
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		old = append(old, v1.RequestStatus{ID: id, Kind: kindRestart, State: v1.RequestDone})
	}
	got := withAnswers(old, []v1.RequestStatus{{ID: "z", Kind: kindRestart, State: v1.RequestRunning}, {ID: "b", Kind: kindRestart, State: v1.RequestFailed}})
	var ids []string
	for _, a := range got {
		ids = append(ids, a.ID+":"+string(a.State))
	}
	if text := strings.Join(ids, " "); text != "z:Running b:Failed a:Done c:Done d:Done e:Done f:Done g:Done h:Done i:Done" {
		t.Error(text)
	}
}

func TestRequestsOfTwoKindsMayShareAnID(t *testing.T) {
	old := []v1.RequestStatus{{ID: "a", Kind: kindSwitchover, State: v1.RequestDone}, {ID: "b", Kind: kindRotate, State: v1.RequestDone}}
	fresh := []v1.RequestStatus{{ID: "a", Kind: kindRestart, State: v1.RequestRunning}, {ID: "b", Kind: kindRestart, State: v1.RequestFailed}}
	want := append(slices.Clone(fresh), old...)
	if diff := cmp.Diff(want, withAnswers(old, fresh)); diff != "" {
		t.Errorf("an answer of another kind is lost (-want +got):\n%s", diff)
	}
}
