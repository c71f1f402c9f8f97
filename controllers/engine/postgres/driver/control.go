package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// control is what the data directory's control file says.
type control struct {
	system   string
	state    string
	redo     lsn
	timeline uint32
	segment  lsn
	minEnd   lsn
	minTL    uint32
}

// readControl by pg_controldata, which knows the layout of its own release.
func (d *Driver) readControl(ctx context.Context) (control, error) {
	out, err := d.run(ctx, nil, "pg_controldata", "-D", d.data())
	if err != nil {
		return control{}, fmt.Errorf("read the control file: %w", err)
	}
	return parseControl(out)
}

func parseControl(text string) (control, error) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	c := control{system: fields["Database system identifier"], state: fields["Database cluster state"]}
	var problems []error
	position := func(name string, into *lsn) {
		v, err := parseLSN(fields[name])
		*into = v
		problems = append(problems, err)
	}
	number := func(name string) uint64 {
		v, err := strconv.ParseUint(fields[name], 10, 32)
		problems = append(problems, err)
		return v
	}
	position("Latest checkpoint's REDO location", &c.redo)
	position("Minimum recovery ending location", &c.minEnd)
	c.timeline = uint32(number("Latest checkpoint's TimeLineID"))
	c.minTL = uint32(number("Min recovery ending loc's timeline"))
	c.segment = lsn(number("Bytes per WAL segment"))
	if err := errors.Join(problems...); err != nil || c.system == "" || c.timeline == 0 || !segmentSize(c.segment) {
		return control{}, fmt.Errorf("pg_controldata says something else than expected: %w", errors.Join(err, errors.New("no system identifier, timeline or segment size that PostgreSQL can have")))
	}
	return c, nil
}

// localPlace finds where the log of a stopped server ends: after its last valid record.
func (d *Driver) localPlace(ctx context.Context) (place, error) {
	c, err := d.readControl(ctx)
	if err != nil {
		return place{}, err
	}
	timeline, start, err := d.newestTimeline(c)
	if err != nil {
		return place{}, err
	}
	end, err := d.logEnd(ctx, c, timeline, start)
	if err != nil {
		return place{}, err
	}
	return place{system: c.system, timeline: timeline, end: end}, nil
}

// newestTimeline of the log on disk, and where to read it from. The control file lags: a replica that followed onto a new timeline
// has its last restart point on the old one.
func (d *Driver) newestTimeline(c control) (uint32, lsn, error) {
	entries, err := os.ReadDir(filepath.Join(d.data(), "pg_wal"))
	if err != nil {
		return 0, 0, fmt.Errorf("read the log's directory: %w", err)
	}
	best, start := c.timeline, c.redo
	seen := map[uint32]bool{}
	for _, e := range entries {
		timeline, ok := segmentTimeline(e.Name())
		if !ok || timeline <= best || seen[timeline] {
			continue
		}
		seen[timeline] = true
		raw, err := os.ReadFile(d.historyFile(timeline))
		if err != nil {
			continue // a segment without history was laid out ahead, or its history never came: it is not this server's
		}
		history, err := parseHistory(string(raw))
		if err != nil {
			return 0, 0, fmt.Errorf("timeline %d: %w", timeline, err)
		}
		for _, f := range history {
			if f.timeline == c.timeline && c.redo <= f.end {
				best, start = timeline, max(c.redo, begin(history))
			}
		}
	}
	return best, start, nil
}

func (d *Driver) historyFile(timeline uint32) string {
	return filepath.Join(d.data(), "pg_wal", fmt.Sprintf("%08X.history", timeline))
}

func segmentTimeline(name string) (uint32, bool) {
	if len(name) != 24 {
		return 0, false
	}
	n, err := strconv.ParseUint(name[:8], 16, 32)
	return uint32(n), err == nil
}

// logEnd reads the log twice: quietly, to learn about where it ends, then the last segment with its records, to learn it exactly.
func (d *Driver) logEnd(ctx context.Context, c control, timeline uint32, start lsn) (lsn, error) {
	// Told where the files end, pg_waldump does not wait five seconds for the next one, as it does for a server that runs.
	bound := d.filesEnd(timeline, start, c.segment)
	if bound <= start {
		return 0, fmt.Errorf("timeline %d at %s: %w", timeline, start, errNoLog)
	}
	dump := func(from lsn, more ...string) (string, error) {
		args := append([]string{"-p", filepath.Join(d.data(), "pg_wal"), "-t", fmt.Sprint(timeline), "-s", from.String(), "-e", bound.String()}, more...)
		out, err := d.run(ctx, nil, "pg_waldump", args...)
		if ctx.Err() != nil {
			return "", fmt.Errorf("find the end of the log: %w", ctx.Err())
		}
		// The end of the log is an error to pg_waldump: what it says counts.
		if err != nil {
			return out + "\n" + err.Error(), nil //nolint:nilerr // the words are the answer
		}
		return out, nil
	}
	said, err := dump(start, "-q")
	if err != nil {
		return 0, err
	}
	last := start
	if m := recordAt().FindStringSubmatch(said); m != nil {
		if last, err = parseLSN(m[1]); err != nil {
			return 0, err
		}
	} else {
		last = max(start, bound-c.segment)
	}
	from := max(start, last-last%c.segment)
	if said, err = dump(from); err != nil {
		return 0, err
	}
	end, ok, err := lastRecordEnd(said, c.segment)
	if err != nil {
		return 0, err
	}
	if ok {
		return max(end, start), nil
	}
	if timeline == c.timeline {
		return 0, fmt.Errorf("timeline %d at %s: %w", timeline, start, errNoLog) // the checkpoint itself is a record
	}
	return max(last, start), nil
}

