package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// bereft has lost the volumes of its leader and its third instance.
func bereft() *v1.Database {
	d := running()
	d.Status.Phase, d.Status.Ready = v1.PhaseDown, "0/3"
	d.Status.Instances = []v1.InstanceStatus{
		{Name: "orders-1", State: "failed", Voter: true, LastPosition: "0/5000060", Message: "this instance has no usable data and there is no primary to copy"},
		{Name: "orders-2", Role: v1.RoleReplica, State: "running", Ready: true, Voter: true, Position: "0/5000000"},
		{Name: "orders-3", State: "silent", Voter: true, Message: "it has no pod"},
	}
	d.Status.Conditions = nil
	return d
}

func last() Leadership {
	return Leadership{Version: "4711", Epoch: 4, Leader: "orders-1", Voters: []string{"orders-1", "orders-2", "orders-3"}}
}

func TestLosses(t *testing.T) {
	for sentence, row := range map[string]struct {
		change func(d *v1.Database, l *Leadership)
		from   string
		want   []string
	}{
		"a replica that is behind the leader's last word": {nil, "orders-2", []string{
			"at least 96 bytes of the log: orders-1 was at 0/5000060, and orders-2 is at 0/5000000",
			"beyond that unknown: what orders-1 acknowledged with others after 0/5000000; status follows a busy server in steps of 16 MiB",
		}},
		"a last leader that is behind another has lost what it had": {
			func(_ *v1.Database, l *Leadership) { l.Leader = "orders-2" }, "orders-2",
			[]string{"at least 96 bytes of the log: orders-1 was at 0/5000060, and orders-2 is at 0/5000000", "beyond that unknown: what orders-2 acknowledged with others after 0/5000000; status follows a busy server in steps of 16 MiB"},
		},
		"the last leader has all that it acknowledged": {
			func(d *v1.Database, l *Leadership) {
				l.Leader = "orders-2"
				d.Status.Instances[0].LastPosition = "0/4000000"
			}, "orders-2",
			[]string{"nothing that was acknowledged: orders-2 led last (epoch 4) and holds all that it acknowledged"},
		},
		"who had no vote may lack anything": {
			func(d *v1.Database, l *Leadership) {
				l.Voters = []string{"orders-1"}
				d.Status.Instances[0].LastPosition = ""
			}, "orders-2",
			[]string{"beyond that unknown: orders-2 had no vote, so no write waited for it"},
		},
		"writes that wait for nobody": {
			func(d *v1.Database, _ *Leadership) {
				d.Status.Effective.Synchronous = v1.SynchronousNone
				d.Status.Instances[0].LastPosition = ""
			}, "orders-2",
			[]string{"beyond that unknown: writes did not always wait for replicas"},
		},
		"a Lease without a record": {
			func(_ *v1.Database, l *Leadership) { *l = Leadership{Version: "4711"} }, "orders-2",
			[]string{"at least 96 bytes of the log: orders-1 was at 0/5000060, and orders-2 is at 0/5000000", "beyond that unknown: the Lease does not tell who led last"},
		},
		"a Lease from a backup of etcd does not tell who led last, nor who voted": {
			func(d *v1.Database, l *Leadership) {
				l.Leader = "orders-2"
				d.Status.Instances[0].LastPosition = "0/4000000"
				d.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonLeaseOlder}}
			}, "orders-2",
			[]string{"beyond that unknown: the Lease is older than what the instances saw there, and does not tell who led last; an instance that is not heard may have got further"},
		},
		"an instance without a position": {nil, "orders-3", []string{"unknown: how far orders-3 has got is not known"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			d, l := bereft(), last()
			if row.change != nil {
				row.change(d, &l)
			}
			if diff := cmp.Diff(row.want, losses(d, l, row.from)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
		})
	}
}

