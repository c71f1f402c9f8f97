package driver

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// mayFollow compares a running replica with an upstream that it does not follow yet, before it connects to it under its own name.
// A replica tells a new upstream first of all where its own log ends. If that log has forked, the upstream would still count it by
// its bytes alone: commits of the new timeline up to there would be acknowledged that nobody but the upstream has.
func (d *Driver) mayFollow(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	if r.Kind != engine.Replica || r.Upstream == "" || d.role.Kind == engine.Replica && d.role.Upstream == r.Upstream {
		return nil
	}
	here, err := d.runningPlace(ctx, c) // before the upstream's: what it has since sent is no lead
	if err != nil {
		return err
	}
	from, err := d.askLeader(ctx, r, here)
	if err != nil {
		return fmt.Errorf("compare with %s before following it: %w", r.Upstream, err)
	}
	kin := relate(here, from)
	d.leaves(ctx, here, from, kin)
	switch kin {
	case follows:
		return nil
	case behind:
		d.history.tell(reasonLogRemoved)
	case forked, ahead:
		d.history.tell(reasonForked)
	case foreign:
		return foreignData(r, here.system, from.system)
	}
	reason, text := d.history.ReplicationProblem("", "")
	return &Problem{Reason: reason, Message: text}
}

// patienceWithPromotion bounds the wait for an upstream that has won and is not promoted yet; the next try goes on with it.
const patienceWithPromotion = 5 * time.Second

// askLeader asks a leader where it is, and waits where it is being promoted, unless this member may attach to it at once: a replica
// whose log is a part of the standby's, and a standby that has replayed all that it has. Its timeline then begins where its log
// ends, and nothing that this replica ever tells to have received lies behind that. (A record that the standby holds but a part of
// is overwritten by its promotion; a replica that had told of that part would be counted for commits that it does not have.)
func (d *Driver) askLeader(ctx context.Context, r engine.Role, here place) (source, error) {
	ctx, done := context.WithTimeout(ctx, patienceWithPromotion)
	defer done()
	up, err := d.dial(ctx, r)
	if err != nil {
		return source{}, err
	}
	defer up.close()
	for {
		from, err := up.source(ctx)
		if err != nil || !from.standby || from.settled && relate(here, from) == follows {
			return from, err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return source{}, fmt.Errorf("it is not promoted yet: %w", err)
		}
	}
}

// runningPlace of a replica.
func (d *Driver) runningPlace(ctx context.Context, c *pgx.Conn) (place, error) {
	var system, received, replayed, startup string
	var read bool
	var receivedTL, ownTL, segment int64
	err := c.QueryRow(ctx, "SELECT "+ownLogRead+", "+startupProcess+", (SELECT system_identifier::text FROM pg_control_system()), coalesce(pg_last_wal_receive_lsn()::text, '0/0'), coalesce(pg_last_wal_replay_lsn()::text, '0/0'), "+
		"coalesce((SELECT received_tli FROM pg_stat_wal_receiver), 0)::int8, (SELECT greatest(timeline_id, min_recovery_end_timeline) FROM pg_control_checkpoint(), pg_control_recovery())::int8, "+
		"(SELECT setting::int8 FROM pg_settings WHERE name = 'wal_segment_size')").
		Scan(&read, &startup, &system, &received, &replayed, &receivedTL, &ownTL, &segment)
	if err != nil {
		return place{}, fmt.Errorf("ask the replica where it is: %w", err)
	}
	a, err := parseLSN(received)
	if err != nil {
		return place{}, err
	}
	b, err := parseLSN(replayed)
	if err != nil {
		return place{}, err
	}
	end := max(a, b)
	at, err := d.held(ctx, startup, read, position(uint64(max(receivedTL, ownTL, d.timelineAt(end, lsn(segment)))), end))
	if err != nil {
		return place{}, fmt.Errorf("it still replays its own log: %w", err)
	}
	return place{system: system, timeline: uint32(at.Timeline), end: lsn(at.Bytes)}, nil
}
