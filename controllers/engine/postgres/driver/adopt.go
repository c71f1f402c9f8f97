package driver

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Held is the lock on the data volume, for the next program of this process: it must not be free for a moment. Nil without one.
func (d *Driver) Held() *os.File {
	d.work.Lock()
	defer d.work.Unlock()
	return d.lock
}

// Adopt goes on with a server that an earlier program of this process started, and with its lock on the data volume.
func (d *Driver) Adopt(lock *os.File) error {
	d.work.Lock()
	defer d.work.Unlock()
	if lock == nil {
		return d.hold()
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("keep the lock on the data volume: %w", err)
	}
	d.lock = lock
	d.recall()
	return nil
}

// takeTermination lets the calling thread, and so what it starts, take the signals that ask to end: a program that came by an exchange
// began with them blocked.
func takeTermination() error {
	var set unix.Sigset_t
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		set.Val[0] |= 1 << (uint(s) - 1)
	}
	return unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
}
