package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/node"
)

const (
	// statusTimeout bounds a request for the status, and maxMissing what it says is missing.
	statusTimeout = 5 * time.Second
	maxMissing    = 1024
)

// statusServer answers with how far the node is measured, and with nothing of what was measured.
func statusServer(ctx context.Context, address, name string, of func() node.Status) (manager.Runnable, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the status at --status-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+v1.ProbeStatusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(nodeStatus(name, kernel(), of())) // a caller that has gone needs no answer
	})
	return &manager.Server{
		Name: "status", Listener: listener, OnlyServeWhenLeader: false,
		Server: &http.Server{
			Handler: mux, ReadHeaderTimeout: statusTimeout, ReadTimeout: statusTimeout, WriteTimeout: statusTimeout, MaxHeaderBytes: 8 << 10,
		},
	}, nil
}

// nodeStatus is a node's status in the words of the API.
func nodeStatus(name, kernel string, s node.Status) v1.NodeStatus {
	count := func(state string) int32 { return int32(s.Instances[state]) } //nolint:gosec // pods of one node
	out := v1.NodeStatus{
		Name: name, State: v1.NodeMeasures, Kernel: kernel, Version: version, Message: s.Missing[:min(len(s.Missing), maxMissing)],
		Instances: v1.NodeInstances{
			Measured: count(node.Measured), Partly: count(node.Partly), Unseen: count(node.Unseen), Waiting: count(node.Waiting),
		},
	}
	for hook, attached := range s.Hooks {
		if attached {
			out.Hooks = append(out.Hooks, hook)
		}
	}
	slices.Sort(out.Hooks)
	switch {
	case out.Instances.Partly+out.Instances.Unseen > 0 || !s.Hooks["syscalls"]:
		out.State = v1.NodePartly
	case s.Late > 0 || out.Instances.Waiting > 0 && out.Instances.Measured == 0:
		out.State = v1.NodeWaits
	}
	return out
}

// kernel is the release of this node's; empty if it does not say.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
