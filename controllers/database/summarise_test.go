package database

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// told is what a status comes to, for tables.
type told struct {
	Phase                              v1.Phase
	Ready                              string
	IsReady, Reconciling, Stalled, Dur string
}

func toldOf(s v1.DatabaseStatus) told {
	c := func(kind string) string {
		c := meta.FindStatusCondition(s.Conditions, kind)
		return string(c.Status) + " " + c.Reason
	}
	return told{s.Phase, s.Ready, c(v1.ConditionReady), c(v1.ConditionReconciling), c(v1.ConditionStalled), c(v1.ConditionDurable)}
}

func TestALeaderThatIsTheOnlyVoterIsNotSaidToWait(t *testing.T) {
	s := settled(2)
	s.report("orders-1", func(r *engine.Report) { r.InSync, r.SyncWanted = 0, 0 })
	got := durable(s.Seen, decide(s.Seen, surroundings(), noon()))
	if got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, "writes wait for no replica") {
		t.Errorf("Durable is %s: %s", got.Status, got.Message)
	}
}

// TestMessagesAreOfOneLine: errors that were joined, and words of other programs, come in several, and in any length.
func TestMessagesAreOfOneLine(t *testing.T) {
	s := settled(3)
	s.report("orders-3", func(r *engine.Report) { r.Ready, r.Problem = false, "first\n  second\r\n\nthird" })
	failed := Acted{Err: errors.Join(errors.New("apply Service orders-rw: refused"), errors.New("apply Role orders-agent: "+strings.Repeat("ü", 2000)))}
	status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), failed, noon())
	if got := status.Instances[2].Message; got != "first; second; third" {
		t.Errorf("orders-3 says %q", got)
	}
	c := meta.FindStatusCondition(status.Conditions, v1.ConditionReconciling)
	if want := "trying again: apply Service orders-rw: refused; apply Role orders-agent: ü"; !strings.HasPrefix(c.Message, want) {
		t.Errorf("message %q, want one that begins %q", c.Message, want)
	}
	if len(c.Message) > maxMessage || !strings.HasSuffix(c.Message, "ü...") {
		t.Errorf("message of %d bytes, want %d at most: ...%s", len(c.Message), maxMessage, c.Message[len(c.Message)-10:])
	}
}

func TestDurableCountsInWords(t *testing.T) {
	for want, row := range map[string]struct{ replicas, inSync, wanted int }{
		"1 replica is in step, and each write waits for it":            {2, 1, 1},
		"2 replicas are in step, and each write waits for 1 of them":   {3, 2, 1},
		"2 replicas are in step, and each write waits for both":        {4, 2, 2},
		"4 replicas are in step, and each write waits for 2 of them":   {5, 4, 2},
		"3 replicas are in step, and each write waits for all of them": {6, 3, 3},
	} {
		s := settled(int32(row.replicas))
		s.report("orders-1", func(r *engine.Report) { r.InSync, r.SyncWanted = row.inSync, row.wanted })
		if got := durable(s.Seen, decide(s.Seen, surroundings(), noon())); got.Message != want || got.Status != metav1.ConditionTrue {
			t.Errorf("Durable is %s: %q, want %q", got.Status, got.Message, want)
		}
	}
}

func TestAVolumeThatIsNearlyFullIsTold(t *testing.T) {
	for sentence, row := range map[string]struct {
		change func(*engine.Report)
		want   string
	}{
		"room is left":       {func(r *engine.Report) { r.Data = engine.VolumeUse{Size: 100, Used: 94} }, ""},
		"the data are told":  {func(r *engine.Report) { r.Data = engine.VolumeUse{Size: 100, Used: 95} }, "raise spec.storage.size"},
		"the log is told":    {func(r *engine.Report) { r.WAL = engine.VolumeUse{Size: 100, Used: 99} }, "raise spec.storage.wal.size"},
		"a problem is worse": {func(r *engine.Report) { r.Data, r.Problem = engine.VolumeUse{Size: 100, Used: 99}, "it is broken" }, "it is broken"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			s.report("orders-2", row.change)
			got := instance(s.Seen, decide(s.Seen, surroundings(), noon()), "orders-2", noon()).Message
			if !strings.Contains(got, row.want) || row.want == "" && got != "" {
				t.Errorf("it says %q, want %q", got, row.want)
			}
		})
	}
}

