package desired_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// minimal is what the ten lines of the README make of the defaults of the CustomResourceDefinition.
func minimal() desired.Inputs {
	return desired.Inputs{
		Database: &v1.Database{
			ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "8d6e0a4c-3a52-4f6e-9d60-1f2b7c1f0a11"},
			Spec: v1.DatabaseSpec{
				Engine: v1.EnginePostgres, Version: "17", Replicas: new(int32(3)),
				Storage:        v1.StorageSpec{Size: resource.MustParse("10Gi")},
				Bootstrap:      v1.BootstrapSpec{Database: "app", Owner: "app"},
				DeletionPolicy: v1.DeletionRetain,
			},
		},
		Parts: engine.Parts{
			Name: "postgresql", Image: "postgres:17", RunAsUser: 999, Port: corev1.ContainerPort{Name: "postgres", ContainerPort: 5432},
			Env: []corev1.EnvVar{{Name: "PGHOST", Value: engine.RunDir}},
		},
		Effective:         v1.EffectiveSpec{Image: "postgres:17"},
		AgentImage:        "example.com/plimsoll:v1",
		OperatorNamespace: "plimsoll-system",
	}
}

func full() desired.Inputs {
	in := minimal()
	in.Database.Labels = map[string]string{"app.kubernetes.io/part-of": "webshop", "team": "a"}
	s := &in.Database.Spec
	s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	s.Replicas = new(int32(5))
	s.Storage.Class = new("fast")
	s.Storage.WAL = &v1.VolumeSpec{Size: resource.MustParse("4Gi"), Class: new("faster")}
	s.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	s.Bootstrap = v1.BootstrapSpec{Database: "orders", Owner: "keeper"}
	s.Scheduling = v1.SchedulingSpec{
		Spread: "required", NodeSelector: map[string]string{"disk": "nvme"}, PriorityClassName: "high",
		Tolerations: []corev1.Toleration{{Key: "database", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
			}}},
		}}},
	}
	s.Observability.Statements = v1.StatementsSpec{Slow: &metav1.Duration{Duration: 1500 * time.Millisecond}, Failed: new(false), Literals: true}
	s.DeletionPolicy = v1.DeletionDelete
	in.Effective = v1.EffectiveSpec{Image: "example.com/postgres:17.4", RunAsUser: new(int64(101)), StorageSize: new(resource.MustParse("20Gi"))}
	in.AddressType = discoveryv1.AddressTypeIPv6
	return in
}

// openShift leaves the user and the group to the platform.
func openShift() desired.Inputs {
	in := minimal()
	in.OpenShift = true
	return in
}

func everything(in desired.Inputs) []client.Object {
	i := desired.Instance{Ordinal: 1}
	leaf := map[string][]byte{"tls.crt": []byte("certificate"), "tls.key": []byte("key"), "ca.crt": []byte("bundle")}
	objects := []client.Object{
		desired.ServiceAccount(in), desired.Role(in), desired.RoleBinding(in),
		desired.AuthoritySecret(in, map[string][]byte{"ca.crt": []byte("bundle")}),
		desired.ServerSecret(in, leaf), desired.MemberSecret(in, i, leaf),
		desired.ConnectionSecret(in, desired.Connection{Username: "app", Password: "p:w/d 1", Authority: []byte("bundle")}),
		desired.NetworkPolicy(in), desired.PodDisruptionBudget(in),
		desired.Lease(in, "orders-1"), desired.EndpointSlice(in),
		desired.DataClaim(in, i),
	}
	for _, s := range desired.Services(in) {
		objects = append(objects, s)
	}
	if wal := desired.WALClaim(in, i); wal != nil {
		objects = append(objects, wal)
	}
	witness := desired.WitnessName(in.Database.Name, 1)
	objects = append(objects, desired.WitnessSecret(in, witness, leaf), desired.Witness(in, witness))
	return append(objects, desired.Pod(in, i), desired.PodRole(in, i, v1.RoleReplica))
}

var update = flag.Bool("update", false, "write the golden files")

func TestTheObjectsOfADatabaseAreAsInTheGoldenFile(t *testing.T) {
	for name, in := range map[string]desired.Inputs{"minimal": minimal(), "full": full(), "openshift": openShift()} {
		t.Run(name, func(t *testing.T) {
			var documents []string
			for _, obj := range everything(in) {
				raw, err := yaml.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(raw))
			}
			got := strings.Join(documents, "---\n")
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got); if it is meant, run the test with -update, and know that another pod-spec-hash restarts every instance of every Database:\n%s", path, diff)
			}
		})
	}
}

