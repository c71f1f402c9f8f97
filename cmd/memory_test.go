package main

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// TestTheCollectorKnowsTheContainersLimit: at the whole limit the kernel kills before the collector makes an effort; far below it works
// for nothing. What the kernel keeps for programs of ours counts as the container's, and is nothing that the collector could give back.
func TestTheCollectorKnowsTheContainersLimit(t *testing.T) {
	for file, kernel := range map[string]int64{"manager/manager.yaml": 0, "probe/daemonset.yaml": 48 << 20} {
		t.Run(file, func(t *testing.T) { knowsLimit(t, "../config/"+file, kernel) })
	}
}

func knowsLimit(t *testing.T, file string, kernel int64) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found int
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		var d appsv1.Deployment // the pods of a DaemonSet lie at the same place
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
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
	}
	if found != 1 {
		t.Errorf("%d containers set GOMEMLIMIT, want 1", found)
	}
}
