package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/ledger"
)

// changeLimit bounds one change of a running Database.
const changeLimit = 3 * time.Minute

// TestChanges walks one Database through every planned change while clients write, and loses nothing.
func TestChanges(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 1))
	d.awaitReady(readyLimit)
	w := d.ledger()
	began := time.Now()
	var steps phases
	step := func(name string, change func()) {
		t.Helper()
		at := steps.begin(name)
		change()
		d.awaitReady(changeLimit)
		w.moves(10 * time.Second)
		t.Logf("%s: %s", name, time.Since(at).Round(100*time.Millisecond))
	}
	scale := func(n int32) func() {
		return func() { d.change(func(s *v1.DatabaseSpec) { s.Replicas = ptr.To(n) }) }
	}
	step("scale 1 to 3", scale(3))
	step("scale 3 to 5", scale(5))
	step("scale 5 to 3", scale(3))
	step("a parameter that reloads", func() {
		d.change(func(s *v1.DatabaseSpec) { s.Parameters = map[string]string{"work_mem": "8MB"} })
	})
	d.shows("work_mem", "8MB")
	step("a parameter that restarts", func() {
		d.change(func(s *v1.DatabaseSpec) { s.Parameters["max_locks_per_transaction"] = "128" })
	})
	d.shows("max_locks_per_transaction", "128")
	step("the same parameter, lower", func() {
		d.change(func(s *v1.DatabaseSpec) { s.Parameters["max_locks_per_transaction"] = "96" })
	})
	d.shows("max_locks_per_transaction", "96")
	step("a minor version", func() { d.change(func(s *v1.DatabaseSpec) { s.Version = newVersion }) })
	d.await(10*time.Second, "every instance runs "+newVersion, func(now *v1.Database) error {
		for _, i := range now.Status.Instances {
			if i.Version != newVersion {
				return fmt.Errorf("%s runs %q", i.Name, i.Version)
			}
		}
		return nil
	})
	step("a larger volume", func() {
		d.change(func(s *v1.DatabaseSpec) { s.Storage.Size = resource.MustParse("2Gi") })
	})
	steps.begin("the end")
	claims := &corev1.PersistentVolumeClaimList{}
	if err := d.List(t.Context(), claims, client.InNamespace(d.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if got := c.Status.Capacity[corev1.ResourceStorage]; got.Cmp(resource.MustParse("2Gi")) < 0 {
			t.Errorf("claim %s has %s", c.Name, got.String())
		}
	}
	account, _ := w.settle(began)
	steps.gaps(t, account, 10*time.Second)
	for _, a := range account.Acks {
		if a.Instance == "" {
			t.Fatal("an acknowledgement without an instance: cluster_name is not set, so two writers could not be told apart")
		}
	}
}

// phases of a test, by when each began.
type phases struct {
	names []string
	began []time.Time
}

func (p *phases) begin(name string) time.Time {
	p.names, p.began = append(p.names, name), append(p.began, time.Now())
	return p.began[len(p.began)-1]
}

// gaps tells the longest time without an acknowledged write of each phase but the last, and holds each against a bound.
func (p *phases) gaps(t *testing.T, account ledger.Account, bound time.Duration) {
	t.Helper()
	bound = patient(bound)
	for i := range len(p.began) - 1 {
		part := account.Between(p.began[i], p.began[i+1])
		gap := part.LongestGap(p.began[i]).Length()
		t.Logf("%s: longest gap in writes %s", p.names[i], gap.Round(time.Millisecond))
		if len(part.Acks) == 0 || gap > bound {
			t.Errorf("%s: writes stood still for %s (%d were acknowledged), want %s at the most", p.names[i], gap.Round(time.Millisecond), len(part.Acks), bound)
		}
	}
}

// shows asks every instance for a parameter.
func (d *database) shows(parameter, want string) {
	d.t.Helper()
	now, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, i := range now.Status.Instances {
		out, err := d.plimsoll("psql", d.key.Name, "--instance="+i.Name, "--", "-Atc", "show "+parameter)
		if err != nil || strings.TrimSpace(out) != want {
			d.t.Errorf("%s on %s is %q, want %q (%v)", parameter, i.Name, strings.TrimSpace(out), want, err)
		}
	}
}

// TestSwitchover hands the lead around by the plugin while clients write.
func TestSwitchover(t *testing.T) {
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	d.routed()
	var steps phases
	const times = 3
	for range times {
		now, err := d.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		target := ""
		for _, i := range now.Status.Instances {
			if i.Role == v1.RoleReplica {
				target = i.Name
			}
		}
		at := steps.begin("switchover to " + target)
		d.switchover(target)
		w.moves(10 * time.Second)
		d.await(time.Minute, target+" leads", func(now *v1.Database) error {
			if now.Status.Leader != target {
				return fmt.Errorf("leader is %s", now.Status.Leader)
			}
			return ready(now)
		})
		t.Logf("to %s: settled after %s", target, time.Since(at).Round(10*time.Millisecond))
		d.routed()
	}
	steps.begin("switchover without a target")
	d.switchover() // the choice is the leader's
	w.moves(10 * time.Second)
	d.awaitReady(time.Minute)
	steps.begin("the end")
	account, gap := w.settle(time.Time{})
	steps.gaps(t, account, 5*time.Second)
	if got := account.Hands(); got != times+1 {
		t.Errorf("the writer changed %d times in %d switchovers", got, times+1)
	}
	t.Logf("longest gap in %d switchovers: %s", times+1, gap.Round(time.Millisecond))
}

// TestRotation changes the password and the certificates while clients write.
func TestRotation(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	old, err := d.writable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	was := s.DeepCopy()
	s.Data["password"] = []byte("a-new-Password-1")
	if err := d.Patch(t.Context(), s, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	took := eventually(t.Context(), t, 30*time.Second, "the new password works", func() error {
		config, err := d.writable(t.Context())
		if err != nil {
			return err
		}
		return ping(t.Context(), config)
	})
	t.Logf("new password works after %s", took.Round(time.Millisecond))
	eventually(t.Context(), t, 10*time.Second, "the old password is refused", func() error {
		if ping(t.Context(), old) == nil {
			return fmt.Errorf("it still works")
		}
		return nil
	})
	w.moves(10 * time.Second)
	w.settle(time.Time{})
}
