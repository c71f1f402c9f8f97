package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// placeholder is a history file that reserve put in the way of a promotion.
const placeholder = "# Never used: another timeline was reserved by Plimsoll.\n"

// dropPlaceholders removes what a promotion that was cut off left: histories without ancestors of timelines newer than the log on
// disk. The server would follow such a one at its start, finds that it is no child of its own, and ends. Those up to the log's own
// timeline stay, because replicas ask for them.
func (d *Driver) dropPlaceholders(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(d.data(), "pg_wal", "????????.history"))
	if err != nil || len(found) == 0 {
		return err
	}
	c, err := d.readControl(ctx)
	if err != nil {
		return err
	}
	newest, _, err := d.newestTimeline(c)
	if err != nil {
		return err
	}
	dropped := false
	for _, path := range found {
		n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".history"), 16, 32)
		if err != nil || n <= uint64(newest) {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("look at timeline %d: %w", n, err)
		}
		if forks, err := parseHistory(string(raw)); err != nil || len(forks) > 0 {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove the placeholder of timeline %d: %w", n, err)
		}
		d.log.Info("removed what a promotion that was cut off had reserved", "timeline", n)
		dropped = true
	}
	if !dropped {
		return nil
	}
	return syncDir(filepath.Join(d.data(), "pg_wal"))
}
