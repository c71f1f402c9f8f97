package attribute

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// mostDirs and mostDeep bound a walk over a node's cgroups. A node of 250 pods has a thousand.
	mostDirs = 65536
	mostDeep = 24
	// mostCgroups bounds those of one container: its own, and what is made below it.
	mostCgroups = 16
)

// Hierarchy finds the version 2 hierarchy below a node's mount of cgroups: that itself, or the one beside those of version 1. Programs in
// the kernel know cgroups of version 2 alone.
func Hierarchy(mount string) (string, error) {
	for _, dir := range []string{mount, filepath.Join(mount, "unified")} {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err == nil && s.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s holds no cgroups of version 2, by which containers are told apart in the kernel; boot the node with systemd.unified_cgroup_hierarchy=1", mount)
}

// Tree is what a walk found.
type Tree struct {
	// Cgroups of each container by their ids in the kernel: its own first, then those below it.
	Cgroups map[Container][]uint64
	// Skipped are directories that were left out: too many, or too deep.
	Skipped int
}

// Walk finds the containers of pods in a hierarchy of version 2.
func Walk(hierarchy string) (Tree, error) {
	t := Tree{Cgroups: map[Container][]uint64{}}
	dirs := 0
	err := filepath.WalkDir(hierarchy, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it ended meanwhile
		}
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			return nil
		}
		below := strings.TrimPrefix(path, hierarchy)
		if dirs++; dirs > mostDirs || strings.Count(below, "/") > mostDeep {
			t.Skipped++
			return fs.SkipDir
		}
		return t.add(path, below)
	})
	if err != nil {
		return Tree{}, fmt.Errorf("list the node's cgroups: %w", err)
	}
	return t, nil
}

func (t *Tree) add(path, below string) error {
	whose, ok := Of(below)
	if !ok {
		return nil
	}
	if len(t.Cgroups[whose]) == mostCgroups {
		t.Skipped++
		return fs.SkipDir
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fs.SkipDir
	}
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("this system tells no inodes")
	}
	t.Cgroups[whose] = append(t.Cgroups[whose], stat.Ino) // a cgroup's id is the inode of its directory
	return nil
}
