package e2e

import (
	"encoding/json"
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
		if t.Failed() && shared.operatorImage(t) != first {
			shared.operate(t, first)
		}
	}()
	for _, image := range []string{next, first} {
		began := time.Now()
		shared.operate(t, image)
		rolled := time.Since(began)
		d.exchanged(began, leader)
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
	account, gap := w.settle(time.Time{})
	if account.Refused > 0 || len(account.InDoubt) > 0 || account.Hands() > 0 {
		t.Errorf("%d statements were refused, %d are in doubt, the writer changed %d times", account.Refused, len(account.InDoubt), account.Hands())
	}
	t.Logf("longest gap in writes %s", gap.Round(time.Millisecond))
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

// exchanged waits until every agent has said that it is another program since then, and events have told of each, of the leader's last.
func (d *database) exchanged(since time.Time, leader string) {
	d.t.Helper()
	since = since.Add(-time.Second).Truncate(time.Second)
	for name := range d.pods() {
		eventually(d.t.Context(), d.t, 2*time.Minute, "the agent of "+name+" exchanged", func() error {
			out, err := d.cluster.Kubectl(d.t.Context(), "", "--namespace="+d.key.Namespace, "logs", name, "--container="+desired.DatabaseContainer, "--since-time="+since.UTC().Format(time.RFC3339))
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, `"agent exchanged"`) {
					d.t.Logf("%s: %s", name, strings.TrimSpace(line))
					return nil
				}
			}
			return fmt.Errorf("its log does not say so")
		})
	}
	eventually(d.t.Context(), d.t, 20*time.Second, "an event for each agent, the leader's last", func() error {
		list := &eventsv1.EventList{}
		if err := d.List(d.t.Context(), list, client.InNamespace(d.key.Namespace)); err != nil {
			return err
		}
		var told []eventsv1.Event
		for _, e := range list.Items {
			if e.Reason == "AgentExchange" && e.EventTime.After(since) {
				told = append(told, e)
			}
		}
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
