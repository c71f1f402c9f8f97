package process

import (
	"fmt"
	"os"
	"path/filepath"
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

// Become makes this process another program, by the open file of it. It returns only if that fails, and then nothing has changed.
//
// A signal that asks to end is lost if it comes between this and the next program's signal.Notify, a few milliseconds: a first process has
// no default action for it, and Go's runtime lets nobody block it. The pod then ends when its grace is over.
func (t *Table) Become(program *os.File, args, env []string) error {
	if err := syscall.Exec("/proc/self/fd/"+strconv.Itoa(int(program.Fd())), args, env); err != nil {
		return fmt.Errorf("become the next program: %w", err)
	}
	return nil
}
