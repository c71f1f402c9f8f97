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

// patience is how long the newest switchover that was asked for may still begin, by this machine's boot clock: the manager's time of
// day may be another one, and ours may be set.
type patience struct {
	id    string
	until lease.Time
}

// with returns the patience with a switchover: it runs from the first sight of an id, whatever aims come after.
func (p patience) with(s *engine.Switchover, now lease.Time) patience {
	if s == nil || s.ID == p.id {
		return p
	}
	within := min(max(time.Duration(s.Within), 0), maxPatience/time.Millisecond) * time.Millisecond
	return patience{id: s.ID, until: now.Add(within)}
}
