package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sweepEvery bounds how long an orphan stays a zombie if its SIGCHLD was lost.
const sweepEvery = 10 * time.Second

// errNotMainThread says that Reap was called from a goroutine that does not run on the process's first thread.
var errNotMainThread = errors.New("reap orphans: not on the process's first thread; call it from main")

// init binds the main goroutine to the first thread. In main it would be too late: the runtime may have moved the goroutine to
// another thread between the two.
func init() { //nolint:gochecknoinits // the one place where the runtime promises the first thread
	runtime.LockOSThread()
}

// Reap collects orphans until the context ends. It must run on the main goroutine.
//
// The exit status of a child that somebody waits for must not be taken by the reaper. wait4(-1) would take it. But the kernel
// gives orphans to one thread, the first of PID 1, and remembers for each child that is forked which thread forked it;
// __WNOTHREAD waits only for the calling thread's. The runtime forks for os/exec on any thread but this one, which belongs to
// this goroutine, so the two sets never meet: neither a registry nor a lock around every exec is needed. After an execve all
// children are the first thread's: those that were adopted are told by their number.
func (t *Table) Reap(ctx context.Context) error {
	if unix.Gettid() != t.self {
		return errNotMainThread
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		if err := t.reapOrphans(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-died:
		case <-sweep.C:
		}
	}
}

// reapOrphans collects every orphan that has ended by now.
func (t *Table) reapOrphans() error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WNOTHREAD|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return fmt.Errorf("reap orphans: %w", err)
		case pid == 0:
			return nil
		}
		t.ended(pid, status)
	}
}

func setSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}