func TestWhatMakesAPodOutdated(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*desired.Inputs)
		want   bool
	}{
		"nothing":                        {func(*desired.Inputs) {}, false},
		"a new operator image":           {func(in *desired.Inputs) { in.AgentImage = "example.com/plimsoll:v2" }, false},
		"parameters":                     {func(in *desired.Inputs) { in.Database.Spec.Parameters = v1.Parameters{"work_mem": "8MB"} }, false},
		"a Secret for the server's TLS":  {func(in *desired.Inputs) { in.Database.Spec.TLS.ServerSecret = "mine" }, false},
		"another credentials Secret":     {func(in *desired.Inputs) { in.Database.Spec.Bootstrap.CredentialsSecret = "mine" }, false},
		"more replicas":                  {func(in *desired.Inputs) { in.Database.Spec.Replicas = new(int32(5)) }, false},
		"a larger volume":                {func(in *desired.Inputs) { in.Effective.StorageSize = new(resource.MustParse("99Gi")) }, false},
		"another deletion policy":        {func(in *desired.Inputs) { in.Database.Spec.DeletionPolicy = v1.DeletionDelete }, false},
		"a fenced instance":              {func(in *desired.Inputs) { in.Database.Spec.Maintenance.Fenced = []string{"*"} }, false},
		"hibernation":                    {func(in *desired.Inputs) { in.Database.Spec.Maintenance.Hibernated = true }, false},
		"another synchronous mode":       {func(in *desired.Inputs) { in.Database.Spec.Replication.Synchronous = v1.SynchronousNone }, false},
		"a version that keeps the image": {func(in *desired.Inputs) { in.Database.Spec.Version = "17.1" }, false},
		"another image":                  {func(in *desired.Inputs) { in.Effective.Image = "postgres:17.5" }, true},
		"more memory": {func(in *desired.Inputs) {
			in.Database.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		}, true},
		"another user":      {func(in *desired.Inputs) { in.Effective.RunAsUser = new(int64(70)) }, true},
		"a required spread": {func(in *desired.Inputs) { in.Database.Spec.Scheduling.Spread = "required" }, true},
		"another priority":  {func(in *desired.Inputs) { in.Database.Spec.Scheduling.PriorityClassName = "high" }, true},
		"credentials for another registry": {func(in *desired.Inputs) {
			in.Database.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "r"}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			i := desired.Instance{Ordinal: 1}
			live := desired.Pod(minimal(), i)
			in := minimal()
			row.change(&in)
			if got := desired.Outdated(in, i, live); got != row.want {
				t.Errorf("outdated is %v, want %v", got, row.want)
			}
			if row.want {
				return
			}
			// What leaves the hash alone must leave the pod alone, too, or the hash would hide a change.
			made := desired.Pod(in, i)
			made.Spec.InitContainers[0].Image = live.Spec.InitContainers[0].Image
			if diff := cmp.Diff(live, made); diff != "" {
				t.Errorf("the pod changed under the same hash (-live +made):\n%s", diff)
			}
		})
	}
}

// TestNothingSelectsByTheLabelsForPeople: other values of them change no selector and no pod's spec, so that they restart nothing.
func TestNothingSelectsByTheLabelsForPeople(t *testing.T) {
	bare := func(name, whole string) []client.Object {
		in := full()
		in.Parts.Name, in.Database.Labels = name, map[string]string{"app.kubernetes.io/part-of": whole}
		all := everything(in)
		for _, obj := range all {
			obj.SetLabels(nil)
		}
		return all
	}
	if diff := cmp.Diff(bare("postgresql", "webshop"), bare("another", "")); diff != "" {
		t.Errorf("more than labels differ:\n%s", diff)
	}
}

func TestBuildersDoNotChangeTheirInputs(t *testing.T) {
	in, before := full(), full()
	for range 2 {
		for _, obj := range everything(in) {
			obj.GetLabels()["scribble"] = "x"
		}
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("inputs (-before +after):\n%s", diff)
	}
}

