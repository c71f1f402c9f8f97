package plugin

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func running() *v1.Database {
	lag := int64(3 << 20)
	zero := int64(0)
	lost := int64(14480)
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", Generation: 3}}
	d.Spec.Engine, d.Spec.Version = v1.EnginePostgres, "15"
	d.Status = v1.DatabaseStatus{
		ObservedGeneration: 3, Phase: v1.PhaseChanging, Ready: "2/3", Version: "15.20", Leader: "orders-1", Epoch: 4, Voters: []string{"orders-1", "orders-2"},
		Effective: &v1.EffectiveSpec{Synchronous: v1.SynchronousRequired},
		Instances: []v1.InstanceStatus{
			{Name: "orders-1", Role: v1.RolePrimary, State: "running", Ready: true, Voter: true, Node: "node1", Zone: "zone1", Position: "0/5000060", LagBytes: &zero},
			{Name: "orders-2", Role: v1.RoleReplica, State: "running", Ready: true, Voter: true, Node: "node2", Zone: "zone2", Position: "0/5000060", LagBytes: &zero, RestartPending: true},
			{Name: "orders-3", Role: v1.RoleReplica, State: "cloning", Node: "node3", Zone: "zone3", LagBytes: &lag, Message: "cloning from orders-1, 40 %"},
		},
		Conditions: []metav1.Condition{
			{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonInstancesNotReady, Message: "orders-3 is not ready", LastTransitionTime: metav1.NewTime(noon.Add(-90 * time.Second))},
			{Type: v1.ConditionStalled, Status: metav1.ConditionFalse, Reason: v1.ReasonSettled, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))},
		},
		Requests: []v1.RequestStatus{{ID: "0a0b0c0d", Kind: "switchover", Target: "orders-1", State: v1.RequestDone, Message: "orders-1 leads", FinishedAt: &metav1.Time{Time: noon.Add(-2 * time.Minute)}}},
		HandOvers: []v1.HandOver{
			{Epoch: 4, From: "orders-2", To: "orders-1", Cause: "switchover", DurationMillis: 640, Why: "handed over", LostBytes: new(int64), Loss: "nothing: the old leader handed over all that it had", Steps: []v1.HandOverStep{{Name: "released"}, {Name: "elected", AfterMillis: 90}, {Name: "promoted", AfterMillis: 520}, {Name: "routed", AfterMillis: 640}}, At: metav1.NewTime(noon.Add(-2 * time.Minute))},
			{Epoch: 3, From: "orders-1", To: "orders-2", Cause: "failover", DurationMillis: 3100, LostBytes: &lost, Loss: "82 commits in 14480 bytes of log that only orders-1 had", At: metav1.NewTime(noon.Add(-time.Hour))},
			{Epoch: 2, From: "orders-3", To: "orders-1", Cause: "failover", DurationMillis: 3200, Loss: "not known until orders-3 is back", At: metav1.NewTime(noon.Add(-3 * time.Hour))},
		},
	}
	return d
}

const away = "the API server does not answer, and nobody is elected without it"

func TestStatus(t *testing.T) {
	stalled := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", Generation: 1}}
	stalled.Spec.Engine, stalled.Spec.Version = v1.EnginePostgres, "15"
	stalled.Status.Conditions = []metav1.Condition{
		{Type: v1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1.ReasonImagePull, Message: `image "x" cannot be pulled`, LastTransitionTime: metav1.NewTime(noon)},
	}
	pair := running()
	pair.Status.Witness = &v1.WitnessStatus{Name: "orders-w1", Node: "node3", Voter: true}
	pair.Status.Voters = append(pair.Status.Voters, "orders-w1")
	pair.Status.Effective.Synchronous = v1.SynchronousPreferred
	pair.Status.Instances = pair.Status.Instances[:2]
	pair.Status.Conditions = []metav1.Condition{{
		Type: v1.ConditionDurable, Status: metav1.ConditionFalse, Reason: v1.ReasonNoMajority, LastTransitionTime: metav1.NewTime(noon),
		Message: "too few replicas are in step: writes go on, and orders-1 alone is known to hold the newest; no other instance may lead until one has caught up",
	}}
	leaderless := running()
	leaderless.Status.Phase = v1.PhaseDown
	for i := range leaderless.Status.Instances {
		leaderless.Status.Instances[i].Role, leaderless.Status.Instances[i].RestartPending = v1.RoleReplica, false
		leaderless.Status.Instances[i].Reason, leaderless.Status.Instances[i].Message = v1.ReasonAPIServerAway, away
	}
	leaderless.Status.Conditions = []metav1.Condition{{
		Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonNoPrimary, LastTransitionTime: metav1.NewTime(noon),
		Message: "no instance takes writes: orders-1, orders-2, orders-3: " + away,
	}}
	leaderless.Status.HandOvers[0].Waited = "14.2 s for the API server"
	restored := running()
	raise := v1.HandOver{Epoch: 5, From: "orders-1", To: "orders-1", Cause: "raise", Why: "the Lease was deleted or restored", LostBytes: new(int64), Loss: "nothing: the same instance went on leading", At: metav1.NewTime(noon.Add(-time.Minute))}
	restored.Status.HandOvers = append([]v1.HandOver{raise}, restored.Status.HandOvers...)
	for name, d := range map[string]*v1.Database{"running": running(), "stalled": stalled, "pair": pair, "leaderless": leaderless, "restored": restored} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := Status(&got, d, noon); err != nil {
				t.Fatal(err)
			}
			golden(t, name, got.String())
		})
	}
}

