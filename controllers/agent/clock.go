package agent

import (
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// wall converts a reading of the boot clock to Unix milliseconds; zero stays zero.
func wall(t, now lease.Time, at time.Time) int64 {
	if t == 0 {
		return 0
	}
	return at.Add(t.Sub(now)).UnixMilli()
}

// maxPatience keeps the sum of a clock and a wish of years in range.
const maxPatience = 365 * 24 * time.Hour

// patience is how long the newest switchover or recovery that was asked for may still begin, by this machine's boot clock: the manager's time of
// day may be another one, and ours may be set.
type patience struct {
	id    string
	until lease.Time
}

// with returns the patience with a switchover: it runs from the first sight of an id, whatever aims come after.
func (p patience) with(s *engine.Switchover, now lease.Time) patience {
	if s == nil {
		return p
	}
	return p.of(s.ID, s.Within, now)
}

// withRecovery is the same for a recovery.
func (p patience) withRecovery(o *engine.Recovery, now lease.Time) patience {
	if o == nil {
		return p
	}
	return p.of(o.ID, o.Within, now)
}

func (p patience) of(id string, millis int64, now lease.Time) patience {
	if id == p.id {
		return p
	}
	within := min(max(time.Duration(millis), 0), maxPatience/time.Millisecond) * time.Millisecond
	return patience{id: id, until: now.Add(within)}
}