func TestAClaimNeverAsksForLessThanItHas(t *testing.T) {
	for name, row := range map[string]struct{ held, want string }{
		"a new claim asks for the spec's size": {"", "10Gi"},
		"a smaller one grows":                  {"5Gi", "10Gi"},
		"a larger one stays":                   {"15Gi", "15Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			i := desired.Instance{Ordinal: 1}
			if row.held != "" {
				i.HeldData = new(resource.MustParse(row.held))
			}
			got := desired.DataClaim(minimal(), i).Spec.Resources.Requests[corev1.ResourceStorage]
			if got.String() != row.want {
				t.Errorf("asks for %s, want %s", got.String(), row.want)
			}
		})
	}
}

func TestSharedMemoryStaysWithinTheMemoryLimit(t *testing.T) {
	for limit, want := range map[string]string{"": "1Gi", "8Gi": "1Gi", "2Gi": "1Gi", "512Mi": "256Mi", "300M": "150M"} {
		t.Run(limit, func(t *testing.T) {
			in := minimal()
			if limit != "" {
				in.Database.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
			}
			for _, v := range desired.Pod(in, desired.Instance{Ordinal: 1}).Spec.Volumes {
				if v.Name == "shm" && v.EmptyDir.SizeLimit.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("/dev/shm is %s, want %s", v.EmptyDir.SizeLimit.String(), want)
				}
			}
		})
	}
}

func TestThePDBKeepsAllButOne(t *testing.T) {
	for replicas, want := range map[int32]int{1: 0, 2: 1, 3: 2, 5: 4} {
		in := minimal()
		in.Database.Spec.Replicas = new(replicas)
		if got := desired.PodDisruptionBudget(in).Spec.MinAvailable.IntValue(); got != want {
			t.Errorf("%d replicas: %d must stay, want %d", replicas, got, want)
		}
	}
}

func TestTheLongestNameFitsEverywhere(t *testing.T) {
	in := full()
	in.Database.Name = strings.Repeat("n", desired.MaxNameLength)
	name, i := in.Database.Name, desired.Instance{Ordinal: 9999999}
	instance := desired.InstanceName(name, i.Ordinal)
	for _, s := range desired.Services(in) {
		if problems := validation.IsDNS1035Label(s.Name); len(problems) > 0 {
			t.Errorf("Service %s: %v", s.Name, problems)
		}
	}
	pod := desired.Pod(in, i)
	for _, label := range []string{pod.Spec.Hostname, pod.Spec.Subdomain} {
		if problems := validation.IsDNS1123Label(label); len(problems) > 0 {
			t.Errorf("%s: %v", label, problems)
		}
	}
	for key, value := range pod.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("label %s=%s: %v", key, value, problems)
		}
	}
	if common := engine.MemberCommonName + instance; len(common) > 64 {
		t.Errorf("common name %s has %d characters, want 64 at most", common, len(common))
	}
	for _, p := range pod.Spec.Containers[0].Ports {
		if problems := validation.IsValidPortName(p.Name); len(problems) > 0 {
			t.Errorf("port %s: %v", p.Name, problems)
		}
	}
}

func TestEveryObjectCarriesItsLabelsAndOwner(t *testing.T) {
	for name, in := range map[string]desired.Inputs{"minimal": minimal(), "full": full()} {
		for _, obj := range everything(in) {
			for key, want := range map[string]string{
				"app.kubernetes.io/name": "postgresql", "app.kubernetes.io/instance": "orders", "app.kubernetes.io/component": "database",
				"app.kubernetes.io/managed-by": "plimsoll", "app.kubernetes.io/part-of": in.Database.Labels["app.kubernetes.io/part-of"],
				v1.LabelDatabase: "orders",
			} {
				if pod, ok := obj.(*corev1.Pod); ok && key == "app.kubernetes.io/component" && pod.Labels[v1.LabelKind] == v1.KindWitness {
					want = "witness"
				}
				if got := obj.GetLabels()[key]; got != want {
					t.Errorf("%s %T %s: label %s is %q, want %q", name, obj, obj.GetName(), key, got, want)
				}
			}
			_, claim := obj.(*corev1.PersistentVolumeClaim)
			owner := metav1.GetControllerOf(obj)
			if retained := claim && in.Database.Spec.DeletionPolicy == v1.DeletionRetain; retained != (owner == nil) {
				t.Errorf("%s %T %s: owner %v", name, obj, obj.GetName(), owner)
			}
		}
	}
}
