package policy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// asked is an engine that refuses everything, and says what it was asked about.
type asked struct{ engine.Engine }

func (asked) Validate(old, next *v1.Database) field.ErrorList {
	return field.ErrorList{field.Invalid(field.NewPath("spec"), next.Name, "old is nil: "+strconv.FormatBool(old == nil))}
}

// content is an engine that minds nothing.
type content struct{ engine.Engine }

func (content) Validate(_, _ *v1.Database) field.ErrorList { return nil }

func (content) Warnings(*v1.Database) []string { return nil }

// wary is an engine that warns of everything.
type wary struct{ content }

func (wary) Warnings(d *v1.Database) []string { return []string{"beware of " + d.Name} }

func orders(edit func(*v1.Database)) *v1.Database {
	d := &v1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
		Spec:       v1.DatabaseSpec{Engine: v1.EnginePostgres, Version: "15.4", Replicas: ptr.To[int32](3)},
	}
	if edit != nil {
		edit(d)
	}
	return d
}

func TestCheck(t *testing.T) {
	quantities := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount)}
	}
	for sentence, r := range map[string]struct {
		edit func(*v1.Database)
		want string
	}{
		"nothing is wrong with the smallest": {nil, ""},
		"an engine that this operator does not know": {
			func(d *v1.Database) { d.Spec.Engine = "oracle" }, `spec.engine: Unsupported value: "oracle": supported values: "postgres"`,
		},
		"a request above its limit": {
			func(d *v1.Database) {
				d.Spec.Resources = corev1.ResourceRequirements{Requests: quantities("cpu", "2"), Limits: quantities("cpu", "1500m")}
			}, `spec.resources.requests[cpu]: Invalid value: "2": is more than the limit 1500m; lower the request or raise the limit`,
		},
		"a request that equals its limit": {
			func(d *v1.Database) {
				d.Spec.Resources = corev1.ResourceRequirements{Requests: quantities("cpu", "1"), Limits: quantities("cpu", "1000m")}
			}, "",
		},
		"a limit below zero": {
			func(d *v1.Database) { d.Spec.Resources.Limits = quantities("memory", "-1Gi") }, `spec.resources.limits[memory]: Invalid value: "-1Gi": must not be below zero`,
		},
		"its own authority as the server's certificate": {
			func(d *v1.Database) { d.Spec.TLS.ServerSecret = "orders-ca" }, `spec.tls.serverSecret: Invalid value: "orders-ca": Plimsoll writes this Secret for the Database orders itself; name one of your own`,
		},
		"what cert-manager writes for it as the server's certificate": {
			func(d *v1.Database) { d.Spec.TLS.ServerSecret = "orders-issued" }, `spec.tls.serverSecret: Invalid value: "orders-issued": Plimsoll writes this Secret for the Database orders itself; name one of your own`,
		},
		"a member's Secret as the credentials": {
			func(d *v1.Database) { d.Spec.Bootstrap.CredentialsSecret = "orders-12-member" }, `spec.bootstrap.credentialsSecret: Invalid value: "orders-12-member": Plimsoll writes this Secret for the Database orders itself; name one of your own`,
		},
		"a Secret that only looks like a member's": {
			func(d *v1.Database) { d.Spec.Bootstrap.CredentialsSecret = "orders-old-member" }, "",
		},
		"a fence of instance zero": {
			func(d *v1.Database) { d.Spec.Maintenance.Fenced = []string{"orders-1", "orders-0"} }, `spec.maintenance.fenced[1]: Invalid value: "orders-0": is no instance of orders; name one as orders-1, or * for all`,
		},
		"a fence of everything": {func(d *v1.Database) { d.Spec.Maintenance.Fenced = []string{"*"} }, ""},
		"several things at once, in order": {
			func(d *v1.Database) {
				d.Spec.Engine, d.Spec.TLS.ServerSecret = "oracle", "orders-app"
				d.Spec.Scheduling.NodeSelector = map[string]string{"b": "", "a b": "c d"}
			},
			`[spec.tls.serverSecret: Invalid value: "orders-app": Plimsoll writes this Secret for the Database orders itself; name one of your own, ` +
				`spec.scheduling.nodeSelector: Invalid value: "a b": is no label key: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), ` +
				`spec.scheduling.nodeSelector[a b]: Invalid value: "c d": is no label value: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'), ` +
				`spec.engine: Unsupported value: "oracle": supported values: "postgres"]`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := ""
			if found := Check(nil, orders(r.edit), Engines{v1.EnginePostgres: content{}}); len(found) > 0 {
				got = found.ToAggregate().Error()
			}
			if diff := cmp.Diff(r.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckAsksTheEngine(t *testing.T) {
	engines := Engines{v1.EnginePostgres: asked{}}
	for want, old := range map[string]*v1.Database{
		`spec: Invalid value: "orders": old is nil: true`:  nil,
		`spec: Invalid value: "orders": old is nil: false`: orders(nil),
	} {
		if diff := cmp.Diff(want, Check(old, orders(nil), engines).ToAggregate().Error()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCheckChangesNothing(t *testing.T) {
	d := orders(func(d *v1.Database) { d.Spec.Maintenance.Fenced = []string{"b", "a"} })
	before := d.DeepCopy()
	Check(nil, d, Engines{v1.EnginePostgres: content{}})
	Warnings(nil, d, Engines{v1.EnginePostgres: content{}})
	if diff := cmp.Diff(before, d); diff != "" {
		t.Error(diff)
	}
}

func TestWarnings(t *testing.T) {
	paused := func(d *v1.Database) { d.Spec.Maintenance.Paused = true }
	erased := func(d *v1.Database) { d.Spec.DeletionPolicy = v1.DeletionDelete }
	for sentence, r := range map[string]struct {
		old, next *v1.Database
		want      []string
	}{
		"three replicas": {nil, orders(nil), nil},
		"six replicas": {
			nil, orders(func(d *v1.Database) { d.Spec.Replicas = ptr.To[int32](6) }),
			[]string{"spec.replicas: 6 instances survive the loss of 2, as 5 would, because a majority is 4; use an odd number"},
		},
		"two replicas want a third node": {
			nil, orders(func(d *v1.Database) {
				d.Spec.Replicas, d.Spec.Replication.Synchronous = ptr.To[int32](2), v1.SynchronousPreferred
			}),
			[]string{"spec.replicas: 2 instances want a third node for their witness; until it votes, writes stop when either is lost"},
		},
		"one replica that waits for none": {nil, orders(func(d *v1.Database) {
			d.Spec.Replicas, d.Spec.Replication.Synchronous = ptr.To[int32](1), v1.SynchronousNone
		}), nil},
		"a change while paused":                {orders(paused), orders(func(d *v1.Database) { paused(d); d.Spec.Version = "15.5" }), []string{"spec.maintenance.paused: the operator changes nothing while it is true; this change waits until it is false"}},
		"no change while paused":               {orders(paused), orders(paused), nil},
		"an end of the pause":                  {orders(paused), orders(nil), nil},
		"volumes that go, said once":           {orders(erased), orders(erased), nil},
		"volumes that go from now on":          {orders(nil), orders(erased), []string{"spec.deletionPolicy: Delete means that the volumes, and all data, go when the Database is deleted, and those of an instance at once when it is scaled away"}},
		"an image with a port and without tag": {nil, orders(func(d *v1.Database) { d.Spec.Image = "r:5000/p" }), []string{"spec.image: r:5000/p names neither a tag nor a digest, so that two instances may run different servers; add one"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(r.want, Warnings(r.old, r.next, Engines{v1.EnginePostgres: content{}})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWarningsAskTheEngine(t *testing.T) {
	if diff := cmp.Diff([]string{"beware of orders"}, Warnings(nil, orders(nil), Engines{v1.EnginePostgres: wary{}})); diff != "" {
		t.Error(diff)
	}
	if found := Warnings(nil, orders(nil), nil); len(found) > 0 {
		t.Errorf("an engine that is not known: %v", found)
	}
}

// FuzzIsInstance compares with the plainest way to say it: some number, printed, is the rest.
func FuzzIsInstance(f *testing.F) {
	f.Add("orders", "orders-1")
	f.Add("orders", "orders-01")
	f.Add("orders", "orders-2147483648")
	f.Add("a-1", "a-1-1")
	f.Add("", "-+1")
	f.Fuzz(func(t *testing.T, database, name string) {
		rest := strings.TrimPrefix(name, database)
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
		want := err == nil && n > 0 && n < 1<<31 && name == database+"-"+strconv.Itoa(n)
		if got := isInstance(database, name); got != want {
			t.Errorf("isInstance(%q, %q) is %t", database, name, got)
		}
	})
}
