package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	r := engine.Report{LagBytes: -1, AuthFailures: d.history.AuthFailures(), Fell: d.history.Fell()}
	d.state.Lock()
	phase := d.phase
	r.AccountsApplied, r.SyncWanted = d.applied, d.syncWanted
	fault := d.configFault
	r.Left = d.left
	d.state.Unlock()
	if phase != "" {
		r.State, r.Role = phase, engine.Replica
		if phase == "initialising" {
			r.Role = engine.Primary
		}
		return r, nil
	}
	r.WALBytes = d.walBytes()
	if err := d.askTwice(ctx, &r); err != nil {
		if d.answers(err) {
			return r, err
		}
		return d.reportOffline(ctx, r, err)
	}
	r.State = "running"
	if fault != "" {
		r.Reason, r.Problem = "ConfigurationRefused", "the server does not take its new configuration and goes on with the old: "+fault
	}
	if r.Role == engine.Replica && r.LagBytes < 0 {
		r.Reason, r.Problem = d.history.ReplicationProblem(r.Reason, r.Problem)
	}
	if r.Role == engine.Primary {
		d.forgetOffline()
	}
	return r, nil
}

// askTwice asks over the connection that is kept, and once more over a new one if that is broken.
func (d *Driver) askTwice(ctx context.Context, r *engine.Report) error {
	if d.conn != nil {
		kept := *r
		if err := d.askServer(ctx, d.conn, &kept); err == nil {
			*r = kept
			return nil
		}
		d.dropReportConn()
	}
	c, err := d.reportConn(ctx)
	if err != nil {
		return &unreachable{err}
	}
	if err := d.askServer(ctx, c, r); err != nil {
		d.dropReportConn()
		return err
	}
	return nil
}

// unreachable is the error of a server that takes no connection.
type unreachable struct{ error }

// Unwrap gives the reason.
func (u *unreachable) Unwrap() error { return u.error }

func (d *Driver) answers(err error) bool {
	var u *unreachable
	return !errors.As(err, &u)
}

func (d *Driver) reportConn(ctx context.Context) (*pgx.Conn, error) {
	c, err := d.admin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "SET statement_timeout = '3s'"); err != nil {
		closeConn(c)
		return nil, fmt.Errorf("bound the report's queries: %w", err)
	}
	d.conn, d.settingsAt = c, time.Time{}
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
	var loaded time.Time
	if err := c.QueryRow(ctx, "SELECT pg_is_in_recovery(), current_setting('server_version'), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), pg_conf_load_time()").
		Scan(&replica, &version, &r.Connections, &loaded); err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	r.Version, _, _ = strings.Cut(version, " ")
	if err := d.settings(ctx, c, r, loaded); err != nil {
		return err
	}
	if replica {
		return d.askReplica(ctx, c, r)
	}
	return d.askPrimary(ctx, c, r)
}

// settings are asked for again when the server has read its files again, and at no other time: nor while hands change.
func (d *Driver) settings(ctx context.Context, c *pgx.Conn, r *engine.Report, loaded time.Time) error {
	d.state.Lock()
	later := d.turning && d.runs != nil
	d.state.Unlock()
	if !later && !d.settingsAt.Equal(loaded) {
		if err := d.askSettings(ctx, c); err != nil {
			return fmt.Errorf("ask the server for its settings: %w", err)
		}
		d.settingsAt = loaded
	}
	r.Settings, r.RestartPending = maps.Clone(d.runs), slices.Clone(d.pending)
	r.MaxConnections, _ = strconv.ParseInt(r.Settings["max_connections"], 10, 64) // the server's own number
	return nil
}

func (d *Driver) askSettings(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, "SELECT name, setting, pending_restart FROM pg_settings WHERE pending_restart OR name = ANY ($1) ORDER BY name", postgres.Sensitive())
	if err != nil {
		return err
	}
	d.runs, d.pending = map[string]string{}, nil
	var name, value string
	var pending bool
	_, err = pgx.ForEachRow(rows, []any{&name, &value, &pending}, func() error {
		if pending && len(d.pending) < maxPending {
			d.pending = append(d.pending, name)
		}
		if slices.Contains(postgres.Sensitive(), name) {
			d.runs[name] = value
		}
		return nil
	})
	return err
}

func (d *Driver) askPrimary(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	r.Role, r.Ready, r.LagBytes = engine.Primary, true, 0
	at, err := currentPosition(ctx, c)
	if err != nil {
		return err
	}
	r.Position = at
	if err := askFollowers(ctx, c, r); err != nil {
		return fmt.Errorf("ask the primary for its replicas: %w", err)
	}
	return slotsOf(ctx, c, r, "pg_current_wal_lsn()")
}

