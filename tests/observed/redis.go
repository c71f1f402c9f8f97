package observed

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RedisServer is where Debian 12 has the program of Redis: in the package redis-tools, under another of the names that it goes by. The package redis-server adds
// a link, and a server that is started at once.
const RedisServer = "/usr/bin/redis-check-rdb"

// NeedsRedis skips a test that measures a real Redis, unless this is the run that may leave out nothing.
func NeedsRedis(t *testing.T) {
	t.Helper()
	NeedsRoot(t)
	_, err := os.Stat(RedisServer)
	if err != nil && os.Getenv("PLIMSOLL_KERNEL_TESTS") == "" {
		t.Skipf("the server that is measured: %v: install the Debian package redis-tools", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Redis is a real Redis, with a port for TLS and a socket of the file system, that keeps nothing.
type Redis struct {
	Dir           string // of its socket and certificate
	Port, TLSPort int    // on 127.0.0.1
	PID           int
}

// StartRedis runs a server in a cgroup until the test ends, with further arguments.
func StartRedis(t *testing.T, group *os.File, args ...string) *Redis {
	t.Helper()
	NeedsRedis(t)
	dir, err := os.MkdirTemp("", "plimsoll-measured-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	certificate(t, dir, os.Getuid(), os.Getgid())
	var log bytes.Buffer
	s := &Redis{Dir: dir, Port: freePort(t), TLSPort: freePort(t)} // last of all, so that nobody else takes it meanwhile
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), RedisServer, append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port), "--tls-port", strconv.Itoa(s.TLSPort), "--unixsocket", dir + "/socket", "--save", "", "--dir", dir,
		"--tls-cert-file", dir + "/server.crt", "--tls-key-file", dir + "/server.key", "--tls-ca-cert-file", dir + "/server.crt", "--tls-auth-clients", "no",
	}, args...)...)
	cmd.Args[0] = "redis-server"
	cmd.Stdout, cmd.Stderr, cmd.Dir = &log, &log, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.PID = cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it says how it ended in its log
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
		if t.Failed() {
			t.Logf("the server's log:\n%s", &log)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; {
		if _, err := os.Stat(dir + "/socket"); err == nil { // the last that it opens
			return s
		}
		select {
		case <-ended:
			t.Fatalf("the server ended: %s", &log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not answer")
		}
	}
}

// To is how redis-cli and redis-benchmark reach a server: plain, through TLS ("require") or by its socket (Local).
func (s *Redis) To(sslmode string) []string {
	switch sslmode {
	case Local:
		return []string{"-s", s.Dir + "/socket"}
	case "require":
		return []string{"-h", "127.0.0.1", "-p", strconv.Itoa(s.TLSPort), "--tls", "--insecure"}
	}
	return []string{"-h", "127.0.0.1", "-p", strconv.Itoa(s.Port)}
}

// Cli runs a command and gives back what it said, errors too.
func (s *Redis) Cli(t *testing.T, sslmode string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "redis-cli", append(s.To(sslmode), args...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("redis-cli: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// Benchmark runs redis-benchmark.
func (s *Redis) Benchmark(t *testing.T, sslmode string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "redis-benchmark", append(append(s.To(sslmode), "-q"), args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-benchmark %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
