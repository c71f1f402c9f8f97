package driver

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Held is the lock on the data volume, for the next program of this process: it must not be free for a moment. Nil without one; false
// while the driver is at work.
func (d *Driver) Held() (*os.File, bool) {
	if !d.work.TryLock() {
		return nil, false
	}
	defer d.work.Unlock()
	return d.lock, true
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
