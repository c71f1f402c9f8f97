package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a process of a pod, by its number on the machine.
type Process struct {
	PID     int
	Command string // its command line with spaces
	started int64  // clock ticks since boot
}

// FreezePod stops every process of a pod in the middle of what it does, as a stalled machine would. Its sockets
// stay open and its peers hear nothing.
func (c *Cluster) FreezePod(ctx context.Context, namespace, pod string) error {
	return c.setFrozen(ctx, namespace, pod, true)
}

// ThawPod lets a frozen pod go on.
func (c *Cluster) ThawPod(ctx context.Context, namespace, pod string) error {
	return c.setFrozen(ctx, namespace, pod, false)
}

// setFrozen uses the unified tree: unlike in the freezer of version 1, what is frozen there can still be killed.
func (c *Cluster) setFrozen(ctx context.Context, namespace, pod string, frozen bool) error {
	dir, err := c.podCgroup(ctx, namespace, pod)
	if err != nil {
		return err
	}
	value := map[bool]string{true: "1", false: "0"}[frozen]
	if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(value), 0o644); err != nil {
		return fmt.Errorf("freeze pod %s/%s: %w", namespace, pod, err)
	}
	return wait(ctx, 10*time.Second, "the freeze or thaw of pod "+pod, func(context.Context) error {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(events), "frozen "+value) {
			return errors.New("not yet")
		}
		return nil
	})
}

// Processes lists the processes of a pod, oldest first. The first is the pause process of the sandbox.
func (c *Cluster) Processes(ctx context.Context, namespace, pod string) ([]Process, error) {
	dir, err := c.podCgroup(ctx, namespace, pod)
	if err != nil {
		return nil, err
	}
	var found []Process
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		pids, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(pids)) {
			if p, ok := readProcess(field); ok {
				found = append(found, p)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of pod %s/%s: %w", namespace, pod, err)
	}
	slices.SortFunc(found, func(a, b Process) int { return int(a.started - b.started) })
	return found, nil
}

// KillProcess sends a signal to the oldest process of a pod whose command line contains match.
func (c *Cluster) KillProcess(ctx context.Context, namespace, pod, match string, signal syscall.Signal) error {
	processes, err := c.Processes(ctx, namespace, pod)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if !strings.Contains(p.Command, match) {
			continue
		}
		if err := syscall.Kill(p.PID, signal); err != nil {
			return fmt.Errorf("kill %q of pod %s/%s: %w", p.Command, namespace, pod, err)
		}
		return nil
	}
	return fmt.Errorf("kill a process of pod %s/%s: none has %q in its command line", namespace, pod, match)
}

// KillProcesses sends a signal to every process of a pod that is chosen, all within a moment, and returns how many.
func (c *Cluster) KillProcesses(ctx context.Context, namespace, pod string, chosen func(Process) bool, signal syscall.Signal) (int, error) {
	processes, err := c.Processes(ctx, namespace, pod)
	if err != nil {
		return 0, err
	}
	killed := 0
	for _, p := range processes {
		if !chosen(p) {
			continue
		}
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return killed, fmt.Errorf("kill %q of pod %s/%s: %w", p.Command, namespace, pod, err)
		}
		killed++
	}
	if killed == 0 {
		return 0, fmt.Errorf("kill processes of pod %s/%s: none was chosen", namespace, pod)
	}
	return killed, nil
}

// period of the kernel's quotas of processor time, in microseconds.
const period = 100_000

// LimitCPU gives a pod a share of one processor in percent, as if its node were busy; 0 gives it all again.
func (c *Cluster) LimitCPU(ctx context.Context, namespace, pod string, percent int) error {
	if percent < 0 || percent > 100 {
		return fmt.Errorf("give pod %s/%s %d percent of a processor: it must be 0 to 100", namespace, pod, percent)
	}
	var object podObject
	if err := c.getJSON(ctx, &object, "-n", namespace, "pod", pod); err != nil {
		return err
	}
	dir, err := object.cgroup(filepath.Join(cgroupMount, "cpu"))
	if err != nil {
		return err
	}
	quota := strconv.Itoa(percent * period / 100)
	if percent == 0 {
		quota = "-1"
	}
	// The kernel refuses less than a container of the pod has as its own limit, so this is for pods without one.
	if err := os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(quota), 0o644); err != nil {
		return fmt.Errorf("give pod %s/%s %d percent of a processor: %w", namespace, pod, percent, err)
	}
	return nil
}

func readProcess(pid string) (Process, bool) {
	command, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return Process{}, false // it has ended meanwhile
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return Process{}, false
	}
	number, err := strconv.Atoi(pid)
	if err != nil {
		return Process{}, false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	const startTime = 22 - 3 // field 22 of proc(5), counted from the state, field 3
	if len(fields) <= startTime {
		return Process{}, false
	}
	started, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return Process{}, false
	}
	return Process{PID: number, Command: strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")), started: started}, true
}

type podObject struct {
	Metadata struct{ Name, UID string }
	Spec     struct {
		NodeName string
		Volumes  []struct {
			PersistentVolumeClaim struct{ ClaimName string }
		}
	}
}

// podCgroup returns the directory of a pod in the unified tree.
func (c *Cluster) podCgroup(ctx context.Context, namespace, pod string) (string, error) {
	var object podObject
	if err := c.getJSON(ctx, &object, "-n", namespace, "pod", pod); err != nil {
		return "", err
	}
	t, err := machineTrees()
	if err != nil {
		return "", err
	}
	return object.cgroup(t.unified)
}

// cgroup finds a pod's directory in a hierarchy; on the way there may be a level for its class of service.
func (p podObject) cgroup(hierarchy string) (string, error) {
	pods := filepath.Join(hierarchy, cgroupRoot, p.Spec.NodeName, "kubepods")
	for _, pattern := range []string{pods + "/pod" + p.Metadata.UID, pods + "/*/pod" + p.Metadata.UID} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("find the cgroup of pod %s: %w", p.Metadata.Name, err)
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("find the cgroup of pod %s: it has none on node %q", p.Metadata.Name, p.Spec.NodeName)
}
