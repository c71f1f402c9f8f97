package query

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// server is a real PostgreSQL in a cgroup of its own, with pg_stat_statements.
type server struct {
	*observed.Server
	cgroup uint64
}

func newServer(t *testing.T, settings ...string) *server {
	t.Helper()
	observed.NeedsServer(t)
	group, id := newCgroup(t)
	s := observed.Start(t, group, append([]string{
		"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=top", "compute_query_id=on", "max_connections=150",
	}, settings...)...)
	if said := s.Psql(t, observed.Local, "CREATE EXTENSION pg_stat_statements"); said != "" {
		t.Fatal(said)
	}
	return &server{s, id}
}

// newCgroup makes a cgroup of the v2 hierarchy that goes with the test. Its id is the inode of its directory.
func newCgroup(t *testing.T) (*os.File, uint64) {
	t.Helper()
	root := t.TempDir()
	mount(t, "cgroup2", root)
	t.Cleanup(func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir, err := os.MkdirTemp(root, "plimsoll-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Its processes have ended; the kernel may take a moment to see that.
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("cgroup %s is not empty", dir)
	})
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { group.Close() })
	var s syscall.Stat_t
	if err := syscall.Fstat(int(group.Fd()), &s); err != nil {
		t.Fatal(err)
	}
	return group, s.Ino
}

// measure attaches a family to a server until the test ends.
func measure(t *testing.T, s *server) *Family {
	t.Helper()
	mount(t, "tracefs", "/sys/kernel/tracing")
	f := measureBinary(t, s, Options{})
	if err := f.AttachSyscalls(); err != nil {
		t.Fatal(err)
	}
	return f
}

// watching is a family that follows a server, and is attached to none of its functions.
func watching(t *testing.T, s *server, o Options) *Family {
	t.Helper()
	f, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Watch(Target{Cgroup: s.cgroup, Port: uint16(s.Port)}); err != nil {
		t.Fatal(err)
	}
	return f
}

// measureBinary attaches a family to the functions of a server.
func measureBinary(t *testing.T, s *server, o Options) *Family {
	t.Helper()
	f := watching(t, s, o)
	if _, err := f.AttachBinary(observed.Bin + "postgres"); err != nil {
		t.Fatal(err)
	}
	return f
}
