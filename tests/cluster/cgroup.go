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

// machineTrees are the cgroup hierarchies of this machine.
func machineTrees() (cgroupTrees, error) { return findCgroupTrees(cgroupMount) }

// cgroupDirs returns the directories of a cgroup such as /plimsoll/node1 in all hierarchies.
func cgroupDirs(name string) ([]string, error) {
	t, err := machineTrees()
	if err != nil {
		return nil, err
	}
	return t.dirs(name), nil
}

// makeCgroup makes a cgroup with its parents in all hierarchies.
func makeCgroup(name string) error {
	t, err := machineTrees()
	if err != nil {
		return err
	}
	return t.make(name)
}

// killCgroup ends every process below a cgroup at one instant and waits until they are gone.
func killCgroup(ctx context.Context, name string) error {
	t, err := machineTrees()
	if err != nil {
		return err
	}
	dir := filepath.Join(t.unified, name)
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