// errNoLog says that the log that the last checkpoint needs is not there or not readable.
var errNoLog = errors.New("the log since the last checkpoint is missing or damaged")

func recordAt() *regexp.Regexp { return regexp.MustCompile(`WAL record at ([0-9A-F]+/[0-9A-F]+)`) }

// filesEnd is where the files that follow on from a position end.
func (d *Driver) filesEnd(timeline uint32, from, size lsn) lsn {
	n := uint64(from / size)
	perID := uint64(1) << 32 / uint64(size)
	for exists(filepath.Join(d.data(), "pg_wal", fmt.Sprintf("%08X%08X%08X", timeline, n/perID, n%perID))) {
		n++
	}
	return lsn(n) * size
}

// segmentSize says whether PostgreSQL can have segments of that size: a power of two from 1 MiB to 1 GiB.
func segmentSize(n lsn) bool { return n >= 1<<20 && n <= 1<<30 && n&(n-1) == 0 }

// recordLine is one record in pg_waldump's output.
func recordLine() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^rmgr: (\S+)\s+len \(rec/tot\):\s*\d+/\s*(\d+), tx:\s*\d+, lsn: ([0-9A-F]+/[0-9A-F]+), prev [0-9A-F]+/[0-9A-F]+, desc: (\S+)`)
}

// lastRecordEnd of pg_waldump's output.
func lastRecordEnd(text string, segment lsn) (lsn, bool, error) {
	record := recordLine()
	var end lsn
	found := false
	for line := range strings.Lines(text) {
		m := record.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		length, err1 := strconv.ParseUint(m[2], 10, 32)
		at, err2 := parseLSN(m[3])
		if err := errors.Join(err1, err2); err != nil {
			return 0, false, fmt.Errorf("read pg_waldump's line %q: %w", strings.TrimSpace(line), err)
		}
		end, found = recordEnd(at, length, segment), true
		if m[1] == "XLOG" && strings.HasPrefix(m[4], "SWITCH") {
			end = (end + segment - 1) / segment * segment
		}
	}
	return end, found, nil
}

const (
	walPage     = 8192
	shortHeader = 24
	longHeader  = 40 // of a segment's first page
)

// recordEnd is where the record after one of that length begins: records go on over pages, each of which has a header, and end at
// a multiple of eight.
func recordEnd(at lsn, length uint64, segment lsn) lsn {
	left := lsn(length)
	for {
		room := walPage - at%walPage
		if left <= room {
			return (at + left + 7) &^ 7
		}
		left -= room
		at += room
		if at%segment == 0 {
			at += longHeader
			continue
		}
		at += shortHeader
	}
}

// lookup is one search for the end of a stopped server's log. It goes on when the one who asked has gone: gigabytes of log take
// longer to read than a report may take, and the next one finds it done.
type lookup struct {
	done chan struct{}
	// of is what the log looked like when the search began: one that began while the server still wrote ends too early.
	of string
	// end it: another has taken its place.
	end context.CancelFunc
	at  engine.Position
	err error
}

// offlinePosition of a stopped server, looked up once until something is written to its log again.
func (d *Driver) offlinePosition(ctx context.Context) (engine.Position, error) {
	of := d.logStamp()
	d.state.Lock()
	l := d.offline
	if l == nil || l.of != of {
		if l != nil {
			l.end()
		}
		alive, end := context.WithCancel(d.alive)
		l = &lookup{done: make(chan struct{}), of: of, end: end}
		d.offline = l
		d.background.Go(func() {
			defer close(l.done)
			defer end()
			p, err := d.localPlace(alive)
			l.at, l.err = position(uint64(p.timeline), p.end), err
		})
	}
	d.state.Unlock()
	select {
	case <-ctx.Done():
		return engine.Position{}, fmt.Errorf("find the end of the log: %w", ctx.Err())
	case <-l.done:
	}
	if l.err != nil {
		d.forgetOffline()
		return engine.Position{}, l.err
	}
	return l.at, nil
}

// logStamp differs once a server came or went, or something was written to the log of a stopped one. A server that refuses
// everybody writes all the same: one that ends finishes commits and its checkpoint, one that starts may receive already. What is
// found beside it is a lower bound for as long as it runs, and no longer.
func (d *Driver) logStamp() string {
	if pid := d.postmaster(); pid != 0 {
		return fmt.Sprint("written by ", pid)
	}
	newest, count := int64(0), 0
	if info, err := os.Stat(filepath.Join(d.data(), "global", "pg_control")); err == nil {
		newest = info.ModTime().UnixNano()
	}
	files, _ := os.ReadDir(filepath.Join(d.data(), "pg_wal")) // what cannot be read says nothing; the search will
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() {
			newest, count = max(newest, info.ModTime().UnixNano()), count+1
		}
	}
	return fmt.Sprint("at rest since ", newest, " in ", count, " files")
}

func (d *Driver) forgetOffline() {
	d.state.Lock()
	defer d.state.Unlock()
	d.offline = nil
}

func position(timeline uint64, at lsn) engine.Position {
	return engine.Position{Timeline: timeline, Bytes: uint64(at), Text: at.String()}
}
