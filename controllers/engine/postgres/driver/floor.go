package driver

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// floored raises in a replica's files what its own log still asks for. A standby does not start with less than its control file
// says, and a value that was lowered arrives there only when the primary's restart is replayed. Become installs the wanted files
// again, and the server then says that they wait for a restart.
func (d *Driver) floored(ctx context.Context, r engine.Role) (engine.Role, error) {
	if r.Kind != engine.Replica {
		return r, nil
	}
	said, err := d.run(ctx, nil, "pg_controldata", "-D", d.data())
	if err != nil {
		return r, fmt.Errorf("read the control file: %w", err)
	}
	if raised := raise(r.Files[postgres.FileParameters], floors(said)); raised != "" {
		r.Files = maps.Clone(r.Files)
		r.Files[postgres.FileParameters] += raised
	}
	return r, nil
}

// floors are the least values that a standby may start with, by pg_controldata's words.
func floors(control string) map[string]int64 {
	fields := map[string]string{
		"max_connections setting": "max_connections", "max_locks_per_xact setting": "max_locks_per_transaction",
		"max_prepared_xacts setting": "max_prepared_transactions", "max_wal_senders setting": "max_wal_senders",
		"max_worker_processes setting": "max_worker_processes",
	}
	least := map[string]int64{}
	for line := range strings.Lines(control) {
		field, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if name := fields[field]; name != "" && err == nil {
			least[name] = n
		}
	}
	return least
}

// raise gives the lines that lift what a configuration sets too low; the last line of a name is the one that counts.
func raise(parameters string, least map[string]int64) string {
	var lines strings.Builder
	for _, name := range postgres.Sensitive() {
		set := regexp.MustCompile(`(?m)^` + name + ` = '(\d+)'$`).FindStringSubmatch(parameters)
		if set == nil {
			continue
		}
		if n, err := strconv.ParseInt(set[1], 10, 64); err == nil && n < least[name] {
			fmt.Fprintf(&lines, "%s = '%d'\n", name, least[name])
		}
	}
	return lines.String()
}
