package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// cgroupMount is where a machine has its cgroups.
const cgroupMount = "/sys/fs/cgroup"

// cgroupTrees are the cgroup hierarchies of a machine.
type cgroupTrees struct {
	unified string   // version 2: it can kill and freeze whole trees
	v1      []string // beside it; none where version 2 has all controllers, as on Debian since 11
}

// findCgroupTrees looks for version 2 alone, or for the hybrid of both.
func findCgroupTrees(mount string) (cgroupTrees, error) {
	if _, err := os.Stat(mount + "/cgroup.controllers"); err == nil {
		return cgroupTrees{unified: mount}, nil
	}
	t := cgroupTrees{unified: mount + "/unified"}
	if _, err := os.Stat(t.unified + "/cgroup.procs"); err != nil {
		return cgroupTrees{}, fmt.Errorf("neither %s nor %s is a cgroup tree of version 2; in a container, start that with --privileged --cgroupns=host; on a machine, boot with systemd.unified_cgroup_hierarchy=1", mount, t.unified)
	}
	files, err := filepath.Glob(mount + "/*/cgroup.procs")
	if err != nil {
		return cgroupTrees{}, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	for _, f := range files {
		if dir := filepath.Dir(f); dir != t.unified {
			t.v1 = append(t.v1, dir)
		}
	}
	return t, nil
}

// dirs returns the directories of a cgroup such as /plimsoll/node1 in all hierarchies.
func (t cgroupTrees) dirs(name string) []string {
	var dirs []string
	for _, root := range append(slices.Clone(t.v1), t.unified) {
		dirs = append(dirs, filepath.Join(root, name))
	}
	return dirs
}

// make makes a cgroup with its parents in all hierarchies. The kubelet refuses one that is missing, or lacks a
// controller, anywhere.
func (t cgroupTrees) make(name string) error {
	made := ""
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if err := t.enableControllers(made); err != nil {
			return err
		}
		made += "/" + part
		for _, dir := range t.dirs(made) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
		}
		for _, root := range t.v1 {
			if err := fillCpuset(filepath.Join(root, made)); err != nil {
				return fmt.Errorf("make cgroup %s: %w", made, err)
			}
		}
	}
	return nil
}

// controllers that the kubelet, limits of pods and volume-slow use. Those with true must be there.
func controllers() map[string]bool {
	return map[string]bool{"cpu": true, "cpuset": true, "memory": true, "pids": true, "io": true, "hugetlb": false}
}

// enableControllers gives them to the children of a cgroup, which must not have processes of its own unless it is the
// machine's root. In a hybrid, version 1 has them.
func (t cgroupTrees) enableControllers(name string) error {
	if len(t.v1) > 0 {
		return nil
	}
	dir := filepath.Join(t.unified, name)
	missing, err := controllersMissing(dir)
	if err != nil || len(missing) == 0 {
		return err
	}
	change := "+" + strings.Join(missing, " +")
	err = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(change), 0o644)
	if errors.Is(err, syscall.EBUSY) {
		return errOccupied(dir)
	}
	if err != nil {
		return fmt.Errorf("enable cgroup controllers (%s) in %s: %w", change, dir, err)
	}
	return nil
}

// controllersMissing lists what a cgroup of version 2 has and its children do not get yet.
func controllersMissing(dir string) ([]string, error) {
	have, err := words(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	given, err := words(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return nil, err
	}
	var missing, absent []string
	for name, needed := range controllers() {
		switch {
		case slices.Contains(given, name):
		case slices.Contains(have, name):
			missing = append(missing, name)
		case needed:
			absent = append(absent, name)
		}
	}
	slices.Sort(missing)
	slices.Sort(absent)
	if len(absent) > 0 {
		return nil, fmt.Errorf("cgroup %s has no controllers %s; in a container, start that with --privileged --cgroupns=host; on a machine, boot without cgroup_disable or cgroup_no_v1", dir, strings.Join(absent, ", "))
	}
	return missing, nil
}

func words(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	return strings.Fields(string(text)), nil
}

func errOccupied(dir string) error {
	return fmt.Errorf("cgroup %s is a container's own and has processes, so the kernel gives it no cgroups with limits; start the container with --privileged --cgroupns=host", dir)
}

// usable tells whether make would succeed, and changes nothing that stays.
func (t cgroupTrees) usable() error {
	for _, root := range t.dirs("/") {
		probe, err := os.MkdirTemp(root, strings.TrimPrefix(cgroupRoot, "/")+"-check-")
		if err != nil {
			return fmt.Errorf("no cgroup can be made in %s (%w); in a container, start that with --privileged --cgroupns=host", root, err)
		}
		if err := os.Remove(probe); err != nil {
			return fmt.Errorf("remove cgroup %s: %w", probe, err)
		}
	}
	if len(t.v1) > 0 {
		return nil
	}
	missing, err := controllersMissing(t.unified)
	if err != nil || len(missing) == 0 {
		return err
	}
	// Only the machine's own root has no type; it alone may have processes and children with controllers.
	if _, err := os.Stat(filepath.Join(t.unified, "cgroup.type")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	processes, err := words(filepath.Join(t.unified, "cgroup.procs"))
	if err == nil && len(processes) > 0 {
		err = errOccupied(t.unified)
	}
	return err
}

// fillCpuset copies the parent's processors: a new version 1 cpuset has none, and nothing can join it.
func fillCpuset(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		to := filepath.Join(dir, name)
		if _, err := os.Stat(to); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, value, 0o644); err != nil {
			return err
		}
	}
	return nil
}
