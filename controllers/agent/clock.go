package agent

import (
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// wall converts a reading of the boot clock to Unix milliseconds; zero stays zero.
func wall(t, now lease.Time, at time.Time) int64 {
	if t == 0 {
		return 0
	}
	return at.Add(t.Sub(now)).UnixMilli()
}

// boot converts Unix milliseconds to a reading of the boot clock, once: wall time may be set, the boot clock may not.
func boot(ms int64, now lease.Time, at time.Time) lease.Time {
	return now.Add(time.UnixMilli(ms).Sub(at))
}
