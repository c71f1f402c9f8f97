package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

const (
	reportTimeout = 5 * time.Second
	maxSlots      = 64
	maxPending    = 64
)

// Report asks the server for its state by a few cheap queries over one connection that it keeps. A server that does not answer is
// reported from its files.
func (d *Driver) Report(ctx context.Context) (engine.Report, error) {
	ctx, done := context.WithTimeout(ctx, reportTimeout)
	defer done()
	d.reporting.Lock()
	defer d.reporting.Unlock()
	r := engine.Report{LagBytes: -1, AuthFailures: d.history.AuthFailures()}
	d.state.Lock()
	phase := d.phase
	r.AccountsApplied, r.SyncWanted = d.applied, d.syncWanted
	fault := d.configFault
	d.state.Unlock()
	if phase != "" {
		r.State, r.Role = phase, engine.Replica
		if phase == "initialising" {
			r.Role = engine.Primary
		}
		return r, nil
	}
	r.WALBytes = d.walBytes()
	c, err := d.reportConn(ctx)
	if err != nil {
		return d.reportOffline(ctx, r, err)
	}
	if err := d.askServer(ctx, c, &r); err != nil {
		d.dropReportConn()
		return r, err
	}
	r.State = "running"
	if fault != "" {
		r.Reason, r.Problem = "ConfigurationRefused", "the server does not take its new configuration and goes on with the old: "+fault
	}
	if r.Role == engine.Replica && r.LagBytes < 0 {
		r.Reason, r.Problem = d.history.ReplicationProblem(r.Reason, r.Problem)
	}
	d.state.Lock()
	d.offline = nil
	d.state.Unlock()
	return r, nil
}

func (d *Driver) reportConn(ctx context.Context) (*pgx.Conn, error) {
	if d.conn != nil && !d.conn.IsClosed() {
		if err := d.conn.Ping(ctx); err == nil {
			return d.conn, nil
		}
		d.dropReportConn()
	}
	c, err := d.admin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "SET statement_timeout = '3s'"); err != nil {
		closeConn(c)
		return nil, fmt.Errorf("bound the report's queries: %w", err)
	}
	d.conn = c
	return c, nil
}

func (d *Driver) dropReportConn() {
	if d.conn != nil {
		closeConn(d.conn)
		d.conn = nil
	}
}

// askServer asks a server that answers.
func (d *Driver) askServer(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	var replica bool
	var version string
	if err := c.QueryRow(ctx, "SELECT pg_is_in_recovery(), current_setting('server_version'), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')").Scan(&replica, &version, &r.Connections); err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	r.Version, _, _ = strings.Cut(version, " ")
	if err := settings(ctx, c, r); err != nil {
		return err
	}
	if replica {
		return d.askReplica(ctx, c, r)
	}
	return d.askPrimary(ctx, c, r)
}

