package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// replay says how hard the startup process works, and what holds it on purpose. It has to be told from one that hangs: both stand still.
func (d *Driver) replay(ctx context.Context, c *pgx.Conn, startup string, r *engine.Report) (*engine.Hold, error) {
	pid, _, _ := strings.Cut(startup, " ")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // it has no such process, or has just lost it: nothing holds that
	}
	r.Effort = effort(n)
	var kind, event string
	var paused bool
	if err := c.QueryRow(ctx, "SELECT coalesce(wait_event_type, ''), coalesce(wait_event, ''), pg_is_wal_replay_paused() FROM pg_stat_activity WHERE pid = $1", n).Scan(&kind, &event, &paused); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil //nolint:nilnil // it has just ended
		}
		return nil, fmt.Errorf("ask the replica what it waits for: %w", err)
	}
	if paused {
		return &engine.Hold{Why: "its replay was paused by pg_wal_replay_pause(); pg_wal_replay_resume() lets it go on", Most: -1}, nil
	}
	if !conflicts(kind, event) {
		return nil, nil //nolint:nilnil // nothing holds it
	}
	var streaming, archive int64
	if err := c.QueryRow(ctx, "SELECT (SELECT setting::int8 FROM pg_settings WHERE name = 'max_standby_streaming_delay'), (SELECT setting::int8 FROM pg_settings WHERE name = 'max_standby_archive_delay')").
		Scan(&streaming, &archive); err != nil {
		return nil, fmt.Errorf("ask the replica how long its queries may hold it: %w", err)
	}
	// Which of the two bounds holds depends on where the log was read from, which the server does not tell.
	most := max(streaming, archive)
	if min(streaming, archive) < 0 {
		most = -1
	}
	why := "its replay waits for a query on it that needs what the primary has removed or locks; max_standby_streaming_delay bounds that, and hot_standby_feedback makes it rarer"
	if most < 0 {
		why = "its replay waits for a query on it that needs what the primary has removed or locks, for as long as that takes (max_standby_streaming_delay = -1): end the query, or set a bound"
	}
	return &engine.Hold{Why: why, Most: most}, nil
}

// conflicts says by what the startup process waits for that a query on this replica is in its way.
func conflicts(kind, event string) bool {
	return kind == "Lock" || kind == "BufferPin" || strings.HasPrefix(event, "RecoveryConflict")
}

// perByte is what a byte that was read from disk or written to it counts as effort: ten megabytes a second are full work.
const perByte = 100

// effort of a process: processor time in nanoseconds, and bytes from and to the disk. Zero if the kernel does not tell.
func effort(pid int) uint64 {
	sum := uint64(0)
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)); err == nil {
		first, _, _ := strings.Cut(string(raw), " ")
		n, _ := strconv.ParseUint(first, 10, 64) // the kernel's own number
		sum += n
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return sum
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "read_bytes" || name == "write_bytes" {
			n, _ := strconv.ParseUint(value, 10, 64) // the kernel's own number
			sum += n * perByte
		}
	}
	return sum
}

// recovering is how far a server that takes no connections yet has replayed, by the file that its startup process names in its title,
// and how hard that works.
func (d *Driver) recovering() (engine.Position, uint64) {
	postmaster := d.postmaster()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	if postmaster == 0 || err != nil {
		return engine.Position{}, 0
	}
	for field := range strings.FieldsSeq(string(children)) {
		title, err := os.ReadFile("/proc/" + field + "/cmdline")
		if err != nil || !strings.Contains(string(title), "startup") {
			continue
		}
		pid, _ := strconv.Atoi(field) // the kernel's own number
		return replaying(string(title)), effort(pid)
	}
	return engine.Position{}, 0
}

// replaying reads the segment out of a startup process's title. Where it begins is no more than a number that grows.
func replaying(title string) engine.Position {
	for word := range strings.FieldsSeq(strings.ReplaceAll(title, "\x00", " ")) {
		timeline, ok := segmentTimeline(word)
		if !ok {
			continue
		}
		high, err1 := strconv.ParseUint(word[8:16], 16, 32)
		low, err2 := strconv.ParseUint(word[16:], 16, 32)
		if errors.Join(err1, err2) == nil {
			return position(uint64(timeline), lsn(high<<32+low<<24))
		}
	}
	return engine.Position{}
}
