package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestWhatHasEndedRunsNothing: a process that nobody collects keeps its number and its cgroup. The first process of a container may leave
// those of a node so for ever, and the node must get its power back all the same.
func TestWhatHasEndedRunsNothing(t *testing.T) {
	c := &Cluster{dir: t.TempDir()}
	if err := os.Mkdir(c.path("pid"), 0o755); err != nil {
		t.Fatal(err)
	}
	trees, err := machineTrees()
	if err != nil {
		t.Skip(err)
	}
	group := filepath.Join(trees.unified, cgroupRoot, "test-"+strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Skipf("a cgroup of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(group), removeEmpty(filepath.Dir(group))); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read -r line; exit 0")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	number := []byte(strconv.Itoa(cmd.Process.Pid))
	if err := errors.Join(os.WriteFile(filepath.Join(group, "cgroup.procs"), number, 0o644), os.WriteFile(c.path("pid", "node1-init"), number, 0o644)); err != nil {
		t.Fatal(err)
	}
	if pid, err := c.pid("node1-init"); err != nil || pid != cmd.Process.Pid {
		t.Errorf("while it runs: %d, %v", pid, err)
	}
	if _, err := input.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !isZombie(cmd.Process.Pid) && time.Since(began) < 10*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	if pid, err := c.pid("node1-init"); !errors.Is(err, errNotRunning) {
		t.Errorf("after its end, before it is collected: %d, %v", pid, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := c.pid("node1-init"); !errors.Is(err, errNotRunning) {
		t.Errorf("once it is collected: %v", err)
	}
}

// removeEmpty removes a directory that only this test has made.
func removeEmpty(dir string) error {
	if entries, err := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs")); err != nil || len(entries) > 0 {
		return err
	}
	return os.Remove(dir)
}