// server is as much of an API server as the command uses.
type server struct {
	database *v1.Database
	lease    *coordinationv1.Lease
	refuse   map[string]int // by the method and the last word of the path
	patches  []string
	answer   v1.RequestStatus
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	w.Header().Set("Content-Type", "application/json")
	if code := s.refuse[r.Method+" "+parts[len(parts)-2]]; code != 0 {
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"refused by the test","details":{"name":"orders"},"code":%d}`, strings.ReplaceAll(http.StatusText(code), " ", ""), code)
		return
	}
	if r.Method == http.MethodPatch {
		raw, _ := io.ReadAll(r.Body)
		s.patches = append(s.patches, string(raw))
		var patch struct {
			Metadata struct{ Annotations map[string]string }
		}
		_ = json.Unmarshal(raw, &patch)
		var asked v1.Request
		_ = json.Unmarshal([]byte(patch.Metadata.Annotations[v1.AnnotationRecover]), &asked)
		s.answer.ID, s.answer.Kind = asked.ID, "recover"
		s.database.Status.Requests = []v1.RequestStatus{s.answer}
	}
	if parts[len(parts)-2] == "leases" {
		_ = json.NewEncoder(w).Encode(s.lease)
		return
	}
	_ = json.NewEncoder(w).Encode(s.database)
}

func TestRecoverCommand(t *testing.T) {
	record := `{"version":9,"epoch":4,"leader":"orders-1","voters":["orders-1","orders-2","orders-3"],"timeline":4,"start":{"known":true}}`
	for sentence, row := range map[string]struct {
		args   []string
		change func(s *server)
		fails  string // a part of the error; empty: it succeeds
		says   string // a part of the output
		asks   bool
	}{
		"without --accept-loss it shows the loss and changes nothing": {
			[]string{"--from", "orders-2"}, nil, "nothing was changed: to give the lead to orders-2 and accept the loss above, run it again with --accept-loss", "at least 96 bytes", false,
		},
		"with it the version of the Lease that was shown goes along": {
			[]string{"--from", "orders-2", "--accept-loss"}, nil, "", "recover of orders done: orders-2 leads with epoch 5", true,
		},
		"no instance is named":           {nil, nil, "name the instance that is to lead with --from", "", false},
		"an instance that there is not":  {[]string{"--from", "orders-9", "--accept-loss"}, nil, `no instance "orders-9"`, "", false},
		"an instance without data":       {[]string{"--from", "orders-1", "--accept-loss"}, nil, "orders-1 tells of no data (this instance has no usable data", "", false},
		"a Lease that is missing":        {[]string{"--from", "orders-2", "--accept-loss"}, func(s *server) { s.refuse = map[string]int{"GET leases": 404} }, "the Lease orders is missing", "", false},
		"a Lease that may not be read":   {[]string{"--from", "orders-2", "--accept-loss"}, func(s *server) { s.refuse = map[string]int{"GET leases": 403} }, "read Lease orders in namespace shop", "", false},
		"a Lease of nonsense":            {[]string{"--from", "orders-2", "--accept-loss"}, func(s *server) { s.lease.Annotations[v1.AnnotationLeadership] = "{" }, "read the annotation plimsoll.dev/leadership", "", false},
		"an API that fails at the order": {[]string{"--from", "orders-2", "--accept-loss"}, func(s *server) { s.refuse = map[string]int{"PATCH databases": 500} }, "annotate Database orders", "", false},
		"a leader that serves": {
			[]string{"--from", "orders-2", "--accept-loss"},
			func(s *server) { i := &s.database.Status.Instances[0]; i.Role, i.Ready = v1.RolePrimary, true },
			"orders-1 leads and serves", "", false,
		},
		"a Database that is paused": {
			[]string{"--from", "orders-2", "--accept-loss"}, func(s *server) { s.database.Spec.Maintenance.Paused = true }, "is paused", "", false,
		},
		"an instance that is fenced": {
			[]string{"--from", "orders-2", "--accept-loss"},
			func(s *server) { s.database.Annotations = map[string]string{v1.AnnotationFence: "orders-2"} },
			"unfence orders orders-2 first", "", false,
		},
		"an order that is refused": {
			[]string{"--from", "orders-2", "--accept-loss"},
			func(s *server) {
				s.answer = v1.RequestStatus{State: v1.RequestFailed, Message: "orders-3 leads with epoch 5"}
			},
			"recover of orders Failed: orders-3 leads with epoch 5", "", true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := &server{database: bereft(), answer: v1.RequestStatus{State: v1.RequestDone, Message: "orders-2 leads with epoch 5"}}
			s.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "orders", ResourceVersion: "4711", Annotations: map[string]string{v1.AnnotationLeadership: record}}}
			if row.change != nil {
				row.change(s)
			}
			out, err := s.run(t, append([]string{"recover", "orders"}, row.args...)...)
			if (row.fails == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), row.fails) {
				t.Errorf("error %v, want one with %q", err, row.fails)
			}
			if !strings.Contains(out, row.says) {
				t.Errorf("output %q, want one with %q", out, row.says)
			}
			if asked := len(s.patches) == 1 && strings.Contains(s.patches[0], `\"leaseVersion\":\"4711\",\"acceptLoss\":true`); asked != row.asks || len(s.patches) > 1 {
				t.Errorf("asked %q", s.patches)
			}
		})
	}
}

// run one command against the server.
func (s *server) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	live := httptest.NewServer(s)
	defer live.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x","namespace":"shop"}}]}`, live.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	root := New(Config{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard}, Version: "test", Now: func() time.Time { return noon }})
	root.SetArgs(append(args, "--kubeconfig", config))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestStatusOfALostMajority: who looks at the status finds the way from there.
func TestStatusOfALostMajority(t *testing.T) {
	d := bereft()
	d.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonMajorityLost, Message: "kubectl plimsoll recover orders -n shop --from orders-2 shows what would be lost"}}
	var got strings.Builder
	if err := Status(&got, d, noon); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"was 0/5000060", "--from orders-2 shows what would be lost", "Next: bring a lost volume back"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is not in\n%s", want, got.String())
		}
	}
}

func TestLossesAreShown(t *testing.T) {
	var got strings.Builder
	if err := Losses(&got, bereft(), last(), "orders-2"); err != nil {
		t.Fatal(err)
	}
	golden(t, "losses", got.String())
}
