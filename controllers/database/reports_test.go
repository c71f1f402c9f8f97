package database

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// radio is an Agents whose streams a test speaks into.
type radio struct {
	mu      sync.Mutex
	heard   func(engine.Report)
	dials   int
	broken  bool
	hangUps chan struct{}
}

func (r *radio) SetAim(context.Context, Target, engine.Aim) error       { return nil }
func (r *radio) Exchange(context.Context, Target, client.Program) error { return nil }
func (r *radio) Forget(types.NamespacedName)                            {}

func (r *radio) WatchReports(ctx context.Context, _ Target, heard func(engine.Report)) error {
	r.mu.Lock()
	r.dials++
	r.heard = heard
	broken := r.broken
	r.mu.Unlock()
	if broken {
		return errors.New("connection refused")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.hangUps:
		return errors.New("connection reset")
	}
}

func (r *radio) WatchMembers(ctx context.Context, from Target, heard func(engine.Report)) error {
	return r.WatchReports(ctx, from, heard)
}

func (r *radio) say(report engine.Report) {
	r.mu.Lock()
	heard := r.heard
	r.mu.Unlock()
	heard(report)
}

func said(change func(*engine.Report)) engine.Report {
	r := engine.Report{Instance: "orders-1", UID: "u", Role: engine.Primary, State: "running", Ready: true, Data: engine.VolumeUse{Size: 1000, Used: 100}}
	change(&r)
	return r
}

