// Package process starts, waits for and ends the processes of one container as its PID 1.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Table is the set of processes that this one answers for: every other process of its PID namespace where it is PID 1, else
// its descendants (a host where somebody runs the agent by hand, or a test).
type Table struct {
	self int
	init bool
	proc string

	mu      sync.Mutex
	adopted map[int]*Process // children that an earlier program of this process started
}

// NewTable returns the table of the calling process. Where that is not PID 1 it becomes the reaper of its descendants, so that
// none of them can slip away by outliving its parent.
func NewTable() (*Table, error) {
	t := &Table{self: os.Getpid(), init: os.Getpid() == 1, proc: "/proc"}
	if t.init {
		return t, nil
	}
	if err := setSubreaper(); err != nil {
		return nil, fmt.Errorf("become the reaper of descendants: %w", err)
	}
	return t, nil
}

// Spec is a process to start.
type Spec struct {
	Path string
	Args []string
	Env  []string
	Dir  string
	// Stdout and Stderr are inherited as they are. They are files, not writers: os/exec would otherwise wait for the end of a
	// pipe that a grandchild may hold open long after its parent has died.
	Stdout, Stderr *os.File
	// Credential to run as; nil for this process's own.
	Credential *syscall.Credential
}

// Exit says how a process ended.
type Exit struct {
	Code   int
	Signal syscall.Signal
	At     time.Time
}

// String is for people: "exit code 1" or "signal killed".
func (e Exit) String() string {
	if e.Signal != 0 {
		return "signal " + e.Signal.String()
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Process is a direct child.
type Process struct {
	pid  int
	cmd  *exec.Cmd // nil of an adopted one
	to   *os.Process
	done chan struct{}
	exit Exit
}

// Start starts the process in a process group of its own, so that a signal to the agent's group passes it by.
func (t *Table) Start(s Spec) (*Process, error) {
	// Without a context: ending it is HardStop's work, which does not stop at the direct child.
	cmd := exec.Command(s.Path, s.Args...) //nolint:noctx // see above
	cmd.Env, cmd.Dir = s.Env, s.Dir
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.Credential}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	p := &Process{pid: cmd.Process.Pid, cmd: cmd, to: cmd.Process, done: make(chan struct{})}
	go p.wait()
	return p, nil
}

func (p *Process) wait() {
	defer close(p.done)
	err := p.cmd.Wait()
	p.exit = Exit{Code: -1, At: time.Now()}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return
	}
	p.exit.Code = p.cmd.ProcessState.ExitCode()
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal = ws.Signal()
	}
}

// PID of the process.
func (p *Process) PID() int { return p.pid }

// Done is closed at the exit of the process itself; its descendants may live on.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the process ended; it blocks until it has.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Exited says whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process alone. A process that has ended is no error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.to.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", s, p.pid, err)
	}
	return nil
}

// WaitDone waits for the exit and returns true, or false when the context ends first.
func (p *Process) WaitDone(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return p.Exited()
	}
}
