package attribute

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if cgroup, ok := strings.CutPrefix(lines.Text(), "0::"); ok {
			return Of(cgroup)
		}
	}
	return Container{}, false
}