func settings(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	rows, err := c.Query(ctx, "SELECT name, setting, pending_restart FROM pg_settings WHERE pending_restart OR name = ANY ($1) ORDER BY name", postgres.Sensitive())
	if err != nil {
		return fmt.Errorf("ask the server for its settings: %w", err)
	}
	r.Settings = map[string]string{}
	var name, value string
	var pending bool
	_, err = pgx.ForEachRow(rows, []any{&name, &value, &pending}, func() error {
		if pending && len(r.RestartPending) < maxPending {
			r.RestartPending = append(r.RestartPending, name)
		}
		for _, s := range postgres.Sensitive() {
			if s == name {
				r.Settings[name] = value
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ask the server for its settings: %w", err)
	}
	r.MaxConnections, _ = strconv.ParseInt(r.Settings["max_connections"], 10, 64) // the server's own number
	return nil
}

func (d *Driver) askPrimary(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	r.Role, r.Ready, r.LagBytes = engine.Primary, true, 0
	at, err := currentPosition(ctx, c)
	if err != nil {
		return err
	}
	r.Position = at
	inSync, err := one[int64](ctx, c, "SELECT count(DISTINCT application_name) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')")
	if err != nil {
		return fmt.Errorf("ask the primary for its replicas: %w", err)
	}
	r.InSync = int(inSync)
	return slotsOf(ctx, c, r, "pg_current_wal_lsn()")
}

func slotsOf(ctx context.Context, c *pgx.Conn, r *engine.Report, from string) error {
	rows, err := c.Query(ctx, "SELECT slot_name::text, active, coalesce(pg_wal_lsn_diff("+from+", restart_lsn), 0)::int8 FROM pg_replication_slots ORDER BY 3 DESC, 1 LIMIT $1", maxSlots)
	if err != nil {
		return fmt.Errorf("ask the server for its slots: %w", err)
	}
	var s engine.Slot
	_, err = pgx.ForEachRow(rows, []any{&s.Name, &s.Active, &s.Retained}, func() error {
		r.Slots = append(r.Slots, s)
		return nil
	})
	return wrap("ask the server for its slots", err)
}

func (d *Driver) askReplica(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	r.Role = engine.Replica
	var receivedTL, ownTL int64
	var received, replayed, latest, sender, status *string
	err := c.QueryRow(ctx, "SELECT pg_last_wal_receive_lsn()::text, pg_last_wal_replay_lsn()::text, w.latest_end_lsn::text, w.sender_host, w.status, coalesce(w.received_tli, 0)::int8, "+
		"(SELECT greatest(timeline_id, min_recovery_end_timeline) FROM pg_control_checkpoint(), pg_control_recovery())::int8 FROM (SELECT) one LEFT JOIN pg_stat_wal_receiver w ON true").
		Scan(&received, &replayed, &latest, &sender, &status, &receivedTL, &ownTL)
	if err != nil {
		return fmt.Errorf("ask the replica: %w", err)
	}
	at := func(text *string) lsn {
		if text == nil {
			return 0
		}
		v, _ := parseLSN(*text) // the server's own number
		return v
	}
	// What was received is what is on disk; after a restart it is unknown or a segment's start until streaming begins again.
	r.Position = position(uint64(max(receivedTL, ownTL)), max(at(received), at(replayed)))
	if sender != nil {
		r.Upstream = *sender
	}
	r.Receiving = status != nil // also one that has no sender yet: it may get one
	streaming := status != nil && *status == "streaming"
	if streaming {
		r.LagBytes = max(0, int64(at(latest))-int64(at(replayed)))
	}
	// A replica that was in step once goes on serving reads while its primary is away; one that never was may be years behind.
	d.state.Lock()
	d.streamed = d.streamed || streaming
	r.Ready = d.streamed
	d.state.Unlock()
	return slotsOf(ctx, c, r, "pg_last_wal_replay_lsn()")
}

// reportOffline says what files say: the position holds with the server stopped, too.
func (d *Driver) reportOffline(ctx context.Context, r engine.Report, why error) (engine.Report, error) {
	if !d.hasData() {
		r.State = "stopped"
		return r, nil
	}
	r.Role, r.State = engine.Primary, "stopped"
	if exists(filepath.Join(d.data(), standbySignal)) {
		r.Role = engine.Replica
	}
	if exists(d.rewind()) {
		r.Reason, r.Problem = "RewindInterrupted", "a rewind was interrupted; the data is copied anew when there is a primary"
		return r, nil
	}
	if d.running() {
		r.State = "starting"
		if state(why) != cannotConnectNow {
			r.Reason, r.Problem = "NotAnswering", "the server does not answer: "+why.Error()
		}
	}
	at, err := d.offlinePosition(ctx)
	if err != nil {
		return r, errors.Join(err, why)
	}
	r.Position = at
	return r, nil
}

// running tells whether a postmaster is there.
func (d *Driver) running() bool {
	raw, err := os.ReadFile(filepath.Join(d.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	return err == nil && d.serves(pid)
}

// walBytes counts the log's segments by name: asking for the size of each would cost more than it tells.
func (d *Driver) walBytes() int64 {
	f, err := os.Open(filepath.Join(d.data(), "pg_wal"))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only read
	var n int64
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if _, ok := segmentTimeline(name); ok {
				n++
			}
		}
		if err != nil {
			return n * (16 << 20)
		}
	}
}
