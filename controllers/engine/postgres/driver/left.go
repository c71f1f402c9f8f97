package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// patienceWithLeft bounds the search for what a former primary leaves behind: the way back into the Database is not held up for it.
const patienceWithLeft = 30 * time.Second

// leaves finds what this former primary took that its successor does not have, before it is rewound: commits behind the point where the
// successor's timeline begins. What else is there, such as the record of its own end, was promised to nobody.
func (d *Driver) leaves(ctx context.Context, here place, from source, kin relation) {
	if !d.led || from.standby && kin != follows {
		return // it never led, or it was looked into, or where its successor will begin is not known yet
	}
	d.led = false
	left := engine.Left{Timeline: uint64(here.timeline)}
	switch kin {
	case follows, behind:
		left.Known = true
	case forked:
		at, ok := forkOf(here.timeline, from.history)
		if !ok {
			break // not even the timeline is the successor's
		}
		ctx, done := context.WithTimeout(ctx, patienceWithLeft)
		defer done()
		bytes, commits, err := d.commitsBehind(ctx, here, at, from.segment)
		if err != nil {
			d.log.Warn("what this former primary leaves behind was not found out", "error", err.Error())
			break
		}
		left.Known, left.Bytes, left.Commits = true, bytes, commits
	case ahead, foreign:
	}
	d.log.Info("compared with the successor", "known", left.Known, "bytesLeft", left.Bytes, "commitsLeft", left.Commits)
	d.tellLeft(left, true)
}

// tellLeft keeps what was found out first: after a rewind nothing is left to find. What says nothing takes the place of nothing.
func (d *Driver) tellLeft(left engine.Left, news bool) {
	d.state.Lock()
	defer d.state.Unlock()
	if d.left == nil || news && !d.left.Known {
		d.left = &left
	}
}

func forkOf(timeline uint32, history []fork) (lsn, bool) {
	for _, f := range history {
		if f.timeline == timeline {
			return f.end, true
		}
	}
	return 0, false
}

// commitsBehind a position of this member's own log: how far the last one reaches, and how many there are.
func (d *Driver) commitsBehind(ctx context.Context, here place, at, segment lsn) (bytes, commits int64, err error) {
	if here.end <= at {
		return 0, 0, nil
	}
	args := []string{"-p", filepath.Join(d.data(), "pg_wal"), "-t", fmt.Sprint(here.timeline), "-s", at.String(), "-e", here.end.String(), "--rmgr=Transaction"}
	said, err := d.run(ctx, nil, "pg_waldump", args...)
	if err != nil {
		return 0, 0, fmt.Errorf("read the log behind %s: %w", at, err)
	}
	var last strings.Builder
	for line := range strings.Lines(said) {
		if strings.Contains(line, "desc: COMMIT") {
			last.Reset()
			last.WriteString(line)
		}
	}
	if last.Len() == 0 {
		return 0, 0, nil
	}
	end, ok, err := lastRecordEnd(last.String(), segment)
	if err != nil || !ok {
		return 0, 0, fmt.Errorf("read the log behind %s: the last commit's line is %q: %w", at, last.String(), err)
	}
	// By the program's own count: of its words only the last are kept.
	said, err = d.run(ctx, nil, "pg_waldump", append(args, "--stats=record")...)
	if err != nil {
		return 0, 0, fmt.Errorf("count the commits behind %s: %w", at, err)
	}
	for _, m := range commitCount().FindAllStringSubmatch(said, -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("count the commits behind %s: %w", at, err)
		}
		commits += n
	}
	return int64(end - at), commits, nil
}

func commitCount() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^Transaction/COMMIT(?:_PREPARED)?\s+(\d+)`)
}
