package connection

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// newCgroup makes a cgroup of the v2 hierarchy that goes with the test. Its id is the inode of its directory.
func newCgroup(t *testing.T) (*os.File, uint64) {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		t.Fatalf("mount cgroup2: %v", err)
	}
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

// serving marks the process of an echo server.
const serving = "PLIMSOLL_CONNECTION_TEST_SERVING"

// serve is an echo server: of what the kernel tells of a connection nothing depends on who serves. It ends with its standard input. A client that
// sends "reset" is answered so.
func serve() {
	address, err := net.ResolveTCPAddr("tcp", os.Getenv(serving))
	if err == nil {
		var l *net.TCPListener
		if l, err = net.ListenTCP("tcp", address); err == nil {
			fmt.Println(l.Addr().(*net.TCPAddr).Port)
			go echo(l)
			_, err = io.Copy(io.Discard, os.Stdin)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func echo(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := c.Read(buffer)
				if err != nil {
					return
				}
				if string(buffer[:n]) == "reset" {
					_ = c.SetLinger(0)
					return
				}
				if _, err := c.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// echoServer is an echo server in a cgroup of its own.
type echoServer struct {
	group  *os.File
	cgroup uint64
	port   uint16
	stop   func()
}

func startEcho(t *testing.T, group *os.File, id uint64, address string) *echoServer {
	t.Helper()
	observed.NeedsRoot(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), serving+"="+address, "GODEBUG=multipathtcp=0")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &echoServer{group: group, cgroup: id}
	stopped := false
	s.stop = func() {
		if !stopped {
			stopped = true
			in.Close()
			_ = cmd.Wait() // it says on its standard error what went wrong
		}
	}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the echo server ended: %v", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	s.port = uint16(port)
	return s
}

func newEcho(t *testing.T) *echoServer {
	t.Helper()
	observed.NeedsRoot(t)
	group, id := newCgroup(t)
	return startEcho(t, group, id, "127.0.0.1:0")
}

// attached is a family that is loaded until the test ends.
func attached(t *testing.T) *Family {
	t.Helper()
	observed.NeedsRoot(t)
	f, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Attach(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Family) watches(t *testing.T, cgroup uint64, port uint16) {
	t.Helper()
	if err := f.Watch(Target{Cgroup: cgroup, Port: port}); err != nil {
		t.Fatal(err)
	}
}

// dial connects from an address of the loopback network.
func (s *echoServer) dial(t *testing.T, from string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(s.port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say sends bytes and takes their echo.
func say(t *testing.T, c *net.TCPConn, size int) {
	t.Helper()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}
