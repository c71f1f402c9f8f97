package plugin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestProbe(t *testing.T) {
	measured := &v1.Probe{Spec: v1.ProbeSpec{Mode: v1.ProbeMeasure}, Status: v1.ProbeStatus{
		Ready: "2/3", UnlistedNodes: 7, Nodes: []v1.NodeStatus{
			{Name: "node3", State: v1.NodeSilent, Message: "ImagePullBackOff: no such image"},
			{
				Name: "node2", State: v1.NodePartly, Hooks: []string{"syscalls"}, Instances: v1.NodeInstances{Measured: 1, Partly: 1}, Kernel: "6.1.0-32-amd64", Version: "v0.1.0",
				Message: "instance shop/orders-1: its program has no build-id",
			},
			{Name: "node1", State: v1.NodeMeasures, Hooks: []string{"programs", "syscalls"}, Instances: v1.NodeInstances{Measured: 4}, Kernel: "6.1.0-32-amd64", Version: "v0.1.0"},
		},
		Conditions: []metav1.Condition{{
			Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonNodesNotReady, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute)),
			Message: "1 of 3 nodes: node3: ImagePullBackOff: no such image",
		}},
	}}
	young := &v1.Probe{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: v1.ProbeSpec{Mode: v1.ProbeMeasure}}
	for name, p := range map[string]*v1.Probe{"probe": measured, "probe-young": young} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := Probe(&got, p, noon); err != nil {
				t.Fatal(err)
			}
			golden(t, name, got.String())
		})
	}
}