// reporting are reports that run in a bubble, until they are ended within it.
func reporting(t *testing.T, agents Agents) (*Reports, workqueue.TypedRateLimitingInterface[reconcile.Request], func()) {
	t.Helper()
	r := NewReports(agents, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	queue := workqueue.NewTypedRateLimitingQueue[reconcile.Request](workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	ended := make(chan error, 1)
	if err := r.Source().Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- r.Start(ctx) }()
	return r, queue, func() {
		queue.ShutDown()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// listening runs a test in a bubble of fake time with one agent that is followed.
func listening(t *testing.T, test func(t *testing.T, air *radio, r *Reports, woken func() int)) {
	synctest.Test(t, func(t *testing.T) {
		air := &radio{hangUps: make(chan struct{})}
		r, queue, end := reporting(t, air)
		defer end()
		r.Follow(orders(), []Target{orders1()}, "")
		synctest.Wait()
		test(t, air, r, func() int {
			synctest.Wait()
			n := queue.Len()
			for range n {
				item, _ := queue.Get()
				queue.Done(item)
			}
			return n
		})
	})
}

func orders() types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: "orders"} }

func orders1() Target {
	return Target{Namespace: "shop", Database: "orders", Instance: "orders-1", UID: "u", PodUID: "p", PodIP: "10.0.0.1"}
}

func TestReportsWakeOnAChangeOfStateAlone(t *testing.T) {
	listening(t, func(t *testing.T, air *radio, r *Reports, woken func() int) {
		for _, step := range []struct {
			what   string
			change func(*engine.Report)
			wakes  int
		}{
			{"the first word", func(*engine.Report) {}, 1},
			{"the same again", func(*engine.Report) {}, 0},
			{"a position that moves", func(r *engine.Report) { r.Position.Bytes, r.WALBytes, r.Connections, r.LagBytes = 5, 6, 7, 8 }, 0},
			{"what it has applied, and its goroutines", func(r *engine.Report) { r.Applied.Bytes, r.Goroutines = 5, 6 }, 0},
			{"a percent more of the volume", func(r *engine.Report) { r.Data.Used = 110 }, 1},
			{"another role", func(r *engine.Report) { r.Role = engine.Replica }, 1},
			{"another's word, from an address that was given away", func(r *engine.Report) { r.Instance = "billing-1" }, 0},
			{"lag of a gigabyte", func(r *engine.Report) { r.Role, r.LagBytes = engine.Replica, 1<<30 }, 1},
		} {
			air.say(said(step.change))
			if got := woken(); got != step.wakes {
				t.Errorf("%s: woken %d times, want %d", step.what, got, step.wakes)
			}
		}
	})
}

func TestRefusedLoginsWakeAtOnceAndThenOnceASecond(t *testing.T) {
	listening(t, func(t *testing.T, air *radio, r *Reports, woken func() int) {
		air.say(said(func(*engine.Report) {}))
		woken()
		wakes := 0
		for n := range 100 { // ten seconds of ten refusals each
			air.say(said(func(r *engine.Report) { r.AuthFailures = int64(n + 1) }))
			got := woken()
			if n == 0 && got != 1 {
				t.Error("the first refusal is not looked at at once")
			}
			wakes += got
			time.Sleep(100 * time.Millisecond)
		}
		if wakes < 8 || wakes > 12 {
			t.Errorf("100 refusals in 10 s woke %d times", wakes)
		}
	})
}

func TestASilentAgentIsForgottenAndDialledAgain(t *testing.T) {
	listening(t, func(t *testing.T, air *radio, r *Reports, woken func() int) {
		air.say(said(func(*engine.Report) {}))
		woken()
		air.mu.Lock()
		air.broken = true
		air.mu.Unlock()
		air.hangUps <- struct{}{}
		time.Sleep(5 * time.Second)
		if len(r.Follow(orders(), []Target{orders1()}, "")) != 1 {
			t.Error("a word of 5 s ago does not count any more")
		}
		time.Sleep(silentAfter - 5*time.Second + time.Millisecond)
		if woken() != 1 {
			t.Error("nobody was woken when the agent fell silent")
		}
		time.Sleep(18 * time.Second)
		if len(r.Follow(orders(), []Target{orders1()}, "")) != 0 {
			t.Error("a word of 30 s ago still counts")
		}
		air.mu.Lock()
		dials := air.dials
		air.mu.Unlock()
		if dials < 5 || dials > 12 {
			t.Errorf("dialled %d times in 30 s", dials)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	listening(t, func(t *testing.T, _ *radio, r *Reports, _ func() int) {
		r.mu.Lock()
		r.max = 1
		r.mu.Unlock()
		other := orders1()
		other.Instance = "orders-2"
		r.Follow(orders(), []Target{orders1(), other}, "")
		if open, dropped, _, _ := r.counts(); open != 1 || dropped != 1 {
			t.Errorf("%d open, %d dropped", open, dropped)
		}
		time.Sleep(time.Minute)
		if _, dropped, _, _ := r.counts(); dropped != 1 {
			t.Errorf("one agent that is not followed counts as %d", dropped)
		}
		r.Forget(orders())
		if open, _, _, _ := r.counts(); open != 0 {
			t.Errorf("%d open after the Database is gone", open)
		}
	})
}

func TestMetricsFollowTheConventionsAndVanish(t *testing.T) {
	listening(t, func(t *testing.T, air *radio, r *Reports, _ func() int) {
		registry := prometheus.NewPedanticRegistry()
		m, err := NewMetrics(registry, r)
		if err != nil {
			t.Fatal(err)
		}
		air.say(said(func(r *engine.Report) {
			r.WAL = engine.VolumeUse{Size: 5, Used: 1}
			r.Slots = []engine.Slot{{Name: "orders_2", Retained: 7}, {Name: "orders_2", Retained: 8}}
		}))
		s := settled(3)
		status := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{Expiries: map[string]time.Time{"ca": noon()}}, noon())
		status.HandOvers = []v1.HandOver{{Epoch: 1, To: "orders-1", Cause: "anything", DurationMillis: 900}}
		m.told(orders(), v1.DatabaseStatus{}, status)
		m.told(orders(), status, status)
		m.reconciled(v1.PhaseRunning, nil, time.Millisecond)
		m.published(nil)
		problems, err := testutil.GatherAndLint(registry)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
		want := `
# HELP plimsoll_hand_overs_total Changes of the leader by cause: bootstrap, switchover, failover, resume, raise, recover or other.
# TYPE plimsoll_hand_overs_total counter
plimsoll_hand_overs_total{cause="bootstrap"} 0
plimsoll_hand_overs_total{cause="failover"} 0
plimsoll_hand_overs_total{cause="other"} 1
plimsoll_hand_overs_total{cause="raise"} 0
plimsoll_hand_overs_total{cause="recover"} 0
plimsoll_hand_overs_total{cause="resume"} 0
plimsoll_hand_overs_total{cause="switchover"} 0
# HELP plimsoll_database_instances Instances by the role that they play.
# TYPE plimsoll_database_instances gauge
plimsoll_database_instances{database="orders",namespace="shop",role="primary"} 1
plimsoll_database_instances{database="orders",namespace="shop",role="replica"} 2
plimsoll_database_instances{database="orders",namespace="shop",role="unknown"} 0
# HELP plimsoll_instance_slot_retained_bytes Bytes of write-ahead log that a replication slot keeps.
# TYPE plimsoll_instance_slot_retained_bytes gauge
plimsoll_instance_slot_retained_bytes{database="orders",instance="orders-1",namespace="shop",slot="orders_2"} 7
# HELP plimsoll_certificate_expiry_timestamp_seconds End of a certificate in Unix time.
# TYPE plimsoll_certificate_expiry_timestamp_seconds gauge
plimsoll_certificate_expiry_timestamp_seconds{database="orders",name="ca",namespace="shop"} 1.77236643e+09
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "plimsoll_hand_overs_total", "plimsoll_database_instances",
			"plimsoll_instance_slot_retained_bytes", "plimsoll_certificate_expiry_timestamp_seconds"); err != nil {
			t.Error(err)
		}
		m.forget(orders())
		r.Forget(orders())
		for _, name := range []string{"plimsoll_database_instances", "plimsoll_instance_role", "plimsoll_instance_connections"} {
			if n, err := testutil.GatherAndCount(registry, name); err != nil || n > 0 {
				t.Errorf("%s: %d series after the Database is gone (%v)", name, n, err)
			}
		}
	})
}

func TestAManagerThatBeginsWaitsForTheFirstWord(t *testing.T) {
	listening(t, func(t *testing.T, air *radio, r *Reports, _ func() int) {
		if r.Warm(orders()) {
			t.Error("warm before anyone was heard")
		}
		air.say(said(func(*engine.Report) {}))
		if !r.Warm(orders()) {
			t.Error("not warm though all were heard")
		}
		other := orders1()
		other.Instance = "orders-2"
		r.Follow(orders(), []Target{orders1(), other}, "")
		if !r.Warm(orders()) {
			t.Error("an instance that came later holds everything up")
		}
	})
	listening(t, func(t *testing.T, _ *radio, r *Reports, _ func() int) {
		time.Sleep(warmUp)
		if !r.Warm(orders()) {
			t.Error("an agent that never speaks holds everything up for ever")
		}
	})
}
