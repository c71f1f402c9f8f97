package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// sessionsEnd bounds the wait for clients' sessions to end: those that hang in the kernel end with the server.
const sessionsEnd = 400 * time.Millisecond

// Quiesce readies a primary for a planned hand-over: new sessions are refused and transactions are read-only, then the sessions
// that are there end. Work that would wait for a checkpoint belongs into Checkpoint, before it. The position is where the log
// stands then; the server's fast stop adds its last checkpoint, sends all to the replicas and waits until they have it.
func (d *Driver) Quiesce(ctx context.Context) (engine.Position, error) {
	d.work.Lock()
	defer d.work.Unlock()
	if d.role.Kind != engine.Primary {
		return engine.Position{}, errors.New("quiesce: this member was not told to be primary")
	}
	c, err := d.session(ctx)
	if err != nil {
		return engine.Position{}, fmt.Errorf("quiesce: %w", err)
	}
	d.quiet = true
	d.state.Lock()
	d.turning = true
	d.state.Unlock()
	if _, err := d.install(d.role, true); err != nil {
		return engine.Position{}, fmt.Errorf("quiesce: %w", err)
	}
	if fault, err := d.reload(ctx, c); err != nil || fault != "" {
		return engine.Position{}, fmt.Errorf("quiesce: the server does not read its files: %w", errors.Join(err, refusedProblem(fault)))
	}
	if err := d.refuses(ctx); err != nil {
		return engine.Position{}, fmt.Errorf("quiesce: %w", err)
	}
	if err := endSessions(ctx, c); err != nil {
		return engine.Position{}, fmt.Errorf("quiesce: %w", err)
	}
	return currentPosition(ctx, c)
}

// refuses proves by a new session that the postmaster has finished with its files: it reads who may log in last, after it has told
// the sessions that are there, and takes no new one in between.
func (d *Driver) refuses(ctx context.Context) error {
	c, err := d.admin(ctx)
	if err != nil {
		return err
	}
	closeConn(c) // that it began is the proof
	return nil
}

// clientSessions are all that may write for a client. The superuser over the socket is the agent: a name that it gives itself would prove
// nothing.
const clientSessions = "backend_type IN ('client backend', 'parallel worker', 'logical replication worker', 'logical replication apply worker', 'logical replication tablesync worker') AND NOT (usename IS NOT DISTINCT FROM 'postgres' AND client_addr IS NULL)"

func endSessions(ctx context.Context, c *pgx.Conn) error {
	deadline := time.Now().Add(sessionsEnd)
	for {
		left, err := one[int64](ctx, c, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "+clientSessions)
		if err != nil {
			return fmt.Errorf("end the sessions: %w", err)
		}
		if left == 0 || time.Now().After(deadline) {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("end the sessions: %w", err)
		}
	}
}

func currentPosition(ctx context.Context, c *pgx.Conn) (engine.Position, error) {
	var timeline int64
	var at string
	if err := c.QueryRow(ctx, "SELECT ("+primaryTimeline+"), pg_current_wal_flush_lsn()::text").Scan(&timeline, &at); err != nil {
		return engine.Position{}, fmt.Errorf("read the position: %w", err)
	}
	end, err := parseLSN(at)
	if err != nil {
		return engine.Position{}, err
	}
	return position(uint64(timeline), end), nil
}
