package database

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
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

// FuzzFence: what is fenced is what the annotation names, no more, however long it is.
func FuzzFence(f *testing.F) {
	f.Add("orders-1, orders-3")
	f.Add(",,")
	f.Add(strings.Repeat("orders-12,", 200))
	f.Fuzz(func(t *testing.T, raw string) {
		d := &v1.Database{}
		d.Name, d.Annotations = "orders", map[string]string{v1.AnnotationFence: raw}
		var named []string
		for _, name := range strings.Split(raw, ",") {
			named = append(named, strings.TrimSpace(name))
		}
		for name := range fenced(d) {
			if name == "" || !slices.Contains(named, name) {
				t.Errorf("%q is fenced, named are %q", name, named)
			}
		}
	})
}

// FuzzLeadership: the manager believes of the Lease's record what the agents believe, and no more.
func FuzzLeadership(f *testing.F) {
	f.Add(`{"version":1,"epoch":3,"leader":"orders-1","voters":["orders-1","orders-2"],"timeline":1,"start":{"known":true}}`)
	f.Add(`{"epoch":-5,"leader":"orders-1"}`)
	f.Add(`{"epoch":9223372036854775807,"leader":"orders-1","voters":["orders-1"]}`)
	f.Add(`{"version":1,"epoch":3,"leader":"orders-1","voters":[],"timeline":1}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, raw string) {
		s := Seen{Lease: &coordinationv1.Lease{}}
		s.Lease.Annotations = map[string]string{v1.AnnotationLeadership: raw}
		got, want := s.leadership(), Leadership{}
		if record, err := lease.DecodeRecord([]byte(raw)); err == nil {
			want = Leadership{Epoch: int64(record.Epoch), Leader: record.Leader, Voters: record.Voters, Switchover: record.Switchover}
			want.Recovered.ID = record.Recovered.ID
		} else if got.Epoch > 0 && got.Epoch <= 1<<53 && len(got.Voters) <= 15 && slices.Contains(got.Voters, got.Leader) && got.Leader != "" {
			// A record of a later release may say more than this agent knows; what is in it must make sense all the same.
			return
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("of %q (-agents +manager):\n%s", raw, diff)
		}
	})
}
