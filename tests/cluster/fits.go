package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// Fits says what this machine lacks for a cluster of three nodes. Ask before the long build.
func Fits() error {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		return errors.New("a local cluster needs Linux and root, for namespaces and cgroups")
	}
	memory, err := machineMemory()
	if err != nil {
		return err
	}
	// A machine sold with 6 GiB shows what its kernel left over.
	if memory < 5.5*gib {
		return fmt.Errorf("a local cluster needs 6 GiB of memory, and this machine has %.1f", float64(memory)/gib)
	}
	trees, err := machineTrees()
	if err == nil {
		err = trees.usable()
	}
	if err != nil {
		return fmt.Errorf("a local cluster needs cgroups that it can manage: %w", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	return stacks(cache)
}

// stacks tells whether containerd can put its layers below a directory, which need not be there yet.
func stacks(dir string) error {
	var info syscall.Statfs_t
	err := syscall.Statfs(dir, &info)
	if parent := filepath.Dir(dir); errors.Is(err, os.ErrNotExist) && parent != dir {
		return stacks(parent)
	}
	if err != nil {
		return fmt.Errorf("ask for the file system of %s: %w", dir, err)
	}
	const overlay = 0x794c7630
	if info.Type == overlay {
		return fmt.Errorf("%s is a container's overlay file system, and the kernel does not stack the pods' on it; mount a volume there, or set PLIMSOLL_CACHE to a directory on one", dir)
	}
	return nil
}

// machineMemory is what a kubelet takes for the capacity of its node.
func machineMemory() (uint64, error) {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("ask for the memory: %w", err)
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil //nolint:unconvert // uint32 on some architectures
}

// nodeMemory is what the pods of one node may take. A third, though at most 2 GiB, is for the control plane, the
// nodes' own programs and what else the machine does.
func nodeMemory(machine uint64, nodes int) uint64 {
	return (machine - min(machine/3, 2*gib)) / uint64(nodes)
}
