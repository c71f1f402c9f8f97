package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// passing is an error of the moment: the same step is tried again, and nothing is given up for it. A copy instead of a rewind would
// take hours of a large database, and hold its primary's log for as long.
type passing struct{ error }

// Unwrap gives the reason.
func (p *passing) Unwrap() error { return p.error }

// rewindable asks the upstream for what pg_rewind needs, before anything here is touched: a connection as pg_rewind's own, which may be
// one too many where one of replication is not, and the first checkpoint on its timeline.
func (d *Driver) rewindable(ctx context.Context, r engine.Role, from source) error {
	up, err := d.dialAs(ctx, r, "plimsoll_rewind", "false")
	if err != nil {
		return err
	}
	defer up.close()
	return up.checkpointed(ctx, from.timeline)
}

// notConnected says by pg_rewind's words that it ended before it did anything: it connects first of all.
func notConnected(err error) bool {
	text := err.Error()
	return strings.Contains(text, "connection to server at ") && strings.Contains(text, " failed: ")
}

// untouched takes back what was marked for a rewind that did not begin.
func (d *Driver) untouched(standby bool) error {
	if standby {
		if _, err := d.update(filepath.Join(d.data(), standbySignal), nil); err != nil {
			return err
		}
		if err := syncDir(d.data()); err != nil {
			return err
		}
	}
	if err := os.Remove(d.rewind()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("note that the data is whole: %w", err)
	}
	return syncDir(d.cfg.DataDir)
}
