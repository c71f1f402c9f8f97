package desired_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

func TestTheObjectsOfAProbeAreAsInTheGoldenFile(t *testing.T) {
	for name, spec := range map[string]v1.ProbeSpec{
		"probe": {},
		"probe-full": {
			Mode: v1.ProbeMeasure, Privileges: v1.ProbePrivileged, Statements: v1.ProbeStatements{Series: 500, Slow: &metav1.Duration{Duration: 250 * time.Millisecond}, Failed: new(false), Lines: new(false)},
			Clients: v1.ProbeClients{By: v1.ClientsByAddressClass},
			OTLP: &v1.OTLPReceiver{Endpoint: "https://collector.observability:4318", Headers: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "collector"}, Key: "headers",
			}},
			NodeSelector: map[string]string{"databases": "yes"}, Tolerations: []corev1.Toleration{}, PriorityClassName: "system-node-critical",
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
			Resources:        corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi"), corev1.ResourceCPU: resource.MustParse("1")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := desired.ProbeInputs{
				Probe: &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeName, UID: "6a1f"}, Spec: spec},
				Image: "registry.example.com/plimsoll:v1", OperatorNamespace: "plimsoll-system",
			}
			before := in.Probe.DeepCopy()
			var documents []string
			for _, obj := range []client.Object{desired.ProbeNamespace(in), desired.ProbeServiceAccount(in), desired.ProbePolicy(in), desired.ProbeDaemonSet(in)} {
				raw, err := yaml.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(raw))
			}
			if d := cmp.Diff(before, in.Probe); d != "" {
				t.Errorf("what was given is changed:\n%s", d)
			}
			got, path := strings.Join(documents, "---\n"), filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s (-want +got); if it is meant, run the test with -update:\n%s", path, d)
			}
		})
	}
}
