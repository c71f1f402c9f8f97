package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// BootClock counts from the machine's start, through suspension.
type BootClock struct{}

// Now reads it. The kernel has it always; a failure would mean that nothing can be promised, so time ends then.
func (BootClock) Now() lease.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return lease.Time(1<<63 - 1)
	}
	return lease.Time(t.Nano())
}

// wall converts a reading of the boot clock to Unix milliseconds; zero stays zero.
func wall(t, now lease.Time, at time.Time) int64 {
	if t == 0 {
		return 0
	}
	return at.Add(t.Sub(now)).UnixMilli()
}