func TestSummarise(t *testing.T) {
	good := told{v1.PhaseRunning, "3/3", "True AllReady", "False Settled", "False Settled", "True Majority"}
	with := func(change func(*told)) told { x := good; change(&x); return x }
	for sentence, row := range map[string]struct {
		scene func() *scene
		acted Acted
		want  told
	}{
		"a settled Database runs": {scene: func() *scene { return settled(3) }, want: good},
		"a new one is being created": {
			scene: func() *scene { return empty(3) },
			want:  told{v1.PhaseCreating, "0/3", "False Creating", "True Creating", "False Settled", "Unknown NoPrimary"},
		},
		"a new one that lacks a Secret is pending": {
			scene: func() *scene { s := empty(3); s.Secrets.Problem = &Finding{v1.ReasonSecretMissing, "x"}; return s },
			want:  told{v1.PhasePending, "0/3", "False Creating", "False Settled", "True SecretMissing", "Unknown NoPrimary"},
		},
		"a new one is being created until all its replicas are there": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Status.Phase = v1.PhaseCreating
				s.report("orders-3", func(r *engine.Report) { r.Ready, r.State = false, "cloning" })
				return s
			},
			want: with(func(x *told) { x.Phase, x.Ready, x.IsReady = v1.PhaseCreating, "2/3", "False Creating" }),
		},
		"a replica that fails degrades it": {
			scene: func() *scene {
				s := settled(3)
				s.report("orders-3", func(r *engine.Report) { r.Ready = false })
				return s
			},
			want: with(func(x *told) { x.Phase, x.Ready, x.IsReady = v1.PhaseDegraded, "2/3", "False InstancesNotReady" }),
		},
		"without a primary it is down": {
			scene: func() *scene {
				s := settled(3)
				s.report("orders-1", func(r *engine.Report) { r.Ready, r.Role, r.Leading = false, engine.Stopped, false })
				return s
			},
			want: with(func(x *told) {
				x.Phase, x.Ready, x.IsReady, x.Dur = v1.PhaseDown, "2/3", "False NoPrimary", "Unknown NoPrimary"
			}),
		},
		"a leader whose volume is full is down, and says why": {
			scene: func() *scene {
				s := settled(3)
				s.report("orders-1", func(r *engine.Report) {
					r.Ready, r.Role, r.Reason, r.Problem = false, engine.Stopped, v1.ReasonVolumeFull, "the data volume is full"
				})
				return s
			},
			want: with(func(x *told) {
				x.Phase, x.Ready, x.IsReady, x.Dur = v1.PhaseDown, "2/3", "False VolumeFull", "Unknown NoPrimary"
			}),
		},
		"a leader that goes on with a full volume degrades it": {
			scene: func() *scene {
				s := settled(3)
				s.report("orders-1", func(r *engine.Report) { r.Reason, r.Problem = v1.ReasonVolumeFull, "the data volume is full" })
				return s
			},
			want: with(func(x *told) { x.Phase, x.IsReady = v1.PhaseDegraded, "False VolumeFull" }),
		},
		"a leader that is silent is not known to serve, even if its pod is ready": {
			scene: func() *scene { s := settled(3); s.silence("orders-1"); return s },
			want: with(func(x *told) {
				x.Phase, x.IsReady, x.Dur = v1.PhaseDegraded, "Unknown LeaderSilent", "Unknown NoPrimary"
			}),
		},
		"a leader that nobody hears is down": {
			scene: func() *scene {
				s := settled(3)
				s.silence("orders-1")
				s.Pods["orders-1"].Status.Conditions = nil
				return s
			},
			want: with(func(x *told) {
				x.Phase, x.Ready, x.IsReady, x.Dur = v1.PhaseDown, "2/3", "False NoPrimary", "Unknown NoPrimary"
			}),
		},
		"a replica that is silent is ready if its pod has been so for long": {
			scene: func() *scene { s := settled(3); s.silence("orders-3"); return s },
			want:  good,
		},
		"a change under way is told": {
			scene: func() *scene { s := settled(3); big(s); return s.quiet() },
			want:  with(func(x *told) { x.Phase, x.Reconciling = v1.PhaseChanging, "True Changing" }),
		},
		"a pause is told": {
			scene: func() *scene { s := settled(3); s.Database.Spec.Maintenance.Paused = true; return s },
			want:  with(func(x *told) { x.Reconciling = "False Paused" }),
		},
		"a hibernated one sleeps": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Maintenance.Hibernated = true
				s.Pods, s.Heard = map[string]*corev1.Pod{}, map[string]Heard{}
				return s
			},
			want: told{v1.PhaseHibernated, "0/3", "False Hibernated", "False Hibernated", "False Settled", "Unknown NoPrimary"},
		},
		"too few in step: writes wait": {
			scene: func() *scene {
				s := settled(3)
				s.report("orders-1", func(r *engine.Report) { r.InSync = 0 })
				return s
			},
			want: with(func(x *told) { x.Phase, x.IsReady, x.Dur = v1.PhaseDegraded, "False NoMajority", "False NoMajority" }),
		},
		"a replica to which no Service leads yet is not ready": {
			scene: func() *scene {
				s := settled(3)
				s.Pods["orders-3"].Status.Conditions = nil
				return s
			},
			want: with(func(x *told) { x.Phase, x.Ready, x.IsReady = v1.PhaseDegraded, "2/3", "False InstancesNotReady" }),
		},
		"a single instance waits for nobody": {
			scene: func() *scene { return settled(1) },
			want:  with(func(x *told) { x.Ready, x.Dur = "1/1", "False Asynchronous" }),
		},
		"replicas that nobody waits for do not make a write durable": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Replication.Synchronous = v1.SynchronousNone
				s.obey()
				return s
			},
			want: with(func(x *told) { x.Dur = "False Asynchronous" }),
		},
		"what failed is tried again, and said": {
			scene: func() *scene { return settled(3) }, acted: Acted{Err: errors.New("the API server is busy")},
			want: with(func(x *told) { x.Reconciling = "True Changing" }),
		},
		"a fence that fences nothing is told": {
			scene: func() *scene {
				s := settled(3)
				s.annotate(v1.AnnotationFence, "order-1")
				return s
			},
			want: with(func(x *told) { x.Stalled = "True InvalidAnnotation" }),
		},
		"a Secret that another Database made in the meantime is left to it, and said": {
			scene: func() *scene { return settled(3) },
			acted: Acted{Foreign: &ssa.ForeignError{Kind: "Secret", Namespace: "shop", Name: "orders-ca", Holder: "Database billing (uid u2)"}},
			want:  with(func(x *told) { x.Stalled = "True SecretConflict" }),
		},
		"another object of its name that is someone else's is left to them, and said": {
			scene: func() *scene { return settled(3) },
			acted: Acted{Foreign: &ssa.ForeignError{Kind: "Service", Namespace: "shop", Name: "orders-rw", Holder: "someone else"}},
			want:  with(func(x *told) { x.Stalled = "True NameConflict" }),
		},
		"a Database that goes away is deleting": {
			scene: func() *scene { s := settled(3); s.Database.DeletionTimestamp = gone(); return s },
			want:  with(func(x *told) { x.Phase = v1.PhaseDeleting }),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := row.scene()
			before := s.Database.DeepCopy()
			status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), row.acted, noon())
			if sentence == "a Database that goes away is deleting" {
				row.want.IsReady, row.want.Reconciling = toldOf(status).IsReady, toldOf(status).Reconciling // nobody reads them any more
			}
			if diff := cmp.Diff(row.want, toldOf(status)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, s.Database); diff != "" {
				t.Errorf("summarise changed what it was given:\n%s", diff)
			}
			s.Database.Status = status
			again := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), row.acted, noon().Add(slowResync))
			if diff := cmp.Diff(status, again); diff != "" {
				t.Errorf("the same state is told in another way later, which would write to the API server for ever:\n%s", diff)
			}
		})
	}
}