// askFollowers: a member is known by its name and by the members' role, which nobody else can be.
func askFollowers(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	rows, err := c.Query(ctx, `SELECT application_name, bool_or(sync_state IN ('sync', 'quorum')) FROM pg_stat_replication
		WHERE state = 'streaming' AND usename = $1 AND application_name NOT LIKE 'plimsoll%' GROUP BY 1 ORDER BY 1 LIMIT $2`, postgres.ReplicationUser, maxSlots)
	if err != nil {
		return err
	}
	var name string
	var inSync bool
	_, err = pgx.ForEachRow(rows, []any{&name, &inSync}, func() error {
		r.Streaming = append(r.Streaming, name)
		if inSync {
			r.InSync++
		}
		return nil
	})
	return err
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

// mayReceive is true for as long as anything may come from an upstream: a receiver runs, or one may be started at any time.
const mayReceive = "(current_setting('primary_conninfo') <> '' OR EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walreceiver'))"

func (d *Driver) askReplica(ctx context.Context, c *pgx.Conn, r *engine.Report) error {
	r.Role = engine.Replica
	var receivedTL, ownTL, segment int64
	var received, replayed, latest, sender, status *string
	var startup string
	var read bool
	// Whether the log was read comes before the positions, which may only grow after it. For receiving the process counts, not only the
	// view: that shows a receiver only once it is connected.
	err := c.QueryRow(ctx, "SELECT "+ownLogRead+", "+startupProcess+", pg_last_wal_receive_lsn()::text, pg_last_wal_replay_lsn()::text, w.latest_end_lsn::text, w.sender_host, w.status, coalesce(w.received_tli, 0)::int8, "+
		"(SELECT greatest(timeline_id, min_recovery_end_timeline) FROM pg_control_checkpoint(), pg_control_recovery())::int8, "+
		"(SELECT setting::int8 FROM pg_settings WHERE name = 'wal_segment_size'), "+mayReceive+" FROM (SELECT) one LEFT JOIN pg_stat_wal_receiver w ON true").
		Scan(&read, &startup, &received, &replayed, &latest, &sender, &status, &receivedTL, &ownTL, &segment, &r.Receiving)
	if err != nil {
		return fmt.Errorf("ask the replica: %w", err)
	}
	number := func(text *string) lsn {
		if text == nil {
			return 0
		}
		v, _ := parseLSN(*text) // the server's own number
		return v
	}
	// What was received is what is on disk; after a restart it is unknown or a segment's start until streaming begins again.
	end := max(number(received), number(replayed))
	shown := position(uint64(max(receivedTL, ownTL, d.timelineAt(end, lsn(segment)))), end)
	if r.Receiving {
		d.state.Lock()
		r.Upstream = d.upstream
		d.state.Unlock()
	}
	if sender != nil {
		r.Upstream = *sender
	}
	r.Applied = position(uint64(max(receivedTL, ownTL, d.timelineAt(number(replayed), lsn(segment)))), number(replayed))
	if number(replayed) == 0 {
		r.Applied = engine.Position{}
	}
	if r.Hold, err = d.replay(ctx, c, startup, r); err != nil {
		return err
	}
	streaming := status != nil && *status == "streaming"
	if streaming {
		r.LagBytes = max(0, int64(number(latest))-int64(number(replayed)))
	}
	// A replica that was in step once goes on serving reads while its primary is away; one that never was may be years behind.
	d.state.Lock()
	d.streamed = d.streamed || streaming
	r.Ready = d.streamed
	d.state.Unlock()
	if err := slotsOf(ctx, c, r, "pg_last_wal_replay_lsn()"); err != nil {
		return err
	}
	at, err := d.held(ctx, startup, read, shown)
	if err != nil {
		d.log.Info("where the log ends is not known yet: the server still replays", "replayed", end.String(), "error", err.Error())
	}
	r.Position = at // or none: one that is too low would be taken for all that it acknowledged
	return nil
}

// timelineAt is the newest timeline whose log reaches the position, by the names of its files; 0 if none is there. Without a
// receiver the server itself only tells the timeline of its last restart point, which is behind by several changes of hands where
// these come quickly: a member that holds more would be taken for one that holds less.
func (d *Driver) timelineAt(at, segment lsn) int64 {
	if at == 0 || segment <= 0 {
		return 0
	}
	perID := (1 << 32) / uint64(segment)
	n := uint64((at - 1) / segment)
	found, err := filepath.Glob(filepath.Join(d.data(), "pg_wal", fmt.Sprintf("????????%08X%08X", n/perID, n%perID)))
	if err != nil {
		return 0
	}
	var newest uint32
	for _, path := range found {
		if timeline, ok := segmentTimeline(filepath.Base(path)); ok {
			newest = max(newest, timeline)
		}
	}
	return int64(newest)
}

// reportOffline says what files say: the position holds with the server stopped, too.
func (d *Driver) reportOffline(ctx context.Context, r engine.Report, why error) (engine.Report, error) {
	if !d.hasData() {
		r.State = "stopped"
		return r, nil
	}
	d.forgetReplaying()
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
		if state(why) != cannotConnectNow && !d.startsUp() {
			r.Reason, r.Problem = "NotAnswering", "the server does not answer: "+why.Error()
		}
		r.Applied, r.Effort = d.recovering()
	}
	at, err := d.offlinePosition(ctx)
	if err != nil {
		return r, errors.Join(err, why)
	}
	r.Position = at
	return r, nil
}

// running tells whether a postmaster is there.
func (d *Driver) running() bool { return d.postmaster() != 0 }

// postmaster is its process, or 0.
func (d *Driver) postmaster() int {
	raw, err := os.ReadFile(filepath.Join(d.data(), "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || !d.serves(pid) {
		return 0
	}
	return pid
}

// startsUp is the postmaster's own word that it is not ready yet: at first it does not even have a socket.
func (d *Driver) startsUp() bool {
	raw, err := os.ReadFile(filepath.Join(d.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	const statusLine = 7
	lines := strings.Split(string(raw), "\n")
	if len(lines) <= statusLine {
		return true // it writes the file line by line on its way up
	}
	status := strings.TrimSpace(lines[statusLine])
	return status == "" || status == "starting"
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
