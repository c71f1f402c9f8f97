package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sysctls are the settings of the whole machine that the kubelet, or we, change while a cluster is up.
func sysctls() []string {
	return []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "fs/inotify/max_user_instances",
	}
}

// changeSysctls writes down the settings as they were before the cluster and changes the one that we need changed.
func (c *Cluster) changeSysctls() error {
	if err := c.keepSysctls(); err != nil {
		return err
	}
	// Three kubelets and containerds watch more files than the default of 128 allows.
	if err := os.WriteFile("/proc/sys/fs/inotify/max_user_instances", []byte("1024"), 0o644); err != nil {
		return fmt.Errorf("raise the limit of file watches: %w", err)
	}
	return nil
}

func (c *Cluster) keepSysctls() error {
	if _, err := os.Stat(c.path("sysctls.json")); err == nil {
		return nil // of a run that did not end well: those are the true ones
	}
	before := map[string]string{}
	for _, name := range sysctls() {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return fmt.Errorf("read the setting %s: %w", name, err)
		}
		before[name] = strings.TrimSpace(string(value))
	}
	data, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("keep the machine's settings: %w", err)
	}
	return replaceFile(c.path("sysctls.json"), data, 0o644)
}

func (c *Cluster) restoreSysctls() error {
	data, err := os.ReadFile(c.path("sysctls.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore the machine's settings: %w", err)
	}
	before := map[string]string{}
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("restore the machine's settings: %w", err)
	}
	for name, value := range before {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
			return fmt.Errorf("restore the setting %s: %w", name, err)
		}
	}
	return os.Remove(c.path("sysctls.json"))
}

// mountPoints are the directories over which every node mounts its own. On the machine itself they stay empty.
func mountPoints() []string {
	return []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/etc/cni/net.d", "/etc/cni"}
}

func (c *Cluster) makeMountPoints() error {
	var made []string
	for _, dir := range mountPoints() {
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		made = append(made, dir)
	}
	for _, dir := range made {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the mount point %s: %w", dir, err)
		}
	}
	if len(made) == 0 {
		return nil
	}
	return replaceFile(c.path("mountpoints"), []byte(strings.Join(made, "\n")), 0o644)
}

// removeMountPoints removes those that makeMountPoints made, unless somebody has put something there since.
func (c *Cluster) removeMountPoints() error {
	data, err := os.ReadFile(c.path("mountpoints"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the mount points: %w", err)
	}
	for _, dir := range strings.Fields(string(data)) {
		_ = os.Remove(dir) // not empty: no longer ours
	}
	return os.Remove(c.path("mountpoints"))
}

// leftovers lists everything of a cluster that is still on the machine outside the state directory.
func (c *Cluster) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	names, err := namespaces()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		left = append(left, "network namespace "+name)
	}
	dirs, err := cgroupDirs(cgroupRoot)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			left = append(left, "cgroup "+dir)
		}
	}
	routes, err := unreachableRoutes(ctx)
	if err != nil {
		return nil, err
	}
	for _, route := range routes {
		left = append(left, "route "+route)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, c.dir+"/") {
			left = append(left, "mount "+line)
		}
	}
	loops, err := c.loopDevices("")
	if err != nil {
		return nil, err
	}
	for _, loop := range loops {
		left = append(left, "loop device "+loop.device+" of "+loop.file)
	}
	if _, err := os.Stat(c.path("sysctls.json")); err == nil {
		left = append(left, "changed settings (sysctls.json)")
	}
	return left, nil
}
