package api

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// heard collects the API server's warnings, as kubectl prints them.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) HandleWarningHeader(code int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if code == 299 {
		h.all = append(h.all, text)
	}
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.all)
	h.all = nil
	return out
}

func listening(t *testing.T) (client.Client, *heard) {
	t.Helper()
	config, all := rest.CopyConfig(shared.config), &heard{}
	config.WarningHandler = all
	c, err := client.New(config, client.Options{Scheme: shared.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c, all
}

// TestWebhookRules holds the rules that only the webhook can say, at each version.
func TestWebhookRules(t *testing.T) {
	rows := map[string]struct {
		change []edit
		want   string
	}{
		"the engine's own rule is asked":                       {[]edit{set("spec.parameters", map[string]any{"port": "1"})}, `spec.parameters[port]: Invalid value: "1": port is managed by Plimsoll: Services and certificates expect port 5432`},
		"what the engine does not mind is taken":               {[]edit{set("spec.parameters", map[string]any{"work_mem": "4MB"})}, ""},
		"a parameter that the engine does not know is refused": {[]edit{set("spec.parameters", map[string]any{"work_memory": "4MB"})}, `spec.parameters[work_memory]: Invalid value: "4MB": PostgreSQL knows no such parameter`},
		"a parameter's malformed value is refused":             {[]edit{set("spec.parameters", map[string]any{"work_mem": "lots"})}, `spec.parameters[work_mem]: Invalid value: "lots": work_mem `},
		"a parameter that loses data is refused":               {[]edit{set("spec.parameters", map[string]any{"fsync": "off"})}, `spec.parameters[fsync]: Invalid value: "off": fsync must stay on`},
		"a malformed line of pg_hba is refused":                {[]edit{set("spec.postgres.hba", []any{"hostssl all"})}, "spec.postgres.hba[0]: Invalid value: \"hostssl all\""},
		"a request above its limit is refused":                 {[]edit{set("spec.resources.requests", map[string]any{"memory": "2Gi"}), set("spec.resources.limits", map[string]any{"memory": "1Gi"})}, `spec.resources.requests[memory]: Invalid value: "2Gi": is more than the limit 1Gi; lower the request or raise the limit`},
		"a request at its limit is taken":                      {[]edit{set("spec.resources.requests", map[string]any{"memory": "1Gi"}), set("spec.resources.limits", map[string]any{"memory": "1Gi"})}, ""},
		"a request below nothing is refused":                   {[]edit{set("spec.resources.requests", map[string]any{"cpu": "-1"})}, `spec.resources.requests[cpu]: Invalid value: "-1": must not be below zero`},
		"a resource claim is refused":                          {[]edit{set("spec.resources.claims", []any{map[string]any{"name": "gpu"}})}, "spec.resources.claims: Forbidden: the pods of a Database hold no resource claims; remove it"},
		"Plimsoll's own server Secret is refused":              {[]edit{set("spec.tls.serverSecret", "NAME-server")}, "Plimsoll writes this Secret for the Database NAME itself; name one of your own"},
		"Plimsoll's own app Secret is refused":                 {[]edit{set("spec.bootstrap.credentialsSecret", "NAME-app")}, "spec.bootstrap.credentialsSecret: Invalid value"},
		"Plimsoll's own member Secret is refused":              {[]edit{set("spec.bootstrap.sql", []any{map[string]any{"secretKeyRef": map[string]any{"name": "NAME-2-member", "key": "k"}}})}, "spec.bootstrap.sql[0].secretKeyRef.name: Invalid value"},
		"another's Secret is taken":                            {[]edit{set("spec.tls.serverSecret", "other-server")}, ""},
		"a fence of no instance is refused":                    {[]edit{set("spec.maintenance.fenced", []any{"NAME-one"})}, `spec.maintenance.fenced[0]: Invalid value: "NAME-one": is no instance of NAME; name one as NAME-1, or * for all`},
		"a fence of an instance is taken":                      {[]edit{set("spec.maintenance.fenced", []any{"NAME-1"})}, ""},
		"a node selector that is no label is refused":          {[]edit{set("spec.scheduling.nodeSelector", map[string]any{"disk type": "ssd"})}, `spec.scheduling.nodeSelector: Invalid value: "disk type": is no label key`},
		"a node selector's bad value is refused":               {[]edit{set("spec.scheduling.nodeSelector", map[string]any{"disk": "s s d"})}, `spec.scheduling.nodeSelector[disk]: Invalid value: "s s d": is no label value`},
		"a node selector is taken":                             {[]edit{set("spec.scheduling.nodeSelector", map[string]any{"disk": "ssd"})}, ""},
		"a toleration of nothing is refused":                   {[]edit{set("spec.scheduling.tolerations", []any{map[string]any{"operator": "Equal"}})}, "spec.scheduling.tolerations[0].operator: Invalid value"},
		"a toleration of any value with one is refused":        {[]edit{set("spec.scheduling.tolerations", []any{map[string]any{"operator": "Exists", "key": "a", "value": "b"}})}, "spec.scheduling.tolerations[0].value: Invalid value"},
		"a timed toleration of scheduling is refused":          {[]edit{set("spec.scheduling.tolerations", []any{map[string]any{"operator": "Exists", "key": "a", "effect": "NoSchedule", "tolerationSeconds": int64(3)}})}, "spec.scheduling.tolerations[0].effect: Invalid value"},
		"a toleration is taken":                                {[]edit{set("spec.scheduling.tolerations", []any{map[string]any{"operator": "Exists", "key": "a"}})}, ""},
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		ns := namespace(t, nil)
		for sentence, r := range rows {
			t.Run(version+"/"+sentence, func(t *testing.T) {
				name := fresh()
				d := document(version, ns, name, r.change...)
				replace(d.Object, "NAME", name)
				want := strings.ReplaceAll(r.want, "NAME", name)
				check(t, shared.client.Create(t.Context(), d), want)

				// The same on a Database that exists.
				d = document(version, ns, fresh())
				if err := shared.client.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				for _, e := range r.change {
					e(d.Object)
				}
				replace(d.Object, "NAME", d.GetName())
				if _, ok := d.Object["spec"].(map[string]any)["bootstrap"]; ok && want == "" {
					return
				}
				check(t, shared.client.Update(t.Context(), d), strings.ReplaceAll(r.want, "NAME", d.GetName()))
			})
		}
	}
}

// replace puts a word in place of another in all strings of a document.
func replace(value any, old, word string) any {
	switch v := value.(type) {
	case string:
		return strings.ReplaceAll(v, old, word)
	case map[string]any:
		for k := range v {
			v[k] = replace(v[k], old, word)
		}
	case []any:
		for i := range v {
			v[i] = replace(v[i], old, word)
		}
	}
	return value
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("taken; want %s", want)
	case want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestWarnings(t *testing.T) {
	ns := namespace(t, nil)
	rows := map[string]struct {
		change []edit
		want   []string
	}{
		"three replicas are silent": {[]edit{set("spec.replicas", int64(3))}, nil},
		"four replicas are a wasted one": {
			[]edit{set("spec.replicas", int64(4))},
			[]string{"spec.replicas: 4 instances survive the loss of 1, as 3 would, because a majority is 3; use an odd number"},
		},
		"two replicas want a third node": {
			[]edit{set("spec.replicas", int64(2))},
			[]string{"spec.replicas: 2 instances want a third node for their witness; until it votes, writes stop when either is lost"},
		},
		"asynchronous replicas lose writes": {
			[]edit{set("spec.replication.synchronous", "none")},
			[]string{"spec.replication.synchronous: none means that the newest acknowledged writes can be lost with the primary"},
		},
		"commits that do not wait lose writes": {
			[]edit{set("spec.parameters", map[string]any{"synchronous_commit": "off"})},
			[]string{`spec.parameters[synchronous_commit]: with "off" an acknowledged write can be lost with the primary`},
		},
		"an image without a tag moves": {
			[]edit{set("spec.image", "registry.example:5000/postgres")},
			[]string{"spec.image: registry.example:5000/postgres names neither a tag nor a digest, so that two instances may run different servers; add one"},
		},
		"an image with a digest is silent": {[]edit{set("spec.image", "postgres@sha256:"+strings.Repeat("0", 64))}, nil},
		"a fence of a number that there is not": {
			[]edit{set("spec.maintenance.fenced", []any{"NAME-9"})},
			[]string{"there is no instance NAME-9 to fence now; if it ever comes, it will run no server"},
		},
		"volumes that go are said": {
			[]edit{set("spec.deletionPolicy", "Delete")},
			[]string{"spec.deletionPolicy: Delete means that the volumes, and all data, go when the Database is deleted, and those of an instance at once when it is scaled away"},
		},
	}
	for sentence, r := range rows {
		t.Run(sentence, func(t *testing.T) {
			c, warnings := listening(t)
			d := document("v1", ns, fresh(), r.change...)
			replace(d.Object, "NAME", d.GetName())
			if err := c.Create(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			for i := range r.want {
				r.want[i] = strings.ReplaceAll(r.want[i], "NAME", d.GetName())
			}
			if diff := cmp.Diff(r.want, warnings.take()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTheScaleSubresourceIsAskedAbout: `kubectl scale` and autoscalers write no Database, and get the same answers.
func TestTheScaleSubresourceIsAskedAbout(t *testing.T) {
	for _, version := range versions() {
		c, warnings := listening(t)
		// A rule that it breaks already, stored before the rule was made, holds up no change of the number.
		d := document(version, namespace(t, nil), fresh(), set("spec.parameters", map[string]any{"max_wal_senders": "7"}))
		withoutWebhooks(t, func() {
			set("spec.resources.limits", map[string]any{"cpu": "-1"})(d.Object)
			if err := c.Create(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		})
		warnings.take()
		take := func() []string {
			return slices.DeleteFunc(warnings.take(), func(w string) bool { return strings.Contains(w, "is deprecated") })
		}
		scale := func(replicas int64) error {
			to := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": d.GetName(), "namespace": d.GetNamespace()},
				"spec": map[string]any{"replicas": replicas},
			}}
			return c.SubResource("scale").Update(t.Context(), d.DeepCopy(), client.WithSubResourceBody(to))
		}
		if err := scale(4); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		want := []string{"spec.replicas: 4 instances survive the loss of 1, as 3 would, because a majority is 3; use an odd number"}
		if diff := cmp.Diff(want, take()); diff != "" {
			t.Errorf("%s: %s", version, diff)
		}
		if err := scale(5); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		if got := take(); len(got) > 0 {
			t.Errorf("%s: an odd number is warned of: %v", version, got)
		}
		check(t, scale(7), `spec.parameters[max_wal_senders]: Invalid value: "7": max_wal_senders must be`)
		check(t, scale(10), "spec.replicas: Invalid value: more than maxReplicas, which is 9; lower replicas or raise maxReplicas")
		check(t, scale(0), "spec.replicas: Invalid value: 0")
	}
}

// TestAMisspeltFenceIsSaidAtOnce: an annotation can be warned of, though the spec stays as it is.
func TestAMisspeltFenceIsSaidAtOnce(t *testing.T) {
	c, warnings := listening(t)
	d := document("v1", namespace(t, nil), fresh())
	if err := c.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	warnings.take()
	d.SetAnnotations(map[string]string{"plimsoll.dev/fence": "order-1"})
	if err := c.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	want := "the annotation plimsoll.dev/fence names what is no instance of NAME, and fences nothing by it: \"order-1\"; name one as NAME-1, or * for all"
	if diff := cmp.Diff([]string{strings.ReplaceAll(want, "NAME", d.GetName())}, warnings.take()); diff != "" {
		t.Error(diff)
	}
	d.SetLabels(map[string]string{"a": "b"})
	if err := c.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if again := warnings.take(); len(again) > 0 {
		t.Errorf("said again on another change: %v", again)
	}
}

func TestDeletionSaysWhatBecomesOfTheVolumes(t *testing.T) {
	ns := namespace(t, nil)
	for policy, want := range map[string]string{
		"Retain": "the volumes of NAME are kept; to delete them as well: kubectl -n " + ns + " delete pvc -l plimsoll.dev/database=NAME",
		"Delete": "the volumes of NAME are deleted with it, as spec.deletionPolicy says",
	} {
		c, warnings := listening(t)
		d := document("v1", ns, fresh(), set("spec.deletionPolicy", policy))
		if err := c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		warnings.take()
		if err := c.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{strings.ReplaceAll(want, "NAME", d.GetName())}, warnings.take()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestRegion holds that the webhook fills spec.region on creation, visibly, and writes nothing else of a spec, nor ever again.
func TestRegion(t *testing.T) {
	labelled, bare := namespace(t, map[string]string{v1.LabelRegion: "eu-north"}), namespace(t, nil)
	rows := map[string]struct {
		ns     string
		change []edit
		want   string
	}{
		"the namespace's label is taken": {labelled, nil, "eu-north"},
		"a region that is given stays":   {labelled, []edit{set("spec.region", "mars")}, "mars"},
		"no label, no region":            {bare, nil, ""},
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		for sentence, r := range rows {
			t.Run(version+"/"+sentence, func(t *testing.T) {
				d := document(version, r.ns, fresh(), append(r.change, set("spec.storage.size", "1024Mi"))...)
				if err := shared.client.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				want := map[string]any{
					"engine": "postgres", "version": "15.4", "replicas": int64(3), "maxReplicas": int64(9), "deletionPolicy": "Retain",
					"storage":    map[string]any{"size": "1024Mi"},
					"bootstrap":  map[string]any{"database": "app", "owner": "app"},
					"scheduling": map[string]any{"spread": "preferred"},
				}
				if r.want != "" {
					want["region"] = r.want
				}
				if diff := cmp.Diff(want, d.Object["spec"]); diff != "" {
					t.Error(diff)
				}
				delete(d.Object["spec"].(map[string]any), "region")
				if err := shared.client.Update(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				if region := d.Object["spec"].(map[string]any)["region"]; region != nil {
					t.Errorf("an update filled the region again: %v", region)
				}
			})
		}
	}
}

// TestSpecThatBrokeARuleLaterCanBeTouched holds that a rule that is newer than a Database does not freeze its labels.
func TestSpecThatBrokeARuleLaterCanBeTouched(t *testing.T) {
	ns := namespace(t, nil)
	name := fresh()
	d := document("v1", ns, name, set("spec.tls.serverSecret", name+"-server"))
	withoutWebhooks(t, func() {
		if err := shared.client.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	})
	d.SetAnnotations(map[string]string{v1.AnnotationRestart: `{"id":"a","expires":"2030-01-02T15:04:05Z"}`})
	if err := shared.client.Update(t.Context(), d); err != nil {
		t.Errorf("an annotation was refused for a spec that stays as it is: %v", err)
	}
	set("spec.replicas", int64(5))(d.Object)
	check(t, shared.client.Update(t.Context(), d), "spec.tls.serverSecret: Invalid value")
}