func TestNobodyIsSaidToLeadWhileNobodyDoes(t *testing.T) {
	for reason, want := range map[string]string{
		v1.ReasonNoPrimary: "none takes writes (orders-1 is the last in the Lease)", v1.ReasonLeaseOlder: "none takes writes (orders-1 is the last in the Lease)",
		v1.ReasonMajorityLost: "none takes writes (orders-1 is the last in the Lease)", v1.ReasonInstancesNotReady: "orders-1",
	} {
		st := v1.DatabaseStatus{Leader: "orders-1", Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}}}
		if got := leader(st); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

// golden compares with what testdata says, or makes it say so.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("it differs from %s (-want +got):\n%s", path, diff)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 20: "3.0 MiB", 1 << 62: "4096.0 PiB"} {
		if got := bytes(n); got != want {
			t.Errorf("bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestInstanceNamesWhatThereIs(t *testing.T) {
	d := running()
	if err := instance(d, "orders-2"); err != nil {
		t.Error(err)
	}
	err := instance(d, "orders-9")
	if err == nil || !strings.Contains(err.Error(), "orders-9") || !strings.Contains(err.Error(), "[orders-1 orders-2 orders-3]") {
		t.Errorf("error %v names neither the wrong instance nor those that there are", err)
	}
}

func TestAFenceOutlivesItsInstance(t *testing.T) {
	d := running()
	d.Annotations = map[string]string{v1.AnnotationFence: "orders-2,orders-7"}
	for name, want := range map[string]bool{"orders-1": true, "orders-2": true, "orders-7": true, "orders-9": false} {
		if err := fencedOrThere(d, name); (err == nil) != want {
			t.Errorf("unfence %s: %v", name, err)
		}
	}
}

func TestFencedReadsTheAnnotation(t *testing.T) {
	for annotation, want := range map[string][]string{"": nil, " , ": nil, "a-1": {"a-1"}, "a-1, a-2,": {"a-1", "a-2"}} {
		if diff := cmp.Diff(want, Fenced(annotation)); diff != "" {
			t.Errorf("Fenced(%q) (-want +got):\n%s", annotation, diff)
		}
	}
}

func TestAnAnswerIsThatOfItsKind(t *testing.T) {
	d := running()
	d.Status.Requests = append(d.Status.Requests, v1.RequestStatus{ID: "0a0b0c0d", Kind: "restart", State: v1.RequestRunning})
	for kind, want := range map[string]v1.RequestState{"switchover": v1.RequestDone, "restart": v1.RequestRunning, "rotate": ""} {
		got, found := answered(d, kind, "0a0b0c0d")
		if got.State != want || found != (want != "") {
			t.Errorf("the answer to the %s is %q, want %q", kind, got.State, want)
		}
	}
}

func TestReadersOfBadArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"status without a name":        {args: []string{"status"}, want: "accepts 1 arg"},
		"status in an unknown format":  {args: []string{"status", "orders", "-o", "table"}, want: `--output "table": use json or yaml`},
		"fence without an instance":    {args: []string{"fence", "orders"}, want: "requires at least 2 arg"},
		"rotate with a target":         {args: []string{"rotate", "orders", "orders-1"}, want: "accepts 1 arg"},
		"a kubeconfig that is missing": {args: []string{"status", "orders", "--kubeconfig", "/does/not/exist"}, want: "read the kubeconfig"},
		"a command that is unknown":    {args: []string{"promote", "orders"}, want: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			root := New(Config{Streams: Streams{Out: &strings.Builder{}, Err: &strings.Builder{}}, Now: func() time.Time { return noon }})
			root.SetArgs(tc.args)
			err := root.Execute()
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tc.want)
			}
		})
	}
}
