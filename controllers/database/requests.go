package database

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

const (
	kindSwitchover = "switchover"
	kindRestart    = "restart"
	kindRotate     = "rotate"
	kindRecover    = "recover"

	// maxRequestBytes bounds what is parsed of an annotation that anyone with rights on the Database may write.
	maxRequestBytes = 1024
	// maxRequests is how many answers status keeps.
	maxRequests = 10
)

var requestID = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// request is a parsed annotation.
type request struct {
	v1.Request
	Kind    string
	Expires time.Time
	// Problem says why it cannot be carried out; empty if it can.
	Problem string
}

// parseRequest reads one annotation. It returns nil if there is none. A request that cannot even be answered by its own id is
// answered under "malformed-<kind>", so that its author sees why nothing happens.
func parseRequest(kind, raw string) *request {
	if raw == "" {
		return nil
	}
	r := &request{Kind: kind}
	r.ID = "malformed-" + kind
	if len(raw) > maxRequestBytes {
		r.Problem = fmt.Sprintf("the annotation is longer than %d bytes", maxRequestBytes)
		return r
	}
	var asked v1.Request
	if err := json.Unmarshal([]byte(raw), &asked); err != nil {
		r.Problem = `the annotation is not JSON of the form {"id":"...","target":"...","expires":"2026-01-02T15:04:05Z"}`
		return r
	}
	if !requestID.MatchString(asked.ID) {
		r.Problem = "id must be 1 to 63 letters, digits, '-', '_' or '.'"
		return r
	}
	r.Request = asked
	at, err := time.Parse(time.RFC3339, asked.Expires)
	if err != nil {
		r.Problem = "expires must be a time such as 2026-01-02T15:04:05Z"
		return r
	}
	r.Expires = at
	return r
}

// answer is the status of the request in one state.
func (r *request) answer(state v1.RequestState, now time.Time, message string) v1.RequestStatus {
	out := v1.RequestStatus{ID: r.ID, Kind: r.Kind, Target: r.Target, State: state, Message: message}
	if state != v1.RequestRunning {
		at := metav1.NewTime(now.Truncate(time.Second))
		out.FinishedAt = &at
	}
	return out
}

// answered finds the answer to a request among those that status already holds.
func answered(all []v1.RequestStatus, id, kind string) (v1.RequestStatus, bool) {
	for _, a := range all {
		if a.ID == id && a.Kind == kind {
			return a, true
		}
	}
	return v1.RequestStatus{}, false
}

// finished says that a request needs no more work.
func finished(a v1.RequestStatus) bool { return a.State != v1.RequestRunning && a.State != "" }

// withAnswers puts new answers before the old ones, one a kind and id, and keeps the newest. An answer that says the same as the one
// that status holds keeps its time.
func withAnswers(old, fresh []v1.RequestStatus) []v1.RequestStatus {
	out := make([]v1.RequestStatus, 0, len(old)+len(fresh))
	for _, f := range fresh {
		if o, ok := answered(old, f.ID, f.Kind); ok && o.State == f.State && o.Message == f.Message && o.Target == f.Target {
			continue
		}
		if _, told := answered(out, f.ID, f.Kind); !told {
			out = append(out, f)
		}
	}
	for _, o := range old {
		if _, told := answered(out, o.ID, o.Kind); !told {
			out = append(out, o)
		}
	}
	if len(out) > maxRequests {
		out = out[:maxRequests]
	}
	return out
}

// fenced are the instances that run no server on purpose.
func fenced(d *v1.Database) map[string]bool {
	out := map[string]bool{}
	for _, name := range policy.Fenced(d) {
		out[name] = true
	}
	return out
}
