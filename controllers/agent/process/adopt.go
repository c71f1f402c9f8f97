package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt returns the child that an earlier program of this process started, and from then on collects its exit. Call it before Reap, which
// would else take it for an orphan.
func (t *Table) Adopt(pid int) (*Process, error) {
	s, ok := readStat(filepath.Join(t.proc, strconv.Itoa(pid), "stat"))
	if !ok || s.parent != t.self {
		return nil, fmt.Errorf("adopt process %d: it is no child of this one", pid)
	}
	to, err := os.FindProcess(pid) // its number cannot be another's: nobody but the reaper collects it
	if err != nil {
		return nil, fmt.Errorf("adopt process %d: %w", pid, err)
	}
	p := &Process{pid: pid, to: to, done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.adopted == nil {
		t.adopted = map[int]*Process{}
	}
	t.adopted[pid] = p
	return p, nil
}

// ended tells whoever waits for an adopted child how it ended.
func (t *Table) ended(pid int, status unix.WaitStatus) {
	t.mu.Lock()
	p := t.adopted[pid]
	delete(t.adopted, pid)
	t.mu.Unlock()
	if p == nil {
		return
	}
	p.exit = Exit{Code: status.ExitStatus(), At: time.Now()}
	if status.Signaled() {
		p.exit.Signal = status.Signal()
	}
	close(p.done)
}

// Become makes this process another program, by the open file of it. It returns only if that fails, and then nothing has changed. SIGTERM
// and SIGINT that come meanwhile wait for the next program: a first process has no default action for them, so they would be lost.
func (t *Table) Become(program *os.File, args, env []string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mask, old := termination(), unix.Sigset_t{}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, &old); err != nil {
		return fmt.Errorf("become the next program: %w", err)
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }() // what was set a moment ago can be set again
	if err := syscall.Exec("/proc/self/fd/"+strconv.Itoa(int(program.Fd())), args, env); err != nil {
		return fmt.Errorf("become the next program: %w", err)
	}
	return nil
}

// termination is the set of signals that ask the agent to end.
func termination() unix.Sigset_t {
	var set unix.Sigset_t
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		set.Val[0] |= 1 << (uint(s) - 1)
	}
	return set
}

// unblock lets the calling thread, and a child that it starts, take the signals that Become made wait.
func unblock() error {
	mask := termination()
	return unix.PthreadSigmask(unix.SIG_UNBLOCK, &mask, nil)
}
