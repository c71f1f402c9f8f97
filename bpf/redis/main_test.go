package redis

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// TestMain runs the tests where tracefs and the hierarchy of cgroup v2 can be mounted whatever the machine has.
func TestMain(m *testing.M) { os.Exit(observed.Run(m.Run)) }

// mount gives the test a file system that this namespace lacks.
func mount(t *testing.T, kind, dir string) {
	t.Helper()
	var s unix.Statfs_t
	magic := map[string]int64{"tracefs": unix.TRACEFS_MAGIC, "cgroup2": unix.CGROUP2_SUPER_MAGIC}
	if err := unix.Statfs(dir, &s); err == nil && s.Type == magic[kind] {
		return
	}
	if err := unix.Mount("none", dir, kind, 0, ""); err != nil {
		t.Fatalf("mount %s on %s: %v", kind, dir, err)
	}
}
