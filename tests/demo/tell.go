package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

// tell shows the Database as it is now and how to go on.
func (d *demo) tell(ctx context.Context, k install.Kubectl) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	plugin := filepath.Join(d.root, "bin", "kubectl-plimsoll")
	cmd := exec.CommandContext(ctx, plugin, "--namespace", namespace, "status", name)
	cmd.Env = d.environment(k)
	status, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl plimsoll status: %w: %s", err, strings.TrimSpace(string(status)))
	}
	fmt.Printf("\n%s\n", strings.TrimRight(string(status), "\n"))
	fmt.Print(d.next(k))
	return nil
}

// environment in which kubectl and its plugin are found and reach the cluster.
func (d *demo) environment(k install.Kubectl) []string {
	env := append(os.Environ(), "PATH="+d.path(k)+":"+os.Getenv("PATH"))
	if k.Kubeconfig != "" {
		env = append(env, "KUBECONFIG="+k.Kubeconfig)
	}
	return env
}

func (d *demo) path(k install.Kubectl) string {
	path := filepath.Join(d.root, "bin")
	if filepath.IsAbs(k.Path) {
		path += ":" + filepath.Dir(k.Path)
	}
	return path
}

// next says how to connect and what to try.
func (d *demo) next(k install.Kubectl) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nTo use it, in this shell:\n  export PATH=%s:$PATH\n", d.path(k))
	if k.Kubeconfig != "" {
		fmt.Fprintf(&text, "  export KUBECONFIG=%s\n", k.Kubeconfig)
	}
	fmt.Fprintf(&text, `  kubectl config set-context --current --namespace %[1]s
Then:
  kubectl plimsoll status %[2]s --watch                      who leads, what each instance does
  kubectl plimsoll psql %[2]s -- -c 'select version()'       ask the leader
  kubectl plimsoll switchover %[2]s                          hand the lead on
  kubectl get secret %[2]s-app -o jsonpath='{.data.uri}' | base64 -d      what an application connects with
Take it away with: make demo-down%[3]s
`, namespace, name, map[bool]string{true: " CLUSTER=current"}[d.cluster == "current"])
	return text.String()
}

// fits says what a local cluster needs that this machine lacks.
func fits(cache string) error {
	if err := cluster.Fits(); err != nil {
		return fmt.Errorf("%w. Or use your own cluster: make demo CLUSTER=current IMG=your-image", err)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("a local cluster needs Debian 12's packages and there is no apt-get; use your own cluster: make demo CLUSTER=current IMG=your-image")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("make the cache directory: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(cache, &disk); err != nil {
		return fmt.Errorf("ask for the room in %s: %w", cache, err)
	}
	const gib = 1 << 30
	// Most of it is Go's: modules and built packages, needed until the cluster's programs are in the cache.
	need := uint64(25)
	if _, err := cluster.Binary("kubelet"); err == nil {
		need = 6
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < need*gib {
		return fmt.Errorf("a local cluster needs %d GiB of disk at %s, and %.1f are free; set PLIMSOLL_CACHE to a directory with more room", need, cache, float64(free)/gib)
	}
	return nil
}
