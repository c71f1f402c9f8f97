package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// server is a real PostgreSQL in cgroups as a kubelet and its runtime would make them.
type server struct {
	attribute.Instance
	*observed.Server
	group string // its cgroup
}

func newServer(t *testing.T, name string, of attribute.Container, settings ...string) *server {
	t.Helper()
	observed.NeedsServer(t)
	group := podCgroup(t, of)
	s := observed.Start(t, group, settings...)
	return &server{Server: s, group: group.Name(), Instance: attribute.Instance{
		Namespace: "shop", Database: "orders", Name: name, Role: "primary", Container: of, Port: uint16(s.Port),
	}}
}

// redisServer is a real Redis, likewise.
type redisServer struct {
	attribute.Instance
	*observed.Redis
}

func newRedis(t *testing.T, name string, of attribute.Container) *redisServer {
	t.Helper()
	s := observed.StartRedis(t, podCgroup(t, of))
	return &redisServer{Redis: s, Instance: attribute.Instance{
		Namespace: "shop", Database: "cart", Name: name, Role: "primary", Container: of, Engine: attribute.Redis, Port: uint16(s.Port), TLSPort: uint16(s.TLSPort),
	}}
}

// podCgroup makes the cgroup of a pod's container, as the kubelet's cgroupfs driver lays it out below a root of its own.
func podCgroup(t *testing.T, of attribute.Container) *os.File {
	t.Helper()
	root, err := os.MkdirTemp(hierarchy, "plimsoll-test-")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "kubepods", "burstable", "pod"+of.Pod, of.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Its processes have ended; the kernel may take a moment to see that.
		within(t, "the cgroup to be empty", func() bool { return os.Remove(dir) == nil })
		for dir = filepath.Dir(dir); dir != hierarchy; dir = filepath.Dir(dir) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { group.Close() })
	return group
}

func within(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
