package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const promoteTimeout = 60 * time.Second

// promote ends recovery on the reserved timeline.
func (d *Driver) promote(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	ctx, done := context.WithTimeout(ctx, promoteTimeout)
	defer done()
	if err := d.reserve(ctx, c, r.Timeline); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "SELECT pg_promote(wait => false)"); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	for {
		still, err := one[bool](ctx, c, "SELECT pg_is_in_recovery()")
		if err != nil {
			return fmt.Errorf("promote: %w", err)
		}
		if !still {
			break
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("promote: the server is still in recovery: %w", err)
		}
	}
	timeline, err := one[int64](ctx, c, primaryTimeline)
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if r.Timeline > 0 && uint64(timeline) != r.Timeline {
		return fmt.Errorf("promote: the server is on timeline %d, and %d was reserved", timeline, r.Timeline)
	}
	d.log.Info("promoted", "epoch", r.Epoch, "timeline", timeline)
	return nil
}

// primaryTimeline of the running primary: the file name of the log's present segment begins with it.
const primaryTimeline = "SELECT ('x' || lpad(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::int8"

// replicaTimeline that is being received, or the newest that was.
const replicaTimeline = "SELECT coalesce((SELECT received_tli FROM pg_stat_wal_receiver), 0)::int8, (SELECT greatest(timeline_id, min_recovery_end_timeline) FROM pg_control_checkpoint(), pg_control_recovery())::int8"

// reserve makes the server take exactly that timeline: it takes the first after its own that has no history file. The files put in
// the way say that they are nobody's descendants, so that no replica follows them; they must stay, because replicas ask for the
// history of every number up to their primary's.
func (d *Driver) reserve(ctx context.Context, c *pgx.Conn, want uint64) error {
	if want == 0 {
		return nil
	}
	var received, own int64
	if err := c.QueryRow(ctx, replicaTimeline).Scan(&received, &own); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	now := uint64(max(received, own))
	if want <= now {
		return fmt.Errorf("promote: timeline %d was reserved, and this member is on %d already", want, now)
	}
	if want-now > maxForks || want > 0xFFFFFFFF {
		return fmt.Errorf("promote: timeline %d is too far from this member's %d", want, now)
	}
	if exists(d.historyFile(uint32(want))) {
		return fmt.Errorf("promote: timeline %d was reserved, and its history exists already", want)
	}
	for n := now + 1; n < want; n++ {
		_, err := os.Stat(d.historyFile(uint32(n)))
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("promote: %w", err)
		}
		if err := d.write(d.historyFile(uint32(n)), []byte(placeholder), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// settleTime is what the replicas get to attach to a new primary before it does what loads its disk.
const settleTime = time.Second

// afterPromotion does what has a moment's time and must not wait for the next look. The first checkpoint of a new timeline: until
// then an old primary cannot rewind to this one, and a crash repeats all since the last restart point. And slots that keep the log of
// those replicas, too, that have not attached.
func (d *Driver) afterPromotion(r engine.Role) {
	d.background.Go(func() {
		ctx, done := context.WithTimeout(d.alive, 10*time.Minute)
		defer done()
		if pause(ctx, settleTime) != nil || d.handsOver() {
			return
		}
		err := d.reserveSlots(ctx, r)
		if !d.handsOver() {
			err = errors.Join(err, d.checkpoint(ctx))
		}
		if err != nil && d.alive.Err() == nil {
			d.log.Warn("not all is done after the promotion", "error", err.Error())
		}
	})
}

// handsOver says that a hand-over has begun since the promotion: it makes a checkpoint of its own, and a second one would be in the
// way of its stop.
func (d *Driver) handsOver() bool {
	d.state.Lock()
	defer d.state.Unlock()
	return d.handing
}

// reserveSlots of a primary that still leads.
func (d *Driver) reserveSlots(ctx context.Context, r engine.Role) error {
	d.work.Lock()
	defer d.work.Unlock()
	if d.role.Kind != engine.Primary || d.epoch != r.Epoch || d.quiet {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	c, err := d.session(ctx)
	if err != nil {
		return err
	}
	return d.keepSlots(ctx, c, d.role)
}

// Checkpoint writes out what is dirty, so that a stop soon after is quick. Call it before Quiesce: it may take minutes. What was
// written while a long one went on would be left to the stop, so another follows, which is shorter.
func (d *Driver) Checkpoint(ctx context.Context) error {
	d.state.Lock()
	d.handing = true
	d.state.Unlock()
	for range maxCheckpoints {
		begin := time.Now()
		if err := d.checkpoint(ctx); err != nil {
			return err
		}
		if time.Since(begin) < longCheckpoint {
			break
		}
	}
	return nil
}

func (d *Driver) checkpoint(ctx context.Context) error {
	c, err := d.admin(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer closeConn(c)
	if _, err := c.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if _, err := c.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

const (
	longCheckpoint = time.Second
	maxCheckpoints = 3
)
