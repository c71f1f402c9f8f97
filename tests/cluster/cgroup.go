package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	unified     = cgroupMount + "/unified" // cgroup2: it can kill and freeze whole trees
)

// hierarchies returns the mount points of all cgroup hierarchies, version 1 and unified.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(unified + "/cgroup.procs"); err != nil {
		return nil, fmt.Errorf("this machine has no hybrid cgroup tree (%s): %w", unified, err)
	}
	return filepath.Glob(cgroupMount + "/*/cgroup.procs")
}

// cgroupDirs returns the directories of a cgroup such as /plimsoll/node1 in all hierarchies.
func cgroupDirs(name string) ([]string, error) {
	files, err := hierarchies()
	if err != nil {
		return nil, err
	}
	dirs := make([]string, len(files))
	for i, f := range files {
		dirs[i] = filepath.Join(filepath.Dir(f), name)
	}
	return dirs, nil
}

// makeCgroup makes a cgroup with its parents in all hierarchies. The kubelet refuses one that is missing anywhere.
func makeCgroup(name string) error {
	parts := strings.Split(strings.Trim(name, "/"), "/")
	for i := range parts {
		dirs, err := cgroupDirs(filepath.Join(parts[:i+1]...))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
			if err := fillCpuset(dir); err != nil {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
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

// killCgroup ends every process below a cgroup at one instant and waits until they are gone.
func killCgroup(ctx context.Context, name string) error {
	dir := filepath.Join(unified, name)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("kill cgroup %s: %w", name, err)
	}
	return wait(ctx, 20*time.Second, "the end of all processes in cgroup "+name, func(context.Context) error {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			return err
		}
		if strings.Contains(string(events), "populated 1") {
			return errors.New("some are left")
		}
		return nil
	})
}

// removeCgroup removes the directories of a cgroup, deepest first. A dead one can be busy for a moment.
func removeCgroup(ctx context.Context, name string) error {
	dirs, err := cgroupDirs(name)
	if err != nil {
		return err
	}
	return wait(ctx, 20*time.Second, "the removal of cgroup "+name, func(context.Context) error {
		var failed error
		for _, dir := range dirs {
			failed = errors.Join(failed, removeTree(dir))
		}
		return failed
	})
}

func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list cgroup %s: %w", root, err)
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}