func TestANewPodIsNotTakenForReadyUnheard(t *testing.T) {
	s := settled(3)
	s.Database.Status.Instances = []v1.InstanceStatus{{Name: "orders-3", Version: "15.18"}}
	s.silence("orders-3")
	s.Pods["orders-3"].Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon())
	told := func(at time.Time) v1.InstanceStatus {
		return summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, at).Instances[2]
	}
	if now := told(noon()); now.Ready || now.State != "silent" || now.Version != "15.18" {
		t.Errorf("at first: %+v", now)
	}
	if later := told(noon().Add(silentAfter + time.Second)); !later.Ready {
		t.Errorf("later: %+v", later)
	}
}

func TestEffectiveParametersAreToldAsTheyHold(t *testing.T) {
	s := settled(3)
	s.Database.Spec.Parameters = v1.Parameters{"max_connections": "200"}
	status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	got := status.Effective.Parameters
	if _, mine := got["max_connections"]; mine || got["wal_level"] != "replica" || got["hot_standby"] != "on" {
		t.Errorf("effective parameters: %v", got)
	}
}

func TestHandOversAreKeptNewestFirst(t *testing.T) {
	s := settled(2)
	at := noon().UnixMilli()
	s.report("orders-2", func(r *engine.Report) {
		r.HandOver = &engine.HandOver{Epoch: 12, From: "orders-1", Cause: "switchover", Waited: "14.2 s for the API server", Released: at - 400, Elected: at - 300, Promoted: at - 100, Routed: at}
	})
	s.report("orders-1", func(r *engine.Report) { r.HandOver = &engine.HandOver{Epoch: 11, Cause: "expired"} }) // not promoted yet
	var known []v1.HandOver
	for epoch := int64(10); epoch > 0; epoch-- {
		known = append(known, v1.HandOver{Epoch: epoch})
	}
	got := handOvers(known, s.Seen)
	if len(got) != maxHandOvers {
		t.Fatalf("%d are kept", len(got))
	}
	want := v1.HandOver{
		Epoch: 12, From: "orders-1", To: "orders-2", Cause: "switchover", Waited: "14.2 s for the API server", At: metav1.NewTime(noon().Truncate(1e9).Add(-1e9)), DurationMillis: 400,
		LostBytes: new(int64), Loss: "nothing: the old leader handed over all that it had",
		Steps: []v1.HandOverStep{{Name: "released"}, {Name: "elected", AfterMillis: 100}, {Name: "promoted", AfterMillis: 300}, {Name: "routed", AfterMillis: 400}},
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	if got[9].Epoch != 2 {
		t.Errorf("the oldest kept is of epoch %d", got[9].Epoch)
	}
}

// TestWhatWasAskedForIsNoWarning: a Database of one instance begins with it.
func TestWhatWasAskedForIsNoWarning(t *testing.T) {
	now := summarise(settled(1).Seen, decide(settled(1).Seen, surroundings(), noon()), Acted{}, noon())
	for _, o := range changes(v1.DatabaseStatus{}, now) {
		if o.Type == corev1.EventTypeWarning {
			t.Errorf("a warning: %+v", o)
		}
	}
}

func TestChangesTellOnce(t *testing.T) {
	s := settled(3)
	now := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	if got := changes(now, now); len(got) > 0 {
		t.Errorf("nothing changed, and yet: %v", got)
	}
	s.Database.Status = now
	s.report("orders-3", func(r *engine.Report) { r.Ready = false })
	later := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	want := []occurrence{{corev1.EventTypeWarning, v1.ReasonInstancesNotReady, "Serve", "2/3 instances are ready: waiting for orders-3"}}
	if diff := cmp.Diff(want, changes(now, later)); diff != "" {
		t.Error(diff)
	}
	s.Database.Status = later
	s.report("orders-2", func(r *engine.Report) { r.Ready = false })
	worse := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	if got := changes(later, worse); len(got) > 0 {
		t.Errorf("it was told before: %v", got)
	}
	s.Database.Status = worse
	s.report("orders-1", func(r *engine.Report) {
		r.Reason, r.Problem = v1.ReasonVolumeFull, "the data volume is full: raise spec.storage.size"
	})
	full := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
	want = []occurrence{{corev1.EventTypeWarning, v1.ReasonVolumeFull, "Serve", "orders-1: the data volume is full: raise spec.storage.size"}}
	if diff := cmp.Diff(want, changes(worse, full)); diff != "" {
		t.Errorf("a full volume is no news beside replicas that are not ready (-want +got):\n%s", diff)
	}
}
