package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

// TestOperatorUpgrade installs another build of the operator under load, and then the first one again. No pod is touched and no
// statement fails, although every agent becomes that of the new build. It runs alone: the operator is everybody's.
func TestOperatorUpgrade(t *testing.T) {
	next := os.Getenv("PLIMSOLL_NEXT_IMAGE")
	if next == "" {
		t.Fatal("PLIMSOLL_NEXT_IMAGE is empty: run it by make test-e2e, which makes a second build")
	}
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	leader, _ := d.roles()
	w := d.ledger()
	before, specs := d.pods(), d.podSpecs()
	now, err := d.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	epoch := now.Status.Epoch

	first := shared.operatorImage(t)
	defer func() { // not at the clean-up, when the test's time is over
		if shared.operatorImage(t) != first {
			shared.operate(t, first)
		}
	}()
	for _, image := range []string{next, first} {
		began := time.Now()
		shared.operate(t, image)
		rolled := time.Since(began)
		d.exchanged(image == next, leader)
		d.awaitReady(time.Minute)
		took := time.Since(began)
		w.moves(5 * time.Second)
		if now, err = d.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now.Status.Leader != leader || now.Status.Epoch != epoch {
			t.Errorf("%s leads at epoch %d; want %s at %d", now.Status.Leader, now.Status.Epoch, leader, epoch)
		}
		for name, was := range before {
			if is := d.pods()[name]; is != was {
				t.Errorf("pod %s was %s and is %s", name, was, is)
			}
		}
		for name, was := range specs {
			if is := d.podSpecs()[name]; is != was {
				t.Errorf("the spec of pod %s changed:\n%s\n%s", name, was, is)
			}
		}
		t.Logf("operator rolled in %s, all agents exchanged and ready %s after the beginning", rolled.Round(time.Millisecond), took.Round(time.Millisecond))
	}
	if n := w.run.Refused(); n > 0 {
		_, last := w.run.Acknowledged()
		t.Errorf("%d statements failed, the last by %v", n, last)
	}
	account, gap := w.settle(time.Time{}) // its end calls off what is under way, one statement of each writer at the most
	if account.Hands() > 0 {
		t.Errorf("the writer changed %d times", account.Hands())
	}
	t.Logf("longest gap in writes %s", gap.Round(time.Millisecond))

	// A container that starts again begins with the agent of its pod's image, and is given the newer one again.
	shared.operate(t, next)
	_, replicas := d.roles()
	eventually(t.Context(), t, time.Minute, "the agent of "+replicas[0]+" is the newer one", func() error { return d.becameNext(replicas[0], true) })
	d.awaitReady(time.Minute)
	if out, err := d.cluster.Kubectl(t.Context(), "", "--namespace="+d.key.Namespace, "exec", replicas[0], "--container="+desired.DatabaseContainer, "--", "sh", "-c", "kill -TERM 1"); err != nil {
		t.Fatalf("end the container's first process: %v: %s", err, out)
	}
	began := time.Now()
	eventually(t.Context(), t, 2*time.Minute, "its container has started again and the agent is the newer one", func() error {
		if d.pods()[replicas[0]] == before[replicas[0]] {
			return errors.New("it has not started again yet")
		}
		return d.becameNext(replicas[0], true)
	})
	t.Logf("a container that started again has the newer agent after %s", time.Since(began).Round(time.Millisecond))
	d.awaitReady(time.Minute)
}

// podSpecs are the bytes of each pod's spec as the API server holds it.
func (d *database) podSpecs() map[string]string {
	d.t.Helper()
	list := &corev1.PodList{}
	if err := d.List(d.t.Context(), list, client.InNamespace(d.key.Namespace), client.MatchingLabels{v1.LabelDatabase: d.key.Name}); err != nil {
		d.t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range list.Items {
		raw, err := json.Marshal(p.Spec)
		if err != nil {
			d.t.Fatal(err)
		}
		found[p.Name] = string(raw)
	}
	return found
}

// becameNext says whether the newest program that an instance's agent became is that of the next version, or another one.
func (d *database) becameNext(instance string, want bool) error {
	out, err := d.cluster.Kubectl(d.t.Context(), "", "--namespace="+d.key.Namespace, "logs", instance, "--container="+desired.DatabaseContainer)
	if err != nil {
		return err
	}
	last := ""
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"agent exchanged"`) {
			last = strings.TrimSpace(line)
		}
	}
	if last == "" || strings.Contains(last, `"version":"v`+install.NextVersion+`"`) != want {
		return fmt.Errorf("its log says last: %q", last)
	}
	d.t.Logf("%s: %s", instance, last)
	return nil
}

// exchanged waits until every agent has said that it is the program of the next version, or another one again, and events have told of
// each, of the leader's last.
func (d *database) exchanged(next bool, leader string) {
	d.t.Helper()
	for name := range d.pods() {
		eventually(d.t.Context(), d.t, 2*time.Minute, "the agent of "+name+" exchanged", func() error { return d.becameNext(name, next) })
	}
	words := " goes from v" + install.NextVersion + " to "
	if next {
		words = " to v" + install.NextVersion + " "
	}
	eventually(d.t.Context(), d.t, 20*time.Second, "an event for each agent, the leader's last", func() error {
		list := &eventsv1.EventList{}
		if err := d.List(d.t.Context(), list, client.InNamespace(d.key.Namespace)); err != nil {
			return err
		}
		told := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason != "AgentExchange" || !strings.Contains(e.Note, words) })
		slices.SortFunc(told, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		if len(told) != len(d.pods()) || !strings.HasPrefix(told[len(told)-1].Note, leader+":") {
			return fmt.Errorf("%d events: %v", len(told), notes(told))
		}
		return nil
	})
}

func notes(events []eventsv1.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.Note)
	}
	return all
}

func (s *suite) manager(t *testing.T) *appsv1.Deployment {
	t.Helper()
	found := &appsv1.Deployment{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: install.Namespace, Name: "plimsoll-manager"}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (s *suite) operatorImage(t *testing.T) string {
	t.Helper()
	return s.manager(t).Spec.Template.Spec.Containers[0].Image
}

// operate with another image, as an upgrade does, and wait until only managers of it run.
func (s *suite) operate(t *testing.T, image string) {
	t.Helper()
	m := s.manager(t)
	old := m.DeepCopy()
	c := &m.Spec.Template.Spec.Containers[0]
	c.Image = image
	for i := range c.Env {
		if c.Env[i].Name == "RELATED_IMAGE_AGENT" {
			c.Env[i].Value = image
		}
	}
	if err := s.Patch(t.Context(), m, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	eventually(t.Context(), t, 2*time.Minute, "managers of "+image, func() error {
		now := s.manager(t)
		want := *now.Spec.Replicas
		if v := now.Status; v.ObservedGeneration < m.Generation || v.UpdatedReplicas != want || v.AvailableReplicas != want || v.Replicas != want {
			return fmt.Errorf("generation %d of %d, %d of %d are new, %d available, %d in all", v.ObservedGeneration, m.Generation, v.UpdatedReplicas, want, v.AvailableReplicas, v.Replicas)
		}
		return nil
	})
}
