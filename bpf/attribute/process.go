package attribute

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostProcesses bounds a look at a node's processes: it is what the kernel allows on most machines.
const mostProcesses = 1 << 22

// Programs finds, for each container that is asked for, a process that runs a program of one of these names: the path of the program's file, below
// proc, the node's /proc. A container whose processes do not run it now is left out. Those that were found are given back beside an error, too.
func Programs(proc string, names []string, wanted map[Container]bool) (map[Container]string, error) {
	return programs(proc, names, wanted, os.Readlink)
}

func programs(proc string, names []string, wanted map[Container]bool, readlink func(string) (string, error)) (map[Container]string, error) {
	found := map[Container]string{}
	if len(wanted) == 0 {
		return found, nil
	}
	dir, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(mostProcesses)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	var refused error
	for _, entry := range entries {
		if _, err := strconv.ParseUint(entry, 10, 32); err != nil {
			continue
		}
		whose, ok := cgroupOf(filepath.Join(proc, entry, "cgroup"))
		if !ok || !wanted[whose] || found[whose] != "" {
			continue
		}
		path := filepath.Join(proc, entry, "exe")
		file, err := readlink(path)
		if errors.Is(err, fs.ErrPermission) && refused == nil { // one speaks for all
			refused = fmt.Errorf("find the program of process %s: %w; the probe needs the capability SYS_PTRACE", entry, err)
		}
		// A process may end at any time, and a file may have been replaced under it.
		if err == nil && slices.Contains(names, filepath.Base(strings.TrimSuffix(file, " (deleted)"))) {
			found[whose] = path
		}
	}
	return found, refused
}

// cgroupOf reads whose a process is, by its cgroup of version 2.
func cgroupOf(path string) (Container, bool) {
	file, err := os.Open(path)
	if err != nil {
		return Container{}, false // it has ended
	}
	defer file.Close()
	return containerIn(file)
}

func containerIn(cgroups io.Reader) (Container, bool) {
	for lines := bufio.NewScanner(cgroups); lines.Scan(); {
		if cgroup, ok := strings.CutPrefix(lines.Text(), "0::"); ok {
			return Of(cgroup)
		}
	}
	return Container{}, false
}

// Root opens the root of the file system of a process, whose directory in the node's /proc this is, if it is one of the container still: its number may
// be another process's by now, and what is opened here holds on to the one that was looked at.
func Root(process string, of Container) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	dir, err := unix.Open(process, flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: process, Err: err}
	}
	defer unix.Close(dir)
	root, err := unix.Openat(dir, "root", flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: process + "/root", Err: err}
	}
	file := os.NewFile(uintptr(root), process+"/root")
	cgroup, err := unix.Openat(dir, "cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: process + "/cgroup", Err: err}, file.Close())
	}
	said := os.NewFile(uintptr(cgroup), process+"/cgroup")
	defer said.Close()
	if now, ok := containerIn(said); !ok || now != of {
		return nil, errors.Join(&fs.PathError{Op: "find the container of", Path: process, Err: fs.ErrNotExist}, file.Close())
	}
	return file, nil
}
