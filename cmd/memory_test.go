package main

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

// TestTheCollectorKnowsTheContainersLimit: at the whole limit the kernel kills before the collector makes an effort; far below it works
// for nothing. What the kernel keeps for programs of ours counts as the container's, and is nothing that the collector could give back.
func TestTheCollectorKnowsTheContainersLimit(t *testing.T) {
	t.Run("the manager's", func(t *testing.T) {
		raw, err := os.ReadFile("../config/manager/manager.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var all []corev1.Container
		for doc := range strings.SplitSeq(string(raw), "\n---\n") {
			var d appsv1.Deployment
			if err := yaml.Unmarshal([]byte(doc), &d); err == nil {
				all = append(all, d.Spec.Template.Spec.Containers...)
			}
		}
		knowsLimit(t, all, 0)
	})
	for _, limit := range []string{"", "192Mi", "1Gi"} {
		t.Run("a probe's of "+limit, func(t *testing.T) {
			p := &v1.Probe{}
			if limit != "" {
				p.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
			}
			knowsLimit(t, desired.ProbeDaemonSet(desired.ProbeInputs{Probe: p}).Spec.Template.Spec.Containers, 72<<20)
		})
	}
}

func knowsLimit(t *testing.T, all []corev1.Container, kernel int64) {
	t.Helper()
	found := 0
	for _, c := range all {
		for _, e := range c.Env {
			if e.Name != "GOMEMLIMIT" {
				continue
			}
			found++
			goes, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B")) // Go writes MiB for Kubernetes' Mi
			if err != nil {
				t.Fatalf("GOMEMLIMIT %q: %v", e.Value, err)
			}
			limit := c.Resources.Limits.Memory().Value() - kernel
			if share := float64(goes.Value()) / float64(limit); share < 0.85 || share > 0.9 {
				t.Errorf("GOMEMLIMIT %s is %.0f %% of limits.memory %s without the kernel's %d MiB; want 85 to 90 %%", e.Value, share*100, c.Resources.Limits.Memory(), kernel>>20)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d containers set GOMEMLIMIT, want 1", found)
	}
}
