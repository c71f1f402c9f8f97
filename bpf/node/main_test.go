package node

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// hierarchy is where the tests have the cgroups of version 2.
var hierarchy string

// TestMain runs the tests with tracefs and the hierarchy of cgroup v2 whatever the machine has.
func TestMain(m *testing.M) {
	os.Exit(observed.Run(func() int {
		if hierarchy = os.Getenv(confinedHierarchy); hierarchy != "" || os.Geteuid() != 0 {
			return m.Run() // it cannot mount, and need not
		}
		return mounted(m)
	}))
}

func mounted(m *testing.M) int {
	dir, err := os.MkdirTemp("", "plimsoll-node-cgroups-")
	if err == nil {
		defer os.Remove(dir)
		err = unix.Mount("none", dir, "cgroup2", 0, "")
	}
	if err == nil {
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }() // the namespace ends too
		err = traced(os.Getenv(without) == "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mount what the tests need:", err)
		return 1
	}
	hierarchy = dir
	return m.Run()
}

// traced mounts tracefs, or takes every mount of it away.
func traced(yes bool) error {
	const dir = "/sys/kernel/tracing"
	if yes {
		if err := unix.Mount("none", dir, "tracefs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) { // it is there already
			return fmt.Errorf("mount tracefs: %w", err)
		}
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2] != "tracefs" && fields[2] != "debugfs" {
			continue
		}
		if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("take %s away: %w", fields[1], err)
		}
	}
	return nil
}
