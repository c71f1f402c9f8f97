package main

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/node"
)

func TestTheStatusOfANodeInWordsOfTheAPI(t *testing.T) {
	both := map[string]bool{"syscalls": true, "programs": true}
	for sentence, row := range map[string]struct {
		of   node.Status
		want v1.NodeStatus
	}{
		"without instances all of them are measured": {
			node.Status{Hooks: map[string]bool{"syscalls": true, "programs": false}},
			v1.NodeStatus{State: v1.NodeMeasures, Hooks: []string{"syscalls"}},
		},
		"what waits is not measured yet": {
			node.Status{Hooks: both, Instances: map[string]int{node.Waiting: 1}},
			v1.NodeStatus{State: v1.NodeWaits, Hooks: []string{"programs", "syscalls"}, Instances: v1.NodeInstances{Waiting: 1}},
		},
		"what has just come is being found": {
			node.Status{Hooks: both, Instances: map[string]int{node.Measured: 2, node.Waiting: 1}},
			v1.NodeStatus{State: v1.NodeMeasures, Hooks: []string{"programs", "syscalls"}, Instances: v1.NodeInstances{Measured: 2, Waiting: 1}},
		},
		"what is not found for long waits": {
			node.Status{Hooks: both, Instances: map[string]int{node.Measured: 2, node.Waiting: 1}, Late: 1},
			v1.NodeStatus{State: v1.NodeWaits, Hooks: []string{"programs", "syscalls"}, Instances: v1.NodeInstances{Measured: 2, Waiting: 1}},
		},
		"what is never seen wholly goes before": {
			node.Status{Hooks: both, Instances: map[string]int{node.Measured: 2, node.Partly: 1, node.Waiting: 1}, Missing: "orders-1: no"},
			v1.NodeStatus{
				State: v1.NodePartly, Hooks: []string{"programs", "syscalls"}, Instances: v1.NodeInstances{Measured: 2, Partly: 1, Waiting: 1},
				Message: "orders-1: no",
			},
		},
		"without system calls a plain connection may be lost to view": {
			node.Status{Hooks: map[string]bool{"syscalls": false, "programs": true}, Instances: map[string]int{node.Measured: 1}},
			v1.NodeStatus{State: v1.NodePartly, Hooks: []string{"programs"}, Instances: v1.NodeInstances{Measured: 1}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			row.want.Name, row.want.Kernel, row.want.Version = "n1", "6.18", version
			if d := cmp.Diff(row.want, nodeStatus("n1", "6.18", row.of)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAProbeAnswersWithItsStatus(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	of := func() node.Status { return node.Status{Hooks: map[string]bool{"syscalls": true}} }
	s, err := statusServer(ctx, "127.0.0.1:0", "n1", of)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	url := "http://" + s.(*manager.Server).Listener.Addr().String()
	for path, want := range map[string]int{v1.ProbeStatusPath: http.StatusOK, "/metrics": http.StatusNotFound, "/": http.StatusNotFound} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var got v1.NodeStatus
		err = json.NewDecoder(answer.Body).Decode(&got)
		_ = answer.Body.Close()
		if answer.StatusCode != want || want == http.StatusOK && (err != nil || got.Name != "n1" || got.Kernel == "" || got.State != v1.NodeMeasures) {
			t.Errorf("%s: %s %+v %v", path, answer.Status, got, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
