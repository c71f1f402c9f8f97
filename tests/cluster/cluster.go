// Package cluster runs a real, isolated multi-node Kubernetes, or only its API server, on one Linux machine for tests.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrNotBuilt is returned when a binary is not in the cache; "cluster build" makes it.
var ErrNotBuilt = errors.New("not built: run `go run ./tests/cluster/cmd/cluster build`")

// ErrNotUp is returned by Open when there is no running cluster.
var ErrNotUp = errors.New("no cluster is up: run `go run ./tests/cluster/cmd/cluster up`")

// CacheDir returns the directory, outside every checkout, that keeps binaries, images and the cluster's state.
func CacheDir() (string, error) {
	if dir := os.Getenv("PLIMSOLL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(dir, "plimsoll"), nil
}

// Binary returns the path of a built binary in the cache, or ErrNotBuilt.
func Binary(name string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w", name, ErrNotBuilt)
	}
	return path, nil
}

// Cluster is the one cluster of this machine: names, addresses and cgroups are fixed, so there cannot be two.
type Cluster struct {
	dir   string // state: certificates, configuration, logs, disks
	bin   string // binaries
	state state
	say   func(format string, args ...any)
}

// state is what a later process must know about a running cluster.
type state struct {
	Nodes     int       `json:"nodes"`
	APIPort   int       `json:"apiPort"` // on the loopback of the machine, relayed into the control namespace
	RegPort   int       `json:"registryPort"`
	Up        bool      `json:"up"` // false from the first change until everything is ready
	StartedAt time.Time `json:"startedAt"`
}

// at returns the cluster of this machine, up or not, that reports progress through say.
func at(say func(string, ...any)) (*Cluster, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	if say == nil {
		say = func(string, ...any) {}
	}
	c := &Cluster{dir: filepath.Join(cache, "cluster"), bin: filepath.Join(cache, "bin"), say: say}
	data, err := os.ReadFile(c.path("state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's state: %w", err)
	}
	if err := json.Unmarshal(data, &c.state); err != nil {
		return nil, fmt.Errorf("read the cluster's state: %w", err)
	}
	return c, nil
}

// Open returns the running cluster, for tests and faults. It does not start one.
func Open() (*Cluster, error) {
	c, err := at(nil)
	if err != nil {
		return nil, err
	}
	if !c.state.Up || !c.exists() {
		return nil, ErrNotUp
	}
	return c, nil
}

// Nodes returns the names of all nodes, powered on or not.
func (c *Cluster) Nodes() []string {
	names := make([]string, c.state.Nodes)
	for i := range names {
		names[i] = nodeName(i + 1)
	}
	return names
}

// Kubeconfig returns the file with which any program of this machine reaches the API server as administrator.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// InsideKubeconfig returns the file for programs that run inside the control namespace (see InControl).
func (c *Cluster) InsideKubeconfig() string { return c.path("conf", "admin.kubeconfig") }

// Logs returns the directory with one log file for each process of the cluster.
func (c *Cluster) Logs() string { return c.path("log") }

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// save writes the state so that a reader sees the old one or the new one, never half.
func (c *Cluster) save() error {
	data, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return fmt.Errorf("write the cluster's state: %w", err)
	}
	return replaceFile(c.path("state.json"), data, 0o644)
}

// replaceFile writes a file by way of a temporary neighbour.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
