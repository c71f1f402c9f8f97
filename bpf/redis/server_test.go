package redis

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// server is a real Redis in a cgroup of its own.
type server struct {
	*observed.Redis
	cgroup uint64
}

func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	observed.NeedsRedis(t)
	group, id := newCgroup(t)
	return &server{observed.StartRedis(t, group, args...), id}
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

// libssl is the one that the server has mapped.
func (s *server) libssl(t *testing.T) string {
	t.Helper()
	path, err := Libssl("/proc/" + strconv.Itoa(s.PID))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// measure attaches a family to servers until the test ends.
func measure(t *testing.T, servers ...*server) *Family {
	t.Helper()
	f := measureFor(t, servers...)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// measureFor is measure without an end.
func measureFor(t *testing.T, servers ...*server) *Family {
	t.Helper()
	mount(t, "tracefs", "/sys/kernel/tracing")
	f, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AttachSyscalls(); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if err := f.Watch(Target{Cgroup: s.cgroup, Port: uint16(s.Port), TLSPort: uint16(s.TLSPort)}); err != nil {
			t.Fatal(err)
		}
		library, err := Open(s.libssl(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Attach(library); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// client says commands one by one, or many at once.
type client struct {
	t    *testing.T
	conn net.Conn
	from *bufio.Reader
}

func (s *server) connect(t *testing.T, sslmode string) *client {
	t.Helper()
	var conn net.Conn
	var err error
	switch sslmode {
	case observed.Local:
		conn, err = net.Dial("unix", s.Dir+"/socket")
	case "require":
		conn, err = tls.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.TLSPort), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own certificate
	default:
		conn, err = net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.Port))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

// send says commands, each of words between spaces, all at once.
func (c *client) send(lines ...string) {
	c.t.Helper()
	c.write(asks(lines...).bytes)
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if err := c.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// receive takes so many answers and gives back the last.
func (c *client) receive(n int) (last string) {
	c.t.Helper()
	for range n {
		last = c.answer()
	}
	return last
}

func (c *client) answer() string {
	c.t.Helper()
	line, err := c.from.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	line = strings.TrimRight(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.from, b); err != nil {
			c.t.Fatal(err)
		}
		return string(b[:n])
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		var all []string
		for range n {
			all = append(all, c.answer())
		}
		return strings.Join(all, " ")
	}
	return line
}

// do says commands one by one.
func (c *client) do(lines ...string) (last string) {
	c.t.Helper()
	for _, line := range lines {
		c.send(line)
		last = c.receive(1)
	}
	return last
}

// stat is what was counted of one command: all, and those that failed.
type stat struct{ Calls, Errors uint64 }

// commandstats is the same by Redis itself. A command that it refuses to call is no call for it.
func (c *client) commandstats() map[string]stat {
	c.t.Helper()
	all := map[string]stat{}
	for line := range strings.Lines(c.do("INFO commandstats")) {
		name, rest, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "cmdstat_")), ":")
		if !ok {
			continue
		}
		var calls, rejected, failed uint64
		for field := range strings.SplitSeq(rest, ",") {
			key, value, _ := strings.Cut(field, "=")
			for of, to := range map[string]*uint64{"calls": &calls, "rejected_calls": &rejected, "failed_calls": &failed} {
				if key == of {
					if _, err := fmt.Sscan(value, to); err != nil {
						c.t.Fatal(err)
					}
				}
			}
		}
		if calls+rejected > 0 && name != "info" { // it counts itself when it has answered
			all[name] = stat{calls + rejected, rejected + failed}
		}
	}
	return all
}

// stats by command.
func (l *ledger) stats(t *testing.T) map[string]stat {
	t.Helper()
	l.read(t)
	all := map[string]stat{}
	for c := range l.family.Counts() {
		if c.Calls == 0 {
			continue
		}
		name, _, _ := strings.Cut(l.texts[c.Key.Print], " ")
		if c.Key.Print == 0 {
			name = "other"
		}
		if name == "info" {
			continue
		}
		s := all[name]
		s.Calls += c.Calls
		if c.Key.State != 0 {
			s.Errors += c.Calls
		}
		all[name] = s
	}
	return all
}

// agree waits until what was counted is what Redis counted: a client may have its answer a moment before it is counted. What is known better than by Redis
// is given as but.
func (l *ledger) agree(t *testing.T, control *client, but map[string]stat) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		want := control.commandstats()
		maps.Copy(want, but)
		if diff = cmp.Diff(want, l.stats(t)); diff == "" {
			return
		}
	}
	t.Errorf("INFO commandstats (-) and what was counted (+) differ:\n%s\nlost: %v", diff, l.lost(t))
}

// entries of a map.
func (f *Family) entries(t *testing.T) (conns, threads, seals, spill int) {
	t.Helper()
	for to, m := range map[*int]interface {
		NextKeyBytes(any) ([]byte, error)
	}{&conns: f.kernel.Conns, &threads: f.kernel.Threads, &seals: f.kernel.Seals, &spill: f.kernel.Spill} {
		var key any
		for {
			next, err := m.NextKeyBytes(key)
			if err != nil {
				t.Fatal(err)
			}
			if next == nil {
				break
			}
			*to, key = *to+1, next
		}
	}
	return conns, threads, seals, spill
}
