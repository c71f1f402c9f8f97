package driver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxOutput bounds what is kept of a program's output: its end is what tells.
const maxOutput = 64 << 10

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - maxOutput; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// last line that says something; programs that show progress end their lines by a carriage return.
func (t *tail) last() string {
	lines := strings.FieldsFunc(t.String(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(lines[i]); text != "" {
			return text
		}
	}
	return ""
}

// run one of the server's programs to its end and give its standard output. It dies with this process. Progress, if not nil, is
// told the newest line of standard error every few seconds.
func (d *Driver) run(ctx context.Context, progress func(string), name string, args ...string) (string, error) {
	// The kernel sends Pdeathsig when the thread that started the child ends, not the process: stay on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out, errs tail
	cmd := exec.CommandContext(ctx, d.bins.path(name), args...)
	cmd.Dir = d.cfg.DataDir
	cmd.Env = d.env()
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: d.cfg.Credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	done := make(chan struct{})
	var told sync.WaitGroup
	if progress != nil {
		told.Go(func() { every(5*time.Second, done, func() { progress(errs.last()) }) })
	}
	err := cmd.Wait()
	close(done)
	told.Wait()
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("%s: %w", name, ctx.Err())
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", name, err, lastLines(errs.String(), 4))
	}
	return out.String(), nil
}

func every(period time.Duration, done <-chan struct{}, act func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			act()
		}
	}
}

// lastLines on one line.
func lastLines(text string, n int) string {
	lines := bytes.FieldsFunc([]byte(text), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte("; ")))
}

// env is what the server and its programs see: that of the image, without what would change what they do or say. LC_ALL keeps
// their messages readable to the code that parses them; a HOME without files keeps out stray service files and passwords.
func (d *Driver) env() []string {
	all := []string{"PATH=" + d.bins.dir + ":" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "LANGUAGE=C", "TZ=UTC", "HOME=" + d.cfg.RunDir}
	for _, pair := range os.Environ() {
		if !ownVariable(pair) {
			all = append(all, pair)
		}
	}
	return all
}

func ownVariable(pair string) bool {
	for _, prefix := range []string{"PG", "PLIMSOLL_", "LC_", "LANG", "TZ=", "HOME=", "PATH=", "USER=", "LOGNAME="} {
		if strings.HasPrefix(pair, prefix) {
			return true
		}
	}
	return false
}
