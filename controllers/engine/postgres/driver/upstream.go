package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// upstream is a connection to another member that speaks SQL and the commands of replication.
type upstream struct{ conn *pgconn.PgConn }

const upstreamTimeout = 10 * time.Second

func (d *Driver) dial(ctx context.Context, host string) (*upstream, error) {
	return d.dialAs(ctx, host, "plimsoll_prepare", "database")
}

// dialAs with a mode of replication: "database" counts against the upstream's max_wal_senders, "false" against its max_connections.
func (d *Driver) dialAs(ctx context.Context, host, application, mode string) (*upstream, error) {
	cfg, err := pgconn.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", host, err)
	}
	tls, err := d.clientTLS(host)
	if err != nil {
		return nil, err
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Database = host, uint16(d.cfg.Port), postgres.ReplicationUser, postgres.SystemDatabase
	cfg.Password, cfg.TLSConfig, cfg.Fallbacks = "", tls, nil
	cfg.ConnectTimeout, cfg.LookupFunc = 5*time.Second, d.cfg.Lookup
	cfg.RuntimeParams = map[string]string{"replication": mode, "application_name": application, "search_path": "pg_catalog", "statement_timeout": "10s"}
	ctx, done := context.WithTimeout(ctx, upstreamTimeout)
	defer done()
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", host, err)
	}
	return &upstream{conn}, nil
}

func (u *upstream) close() {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = u.conn.Close(ctx) // it was only read from
}

// row is the one row that a command answers.
func (u *upstream) row(ctx context.Context, sql string) ([][]byte, error) {
	ctx, done := context.WithTimeout(ctx, upstreamTimeout)
	defer done()
	results, err := u.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("ask the upstream: %w", err)
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return nil, fmt.Errorf("ask the upstream: no answer to %s", sql)
	}
	return results[0].Rows[0], nil
}

// source asks the upstream where it is.
func (u *upstream) source(ctx context.Context) (source, error) {
	// Before all else: one that is promoted meanwhile is then still taken for a standby, of which less is believed.
	row, err := u.row(ctx, "SELECT pg_catalog.pg_is_in_recovery(), NOT "+mayReceive+" AND "+ownLogRead+" AND pg_catalog.pg_last_wal_replay_lsn() >= coalesce(pg_catalog.pg_last_wal_receive_lsn(), '0/0')")
	if err != nil {
		return source{}, err
	}
	standby, settled := string(row[0]) == "t", string(row[1]) == "t"
	if row, err = u.row(ctx, "IDENTIFY_SYSTEM"); err != nil {
		return source{}, err
	}
	timeline, err := strconv.ParseUint(string(row[1]), 10, 32)
	if err != nil {
		return source{}, fmt.Errorf("ask the upstream: timeline %q", row[1])
	}
	end, err := parseLSN(string(row[2]))
	if err != nil {
		return source{}, fmt.Errorf("ask the upstream: %w", err)
	}
	s := source{place: place{system: string(row[0]), timeline: uint32(timeline), end: end}, standby: standby, settled: settled}
	if timeline > 1 {
		row, err := u.row(ctx, fmt.Sprintf("TIMELINE_HISTORY %d", timeline))
		if err != nil {
			return source{}, err
		}
		if s.history, err = parseHistory(string(row[1])); err != nil {
			return source{}, fmt.Errorf("ask the upstream: %w", err)
		}
	}
	if err := u.oldest(ctx, &s); err != nil {
		return source{}, err
	}
	return s, nil
}

// oldest segment that it still has. By number alone: the same number of an older timeline was followed by this one's.
func (u *upstream) oldest(ctx context.Context, s *source) error {
	row, err := u.row(ctx, `SELECT coalesce(pg_catalog.min(pg_catalog.substr(name, 9)), ''), (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size')
		FROM pg_catalog.pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'`)
	if err != nil {
		return err
	}
	size, err := strconv.ParseUint(string(row[1]), 10, 64)
	if err != nil || !segmentSize(lsn(size)) {
		return fmt.Errorf("ask the upstream: segment size %q", row[1])
	}
	s.segment = lsn(size)
	if len(row[0]) != 16 {
		return nil
	}
	high, err1 := strconv.ParseUint(string(row[0][:8]), 16, 32)
	low, err2 := strconv.ParseUint(string(row[0][8:]), 16, 32)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("ask the upstream: segment %q", row[0])
	}
	s.oldest = high*(uint64(1)<<32/size) + low
	return nil
}

// ensureSlot makes this member's slot, so that what a copy needs next is kept from its first byte on.
func (u *upstream) ensureSlot(ctx context.Context, slot string) error {
	row, err := u.row(ctx, "SELECT (SELECT coalesce(wal_status, '') FROM pg_catalog.pg_replication_slots WHERE slot_name = '"+slot+"')")
	if err != nil {
		return err
	}
	switch {
	case row[0] == nil:
	case string(row[0]) == "lost", len(row[0]) == 0: // or a spare one, which keeps nothing yet
		if _, err := u.row(ctx, "SELECT pg_catalog.pg_drop_replication_slot('"+slot+"')"); err != nil {
			return err
		}
	default:
		return nil
	}
	_, err = u.row(ctx, "SELECT pg_catalog.pg_create_physical_replication_slot('"+slot+"', true)")
	return err
}

// size of its data, in bytes.
func (u *upstream) size(ctx context.Context) (int64, error) {
	row, err := u.row(ctx, "SELECT pg_catalog.sum(pg_catalog.pg_database_size(oid))::pg_catalog.int8 FROM pg_catalog.pg_database")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(row[0]), 10, 64)
}

// checkpointed waits until its control file is on its timeline: until the first checkpoint after a promotion, pg_rewind before 16
// takes a new primary for an old one.
func (u *upstream) checkpointed(ctx context.Context, timeline uint32) error {
	ctx, done := context.WithTimeout(ctx, 2*time.Minute)
	defer done()
	for {
		row, err := u.row(ctx, "SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()")
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(row[0]), 10, 32)
		if err != nil {
			return fmt.Errorf("ask the upstream: timeline of the control file %q", row[0])
		}
		if uint32(n) == timeline {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the upstream's first checkpoint on timeline %d: %w", timeline, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
