package database

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func allAims(tail string) []string {
	return []string{"orders-1: members 1,2,3 epoch 1" + tail, "orders-2: members 1,2,3 epoch 1" + tail, "orders-3: members 1,2,3 epoch 1" + tail}
}

func gone() *metav1.Time { t := metav1.NewTime(noon()); return &t }

// big gives a settled scene other resources, so that every pod is outdated.
func big(s *scene) {
	s.Database.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
}

// renew makes an instance's pod of what the spec asks for now.
func (s *scene) renew(n int32) {
	heard := s.Heard[name(n)]
	s.instance(n)
	s.Heard[name(n)] = heard
}

func TestDecide(t *testing.T) {
	const window = "1772366400" // the two minutes that noon is in
	for sentence, row := range map[string]struct {
		scene func() *scene
		want  gist
	}{
		"a settled Database has nothing to do": {
			scene: func() *scene { return settled(3) },
			want:  gist{},
		},
		"a new Database gets its first instance alone, and the Lease names it": {
			scene: func() *scene { return empty(3) },
			want: gist{
				Working: "Creating: starting orders-1", Pods: []string{"orders-1"}, Claims: []string{"orders-1 10Gi"}, Bootstrap: "orders-1",
			},
		},
		"the first instance may initialise by the Lease's own word": {
			scene: func() *scene {
				s := empty(3)
				s.instance(1)
				s.Lease = settled(1).Lease.DeepCopy()
				s.Lease.Annotations = map[string]string{v1.AnnotationBootstrap: "orders-1"}
				return s
			},
			want: gist{
				Working: "Creating: orders-2 waits for the first instance", Bootstrap: "orders-1",
				Aims: []string{"orders-1: members 1,2,3 epoch 0 bootstrap orders-1"},
			},
		},
		"once the first leads, all others are made at once": {
			scene: func() *scene {
				s := empty(3)
				s.instance(1)
				s.lead(1, 1)
				s.obey()
				return s
			},
			want: gist{Working: "Creating: starting orders-2", Pods: []string{"orders-2", "orders-3"}, Claims: []string{"orders-2 10Gi", "orders-3 10Gi"}},
		},
		"a lost Lease never lets anyone initialise again": {
			scene: func() *scene { s := settled(1); s.Lease = nil; s.silence("orders-1"); return s },
			want:  gist{Working: "Changing: waiting for orders-1 to get a vote"},
		},
		"without Lease and status, a volume of a further instance shows that one led": {
			scene: func() *scene { s := empty(3); s.claim(2, "10Gi", "10Gi"); return s },
			want: gist{
				Working: "Creating: starting orders-1", Pods: []string{"orders-1"}, Claims: []string{"orders-1 10Gi"},
			},
		},
		"volumes of an earlier Database are not touched": {
			scene: func() *scene {
				s := empty(3)
				s.claim(1, "10Gi", "10Gi")
				s.Claims["orders-1"].Annotations[v1.AnnotationDatabaseUID] = "u0"
				return s
			},
			want: gist{Stalled: "VolumesExist: volumes of an earlier Database of this name exist: orders-1; delete these PersistentVolumeClaims, or choose another name"},
		},
		"a missing Secret stops a new Database": {
			scene: func() *scene {
				s := empty(3)
				s.Secrets.Problem = &Finding{v1.ReasonSecretMissing, "Secret x does not exist"}
				return s
			},
			want: gist{Stalled: "SecretMissing: Secret x does not exist"},
		},
		"a missing Secret does not keep a running Database from its lost pod": {
			scene: func() *scene {
				s := settled(3)
				s.Secrets.Problem = &Finding{v1.ReasonSecretMissing, "Secret x does not exist"}
				delete(s.Pods, "orders-3")
				s.silence("orders-3")
				return s
			},
			want: gist{Stalled: "SecretMissing: Secret x does not exist", Working: "Changing: starting orders-3", Pods: []string{"orders-3"}},
		},
		"a spec that breaks a rule does not keep a running Database from its lost pod": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Parameters = v1.Parameters{"fsync": "off"}
				delete(s.Pods, "orders-3")
				s.silence("orders-3")
				return s
			},
			want: gist{Stalled: `InvalidSpec: spec.parameters[fsync]: Invalid value: "off": fsync must stay on: without it a crash destroys the data`, Working: "Changing: starting orders-3", Pods: []string{"orders-3"}},
		},
		"an unknown engine is refused": {
			scene: func() *scene { s := empty(1); s.Database.Spec.Engine = "oracle"; return s },
			want:  gist{Stalled: `InvalidSpec: spec.engine: "oracle" is not known; use postgres`},
		},
		"a Database that is deleted is left to the garbage collector": {
			scene: func() *scene {
				s := settled(3)
				s.Database.DeletionTimestamp = gone()
				delete(s.Pods, "orders-2")
				return s
			},
			want: gist{},
		},
		"a paused Database is left alone": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Maintenance.Paused = true
				delete(s.Pods, "orders-2")
				return s
			},
			want: gist{},
		},
		"a lost pod is made again under its name": {
			scene: func() *scene { s := settled(3); delete(s.Pods, "orders-1"); s.silence("orders-1"); return s },
			want:  gist{Working: "Changing: starting orders-1", Pods: []string{"orders-1"}},
		},
		"a pod that is ending is waited for": {
			scene: func() *scene {
				s := settled(3)
				s.Pods["orders-2"].DeletionTimestamp = gone()
				s.silence("orders-2")
				return s
			},
			want: gist{Working: "Changing: waiting for the old pod of orders-2 to end"},
		},
		"a pod that failed for good is cleared away": {
			scene: func() *scene {
				s := settled(3)
				s.Pods["orders-2"].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
				s.silence("orders-2")
				return s
			},
			want: gist{Working: "Changing: replacing orders-2: its pod ended: Evicted", Remove: []string{"pod orders-2"}},
		},
		"a volume that is going is waited for, and no pod is made on it": {
			scene: func() *scene {
				s := settled(3)
				s.Claims["orders-3"].DeletionTimestamp = gone()
				delete(s.Pods, "orders-3")
				s.silence("orders-3")
				return s
			},
			want: gist{Working: "Changing: waiting for the deleted volume orders-3 to go"},
		},
		"scaling up makes the new ones at once": {
			scene: func() *scene { s := settled(3); s.Database.Spec.Replicas = new(int32(5)); return s },
			want: gist{
				Working: "Changing: starting orders-4", Pods: []string{"orders-4", "orders-5"}, Claims: []string{"orders-4 10Gi", "orders-5 10Gi"},
				Aims: []string{"orders-1: members 1,2,3,4,5 epoch 1", "orders-2: members 1,2,3,4,5 epoch 1", "orders-3: members 1,2,3,4,5 epoch 1"},
			},
		},
		"scaling down first asks the leader to take the vote away": {
			scene: func() *scene { s := settled(3); s.Database.Spec.Replicas = new(int32(2)); return s },
			want: gist{
				Working: "Changing: removing orders-3: waiting for orders-1 to take its vote away",
				Pods:    []string{"orders-w1"},
				Aims:    []string{"orders-1: members 1,2 epoch 1", "orders-2: members 1,2 epoch 1", "orders-3: members 1,2 epoch 1"},
			},
		},
		"scaling down waits for the leader's own word, too": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Replicas = new(int32(2))
				s.obey()
				s.voters("orders-1", "orders-2")
				s.report("orders-1", func(r *engine.Report) { r.Voters = []string{"orders-1", "orders-2", "orders-3"} })
				return s
			},
			want: gist{Working: "Changing: removing orders-3: waiting for orders-1 to take its vote away", Pods: []string{"orders-w1"}},
		},
		"scaling down then deletes the pod": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Replicas = new(int32(2))
				s.obey()
				s.voters("orders-1", "orders-2")
				return s
			},
			want: gist{Working: "Changing: removing orders-3", Remove: []string{"pod orders-3"}, Pods: []string{"orders-w1"}},
		},
		"a volume that is to be kept outlives its instance": {
			scene: func() *scene { s := settled(2); s.claim(3, "10Gi", "10Gi"); return s },
			want:  gist{},
		},
		"a volume that is to be deleted goes after its instance": {
			scene: func() *scene {
				s := settled(2)
				s.claim(3, "10Gi", "10Gi")
				s.Database.Spec.DeletionPolicy = v1.DeletionDelete
				return s
			},
			want: gist{Remove: []string{"volume orders-3"}},
		},
		"changed resources replace the replica with the highest number first": {
			scene: func() *scene { s := settled(3); big(s); s.obey(); return s },
			want:  gist{Working: "Changing: replacing orders-3: its pod's spec changed", Remove: []string{"pod orders-3"}},
		},
		"nothing is replaced while another is not healthy": {
			scene: func() *scene {
				s := settled(3)
				big(s)
				s.obey()
				s.report("orders-2", func(r *engine.Report) { r.Ready = false })
				return s
			},
			want: gist{Working: "Changing: waiting for orders-2 to become ready before orders-3 is replaced"},
		},
		"nothing is replaced while the leader does not count another, though that serves reads": {
			scene: func() *scene {
				s := settled(3)
				big(s)
				s.renew(3)
				s.obey()
				s.streaming("orders-2")
				return s
			},
			want: gist{Working: "Changing: waiting for orders-3 to be in step with orders-1 before orders-2 is replaced"},
		},
		"one that the leader does not count is replaced before all others": {
			scene: func() *scene { s := settled(3); big(s); s.obey(); s.streaming("orders-3"); return s },
			want:  gist{Working: "Changing: replacing orders-2: its pod's spec changed", Remove: []string{"pod orders-2"}},
		},
		"nobody is replaced while the leader is silent, for whom it counts is not known": {
			scene: func() *scene { s := settled(3); big(s); s.obey(); s.silence("orders-1"); return s },
			want:  gist{Working: "Changing: waiting for orders-1 to become ready before orders-3 is replaced"},
		},
		"the leader does not hand over while it does not count a replica": {
			scene: func() *scene {
				s := settled(3)
				big(s)
				s.renew(2)
				s.renew(3)
				s.streaming("orders-2")
				s.obey()
				return s
			},
			want: gist{Working: "Changing: waiting for orders-3 to be in step with orders-1 before the leadership of orders-1 is handed over"},
		},
		"no server is restarted for a parameter while the leader does not count another": {
			scene: func() *scene {
				s := settled(3)
				for _, n := range []int32{1, 2} {
					s.report(name(n), func(r *engine.Report) { r.RestartPending = []string{"shared_buffers"} })
				}
				s.streaming("orders-2")
				return s
			},
			want: gist{Working: "Changing: waiting for orders-3 to be in step with orders-1 before orders-2 is restarted"},
		},
		"one that does not start is replaced before all others": {
			scene: func() *scene {
				s := settled(3)
				big(s)
				s.obey()
				s.Pods["orders-2"].Status.Conditions = nil
				s.silence("orders-2")
				return s
			},
			want: gist{Working: "Changing: replacing orders-2: its pod's spec changed", Remove: []string{"pod orders-2"}},
		},
		"the leader hands over before its pod is replaced": {
			scene: func() *scene {
				s := settled(3)
				big(s)
				s.renew(2)
				s.renew(3)
				s.obeyAllBut("orders-1")
				return s
			},
			want: gist{
				Working: "Changing: handing over from orders-1 to orders-2",
				Aims:    []string{"orders-1: members 1,2,3 epoch 1 switchover roll-orders-2-1-" + window + " to orders-2"},
			},
		},
		"a single instance is replaced in place": {
			scene: func() *scene { s := settled(1); big(s); s.obey(); return s },
			want:  gist{Working: "Changing: replacing orders-1: its pod's spec changed", Remove: []string{"pod orders-1"}},
		},
		"a pending parameter restarts a replica first": {
			scene: func() *scene {
				s := settled(3)
				for _, n := range []int32{1, 2, 3} {
					s.report(name(n), func(r *engine.Report) { r.RestartPending = []string{"shared_buffers"} })
				}
				return s
			},
			want: gist{Working: "Changing: restarting orders-2: replicas first", Aims: []string{"orders-2: members 1,2,3 epoch 1 restart parameters"}},
		},
		"a restart that was asked for stays asked for while its server is down": {
			scene: func() *scene {
				s := settled(3)
				s.Asked = map[string]string{"orders-2": "parameters-abc"}
				s.report("orders-2", func(r *engine.Report) { r.Ready, r.State = false, "starting" })
				return s
			},
			want: gist{Aims: []string{"orders-2: members 1,2,3 epoch 1 restart parameters"}},
		},
		"a fence stops one server and leaves its pod": {
			scene: func() *scene { s := settled(3); s.Database.Spec.Maintenance.Fenced = []string{"orders-2"}; return s },
			want:  gist{Aims: []string{"orders-2: members 1,2,3 epoch 1 stop"}},
		},
		"a fence by annotation on all stops all": {
			scene: func() *scene { s := settled(3); s.annotate(v1.AnnotationFence, "*"); return s },
			want:  gist{Aims: allAims(" stop")},
		},
		"hibernation stops the replicas first": {
			scene: func() *scene { s := settled(3); s.Database.Spec.Maintenance.Hibernated = true; return s },
			want:  gist{Working: "Changing: stopping 3 instances", Aims: allAims(" stop")[1:]},
		},
		"hibernation stops the primary once the replicas are": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Maintenance.Hibernated = true
				s.obey()
				for _, n := range []int32{2, 3} {
					s.report(name(n), func(r *engine.Report) { r.Role, r.State, r.Ready = engine.Stopped, "stopped", false })
				}
				return s
			},
			want: gist{Working: "Changing: stopping 3 instances", Aims: allAims(" stop")[:1]},
		},
		"hibernation removes the pods once all servers are stopped": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Maintenance.Hibernated = true
				for _, n := range []int32{1, 2, 3} {
					s.report(name(n), func(r *engine.Report) { r.Role, r.State, r.Ready = engine.Stopped, "stopped", false })
				}
				s.obey()
				return s
			},
			want: gist{Working: "Changing: stopping 3 instances", Remove: []string{"pod orders-1", "pod orders-2", "pod orders-3"}},
		},
		"a bigger size grows every volume": {
			scene: func() *scene {
				s := settled(3)
				s.Database.Spec.Storage.Size = resource.MustParse("20Gi")
				return s.quiet()
			},
			want: gist{
				Working: "Changing: growing volume orders-1 to 20Gi", Claims: []string{"orders-1 20Gi", "orders-2 20Gi", "orders-3 20Gi"},
			},
		},
		"a volume waits for its file system": {
			scene: func() *scene {
				s := settled(1)
				s.Database.Spec.Storage.Size = resource.MustParse("20Gi")
				s.claim(1, "20Gi", "10Gi")
				s.Claims["orders-1"].Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
				return s.quiet()
			},
			want: gist{Working: "Changing: growing volume orders-1 to 20Gi: waiting for its node to grow the file system"},
		},
		"a full volume grows by a step": {
			scene: func() *scene {
				s := settled(1)
				s.Database.Spec.Storage.Growth = &v1.GrowthSpec{MaxSize: resource.MustParse("100Gi")}
				s.report("orders-1", func(r *engine.Report) { r.Data.Used = r.Data.Size * 81 / 100 })
				return s.quiet()
			},
			want: gist{Working: "Changing: growing volume orders-1 to 13Gi", Claims: []string{"orders-1 13Gi"}},
		},
		"a full volume never grows past its bound": {
			scene: func() *scene {
				s := settled(1)
				s.Database.Spec.Storage.Growth = &v1.GrowthSpec{MaxSize: resource.MustParse("11Gi"), StepPercent: new(int32(200))}
				s.report("orders-1", func(r *engine.Report) { r.Data.Used = r.Data.Size })
				return s.quiet()
			},
			want: gist{Working: "Changing: growing volume orders-1 to 11Gi", Claims: []string{"orders-1 11Gi"}},
		},
		"a volume that still grows does not grow again": {
			scene: func() *scene {
				s := settled(1)
				s.Database.Spec.Storage.Growth = &v1.GrowthSpec{MaxSize: resource.MustParse("100Gi")}
				size := resource.MustParse("13Gi")
				s.Database.Status.Effective = &v1.EffectiveSpec{StorageSize: &size}
				s.claim(1, "13Gi", "10Gi")
				s.report("orders-1", func(r *engine.Report) { r.Data.Used = r.Data.Size })
				return s.quiet()
			},
			want: gist{Working: "Changing: growing volume orders-1 to 13Gi"},
		},
		"an image that cannot be pulled is named with the kubelet's cause": {
			scene: func() *scene {
				s := settled(1)
				s.silence("orders-1")
				s.Pods["orders-1"].Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "x:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "ImagePullBackOff", Message: `Back-off pulling image "x:1": ErrImagePull: manifest unknown`,
				}}}}
				return s
			},
			want: gist{Stalled: "ImagePull: orders-1: image x:1 cannot be pulled: manifest unknown; correct spec.image, spec.version or spec.imagePullSecrets"},
		},
		"a pod without a node is told in the scheduler's words": {
			scene: func() *scene {
				s := settled(1)
				s.silence("orders-1")
				s.Pods["orders-1"].Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
				}}
				return s
			},
			want: gist{Stalled: "Unschedulable: orders-1: 0/3 nodes are available; add nodes, lower spec.resources or relax spec.scheduling"},
		},
		"a server that fails is told": {
			scene: func() *scene {
				s := settled(1)
				s.report("orders-1", func(r *engine.Report) { r.State, r.Ready, r.Problem = "failed", false, "could not open pg_control" })
				return s
			},
			want: gist{Stalled: "ServerFailed: orders-1: could not open pg_control"},
		},
		"a later epoch than the Lease shows is believed of the member that leads": {
			scene: func() *scene {
				s := settled(3)
				s.report("orders-2", func(r *engine.Report) { r.Leading, r.Epoch, r.Role = true, 2, engine.Primary })
				return s
			},
			want: gist{Aims: []string{"orders-1: members 1,2,3 epoch 2", "orders-2: members 1,2,3 epoch 2", "orders-3: members 1,2,3 epoch 2"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, got := play(t, row.scene())
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// quiet is a scene whose agents have the aims that fit it: sizes are part of the configuration.
func (s *scene) quiet() *scene { s.obey(); return s }

// obeyAllBut lets the others take their aims.
func (s *scene) obeyAllBut(instance string) {
	before := s.Heard[instance].Report.Revision
	s.obey()
	s.report(instance, func(r *engine.Report) { r.Revision = before })
}

func TestRequestsOfPeople(t *testing.T) {
	in := func(d time.Duration) string { return noon().Add(d).Format(time.RFC3339) }
	ask := func(id, target string, d time.Duration) string {
		return `{"id":"` + id + `","target":"` + target + `","expires":"` + in(d) + `"}`
	}
	switchover := func(s *scene, raw string) *scene { s.annotate(v1.AnnotationSwitchover, raw); return s }
	restart := func(s *scene, raw string) *scene { s.annotate(v1.AnnotationRestart, raw); return s }
	done := func(s *scene, names ...string) *scene {
		for _, n := range names {
			s.report(n, func(r *engine.Report) { r.RestartDone = "request-r" })
		}
		return s
	}
	for sentence, row := range map[string]struct {
		scene *scene
		want  gist
	}{
		"a switchover goes to the leader": {
			scene: switchover(settled(3), ask("s", "orders-2", time.Minute)),
			want: gist{
				Working: "Changing: handing over from orders-1 as requested", Answers: []string{"switchover s: Running"},
				Aims: []string{"orders-1: members 1,2,3 epoch 1 switchover s to orders-2"},
			},
		},
		"a switchover to an unknown instance fails": {
			scene: switchover(settled(3), ask("s", "orders-7", time.Minute)),
			want:  gist{Answers: []string{"switchover s: Failed, there is no instance orders-7"}},
		},
		"a switchover to the leader is done": {
			scene: switchover(settled(3), ask("s", "orders-1", time.Minute)),
			want:  gist{Answers: []string{"switchover s: Done, orders-1 leads"}},
		},
		"a switchover of a single instance fails": {
			scene: switchover(settled(1), ask("s", "", time.Minute)),
			want:  gist{Answers: []string{"switchover s: Failed, there is no replica to hand over to"}},
		},
		"a switchover that came too late is told so": {
			scene: switchover(settled(3), ask("s", "orders-2", -time.Second)),
			want:  gist{Answers: []string{"switchover s: Expired, it was not carried out in time"}},
		},
		"an agent's answer is passed on": {
			scene: func() *scene {
				s := switchover(settled(3), ask("s", "orders-2", -time.Second))
				s.report("orders-2", func(r *engine.Report) {
					r.Requests = []engine.Answer{{ID: "s", State: "Failed", Message: "the target is behind"}}
				})
				return s
			}(),
			want: gist{Answers: []string{"switchover s: Failed, the target is behind"}},
		},
		"the Lease's word that it was carried out is enough": {
			scene: func() *scene {
				s := switchover(settled(3), ask("s", "", time.Minute))
				s.Lease.Annotations[v1.AnnotationLeadership] = `{"epoch":1,"leader":"orders-1","voters":["orders-1","orders-2","orders-3"],"switchover":"s"}`
				return s
			}(),
			want: gist{Answers: []string{"switchover s: Done, orders-1 leads"}},
		},
		"what was answered is not done again": {
			scene: func() *scene {
				s := switchover(settled(3), ask("s", "orders-2", time.Minute))
				s.Database.Status.Requests = []v1.RequestStatus{{ID: "s", Kind: "switchover", State: v1.RequestDone}}
				return s
			}(),
		},
		"a request that is no JSON is answered": {
			scene: switchover(settled(3), "now!"),
			want:  gist{Answers: []string{`switchover malformed-switchover: Failed, the annotation is not JSON of the form {"id":"...","target":"...","expires":"2026-01-02T15:04:05Z"}`}},
		},
		"a request without an expiry is answered": {
			scene: switchover(settled(3), `{"id":"s"}`),
			want:  gist{Answers: []string{"switchover s: Failed, expires must be a time such as 2026-01-02T15:04:05Z"}},
		},
		"a restart begins with a replica": {
			scene: restart(settled(3), ask("r", "", time.Minute)),
			want: gist{
				Working: "Changing: restarting orders-2 as requested", Answers: []string{"restart r: Running"},
				Aims: []string{"orders-2: members 1,2,3 epoch 1 restart request"},
			},
		},
		"a restart waits for the one before to be healthy": {
			scene: func() *scene {
				s := done(restart(settled(3), ask("r", "", time.Minute)), "orders-2")
				s.report("orders-2", func(r *engine.Report) { r.Ready = false })
				return s.quiet()
			}(),
			want: gist{Working: "Changing: waiting for orders-2 to become ready before orders-3 is restarted", Answers: []string{"restart r: Running"}},
		},
		"a restart waits until the leader counts the one before": {
			scene: func() *scene {
				s := done(restart(settled(3), ask("r", "", time.Minute)), "orders-2")
				s.streaming("orders-3")
				return s.quiet()
			}(),
			want: gist{Working: "Changing: waiting for orders-2 to be in step with orders-1 before orders-3 is restarted", Answers: []string{"restart r: Running"}},
		},
		"a restart of the leader by name does not wait for replicas that it may be keeping from following": {
			scene: func() *scene { s := restart(settled(3), ask("r", "orders-1", time.Minute)); s.streaming(); return s }(),
			want: gist{
				Working: "Changing: restarting orders-1 as requested", Answers: []string{"restart r: Running"},
				Aims: []string{"orders-1: members 1,2,3 epoch 1 restart request"},
			},
		},
		"a restart of all ends with a hand-over": {
			scene: func() *scene {
				s := done(restart(settled(3), ask("r", "", time.Minute)), "orders-2", "orders-3")
				s.obeyAllBut("orders-1")
				return s
			}(),
			want: gist{
				Working: "Changing: handing over from orders-1 to orders-2", Answers: []string{"restart r: Running"},
				Aims: []string{"orders-1: members 1,2,3 epoch 1 switchover restart-orders-2-1-1772366400 to orders-2"},
			},
		},
		"a restart of the leader by name is done in place": {
			scene: restart(settled(3), ask("r", "orders-1", time.Minute)),
			want: gist{
				Working: "Changing: restarting orders-1 as requested", Answers: []string{"restart r: Running"},
				Aims: []string{"orders-1: members 1,2,3 epoch 1 restart request"},
			},
		},
		"a restart is done when all are through and healthy": {
			scene: done(restart(settled(3), ask("r", "", -time.Minute)), "orders-1", "orders-2", "orders-3").quiet(),
			want:  gist{Answers: []string{"restart r: Done, restarted orders-1, orders-2, orders-3"}},
		},
		"a restart that was not begun in time is told so": {
			scene: restart(settled(3), ask("r", "", -time.Second)),
			want:  gist{Answers: []string{"restart r: Expired, it was not begun in time"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, got := play(t, row.scene)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestASwitchoverHasTheSameTimeInEveryPass: the aim holds no time of day, and stays the same until the request's time is over by the
// manager's clock.
func TestASwitchoverHasTheSameTimeInEveryPass(t *testing.T) {
	s := settled(3)
	s.annotate(v1.AnnotationSwitchover, `{"id":"s","target":"orders-2","expires":"`+noon().Add(time.Minute).Format(time.RFC3339)+`"}`)
	pass := func(after time.Duration) (Plan, gist) {
		plan := decide(s.Seen, surroundings(), noon().Add(after))
		s.Database.Status.Requests = withAnswers(s.Database.Status.Requests, plan.Answers)
		return plan, gistOf(s.Seen, plan)
	}
	first, _ := pass(0)
	want := &engine.Switchover{ID: "s", Target: "orders-2", Within: 60_000}
	if len(first.Aims) != 1 || !cmp.Equal(want, first.Aims[0].Aim.Switchover) {
		t.Fatalf("aims %+v, want one for the leader with %+v", first.Aims, want)
	}
	s.report("orders-1", func(r *engine.Report) { r.Revision = first.Aims[0].Revision })
	if plan, _ := pass(45 * time.Second); len(plan.Aims) != 0 {
		t.Errorf("a later pass has another aim: %+v", plan.Aims[0].Aim.Switchover)
	}
	over, got := pass(61 * time.Second)
	if diff := cmp.Diff(gist{Working: "Changing: waiting for the end of the switchover s, whose time is over", Answers: []string{"switchover s: Running"}, Aims: []string{"orders-1: members 1,2,3 epoch 1"}}, got); diff != "" {
		t.Errorf("once its time is over (-want +got):\n%s", diff)
	}
	s.report("orders-1", func(r *engine.Report) { r.Revision = over.Aims[0].Revision })
	if _, got = pass(62 * time.Second); !cmp.Equal(got.Answers, []string{"switchover s: Expired, it was not carried out in time"}) {
		t.Errorf("once the leader has let go of it: %+v", got)
	}
	if r := s.Database.Status.Requests[0]; r.StartedAt == nil || !r.StartedAt.Equal(new(metav1.NewTime(noon()))) {
		t.Errorf("it was taken up at %v, want %v", r.StartedAt, noon())
	}
}

func TestASilentLeaderIsGivenTimeToAnswer(t *testing.T) {
	s := settled(3)
	s.annotate(v1.AnnotationSwitchover, `{"id":"s","target":"orders-2","expires":"`+noon().Add(-10*time.Second).Format(time.RFC3339)+`"}`)
	s.Database.Status.Requests = []v1.RequestStatus{{ID: "s", Kind: kindSwitchover, State: v1.RequestRunning}}
	s.silence("orders-1")
	for after, want := range map[time.Duration]string{0: "switchover s: Running", 25 * time.Second: "switchover s: Expired, it was not carried out in time"} {
		got := gistOf(s.Seen, decide(s.Seen, surroundings(), noon().Add(after)))
		if !cmp.Equal(got.Answers, []string{want}) {
			t.Errorf("after %s: %v, want %s", after, got.Answers, want)
		}
	}
}

// TestAWrongNameFencesNothing: it is told, and neither starts nor stops a server, nor keeps the rest from being looked after.
func TestAWrongNameFencesNothing(t *testing.T) {
	for annotation, want := range map[string]struct {
		stops             string
		stalled, settling string
	}{
		"":                   {settling: "nothing is to do"},
		"order-2":            {stalled: "InvalidAnnotation", settling: "nothing is to do"},
		"orders-2,orders-03": {stops: "orders-2", stalled: "InvalidAnnotation", settling: "nothing is to do"},
		"orders-9":           {settling: "nothing is to do; to be fenced, but no instance: orders-9"},
	} {
		s := settled(3)
		s.annotate(v1.AnnotationFence, annotation)
		plan := decide(s.Seen, surroundings(), noon())
		stops, stalled := "", ""
		for _, a := range plan.Aims {
			if a.Aim.Stop {
				stops += a.To.Instance
			}
		}
		if plan.Stalled != nil {
			stalled = plan.Stalled.Reason
		}
		if stops != want.stops || stalled != want.stalled || settledMessage(plan) != want.settling {
			t.Errorf("%q stops %q, stalls with %q, settles with %q; want %+v", annotation, stops, stalled, settledMessage(plan), want)
		}
	}
	s := settled(3)
	s.annotate(v1.AnnotationFence, "orders-9")
	s.claim(9, "10Gi", "10Gi")
	if plan := decide(s.Seen, surroundings(), noon()); len(plan.Absent) > 0 {
		t.Errorf("%v was scaled away, and is told to be unknown", plan.Absent)
	}
}

// TestAnotherMajorIsNotRolledOntoTheData: the API server refuses it by status, which can be lost. What runs says it, too.
func TestAnotherMajorIsNotRolledOntoTheData(t *testing.T) {
	for sentence, status := range map[string]v1.DatabaseStatus{"by its status": settled(3).Database.Status, "by its servers": {}} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			s.Database.Spec.Version, s.Database.Status = "16", status
			plan, got := play(t, s)
			if plan.Stalled == nil || plan.Stalled.Reason != v1.ReasonInvalidSpec || !strings.Contains(plan.Stalled.Message, "15.18 runs") || len(got.Remove) > 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestARollStopsAtTheFirstThatDoesNotComeBack: whatever the server could not start with, the other replica and the primary keep running
// with what they have, and correcting the value is enough.
func TestARollStopsAtTheFirstThatDoesNotComeBack(t *testing.T) {
	s := settled(3)
	s.Database.Spec.Parameters = v1.Parameters{"shared_buffers": "1TB"}
	s.obey()
	for _, n := range []string{"orders-1", "orders-2", "orders-3"} {
		s.report(n, func(r *engine.Report) { r.RestartPending = []string{"shared_buffers"} })
	}
	first, got := play(t, s)
	if len(first.Aims) != 1 || first.Aims[0].To.Instance != "orders-2" || first.Aims[0].Aim.Restart == "" {
		t.Fatalf("the roll begins with %+v", got)
	}
	s.report("orders-2", func(r *engine.Report) {
		r.Revision, r.RestartDone = first.Aims[0].Revision, first.Aims[0].Aim.Restart
		r.Ready, r.Role, r.State, r.RestartPending = false, engine.Stopped, "failed", nil
		r.Problem = "the server did not start: could not map anonymous shared memory"
	})
	want := gist{
		Stalled: "ServerFailed: orders-2: the server did not start: could not map anonymous shared memory",
		Working: "Changing: waiting for orders-2 to become ready before orders-3 is restarted",
	}
	if _, got := play(t, s); !cmp.Equal(want, got) {
		t.Errorf("after it failed (-want +got):\n%s", cmp.Diff(want, got))
	}
	s.Database.Spec.Parameters = v1.Parameters{"shared_buffers": "256MB"}
	corrected, got := play(t, s)
	told := ""
	for _, a := range corrected.Aims {
		told += a.To.Instance + " "
		if a.Aim.Switchover != nil || a.To.Instance == "orders-1" && a.Aim.Restart != "" {
			t.Errorf("the primary is touched while orders-2 is down: %+v", got)
		}
	}
	if !strings.Contains(told, "orders-2") {
		t.Errorf("the correction reaches %q, not orders-2", told)
	}
}

func TestCertManagerIsAskedBeforeItsSecretExists(t *testing.T) {
	s := empty(1)
	s.Database.Spec.TLS.IssuerRef = &v1.IssuerReference{Name: "ca", Kind: "ClusterIssuer"}
	s.Secrets.Problem = &Finding{v1.ReasonSecretMissing, "not yet"}
	plan := decide(s.Seen, surroundings(), noon())
	if len(plan.Apply) != 1 || len(plan.Pods) > 0 {
		t.Fatalf("applied %v, made %d pods", plan.Apply, len(plan.Pods))
	}
	u := plan.Apply[0].(*unstructured.Unstructured)
	got, _, _ := unstructured.NestedMap(u.Object, "spec", "issuerRef")
	if diff := cmp.Diff(map[string]any{"name": "ca", "kind": "ClusterIssuer", "group": "cert-manager.io"}, got); diff != "" || u.GetName() != "orders-issued" {
		t.Errorf("%s %s", u.GetName(), diff)
	}
}
