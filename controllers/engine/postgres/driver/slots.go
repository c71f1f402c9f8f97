package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

type slot struct {
	name   string
	active bool
	lost   bool
	spare  bool // keeps no log
}

// ours are the slots that are named like members of this Database; a user's own are left alone.
func ours(ctx context.Context, c *pgx.Conn, member string) ([]slot, error) {
	prefix := member
	if i := strings.LastIndex(member, "-"); i > 0 {
		prefix = member[:i]
	}
	rows, err := c.Query(ctx, `SELECT slot_name::text, active, coalesce(wal_status, '') = 'lost', restart_lsn IS NULL FROM pg_replication_slots
		WHERE slot_type = 'physical' AND NOT temporary AND slot_name ~ $1`, "^"+postgres.SlotName(prefix)+"_[0-9]+$")
	if err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (slot, error) {
		var s slot
		err := row.Scan(&s.name, &s.active, &s.lost, &s.spare)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	return all, nil
}

// slotsFor are the names of the peers' slots.
func slotsFor(r engine.Role) map[string]bool {
	wanted := map[string]bool{}
	for _, peer := range r.Peers {
		if peer != r.Member {
			wanted[postgres.SlotName(peer)] = true
		}
	}
	return wanted
}

// keepSlots gives each peer one and takes away those of members that are gone: a slot that nobody reads keeps the log until the
// volume is full.
func (d *Driver) keepSlots(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	have, err := ours(ctx, c, r.Member)
	if err != nil {
		return err
	}
	wanted := slotsFor(r)
	for _, s := range have {
		if wanted[s.name] && !s.lost && !s.spare {
			delete(wanted, s.name)
			continue
		}
		if s.active {
			continue // its member is still there; the next time round it is not
		}
		if err := dropSlot(ctx, c, s.name); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(wanted) {
		if slices.ContainsFunc(have, func(s slot) bool { return s.name == name && s.active }) {
			continue
		}
		if _, err := c.Exec(ctx, "SELECT pg_create_physical_replication_slot($1, true)", name); err != nil && state(err) != duplicateObject {
			return fmt.Errorf("create slot %s: %w", name, err)
		}
	}
	return nil
}

// spareSlots gives a replica a slot for each peer that keeps no log: to make them takes some twenty writes to disk, and clients
// would wait for that if it were done while the replica is promoted. Those that it kept while it led hold back its log for nobody, and
// are made anew.
func spareSlots(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	have, err := ours(ctx, c, r.Member)
	if err != nil {
		return err
	}
	wanted := slotsFor(r)
	for _, s := range have {
		useful := wanted[s.name] && !s.lost && (s.spare || r.Kind == engine.Primary)
		if s.active || useful {
			delete(wanted, s.name)
			continue
		}
		if err := dropSlot(ctx, c, s.name); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(wanted) {
		if _, err := c.Exec(ctx, "SELECT pg_create_physical_replication_slot($1, false)", name); err != nil && state(err) != duplicateObject {
			return fmt.Errorf("create slot %s: %w", name, err)
		}
	}
	return nil
}

func dropSlot(ctx context.Context, c *pgx.Conn, name string) error {
	if _, err := c.Exec(ctx, "SELECT pg_drop_replication_slot($1)", name); err != nil && state(err) != undefinedObject {
		return fmt.Errorf("drop slot %s: %w", name, err)
	}
	return nil
}

func sortedKeys(set map[string]bool) []string {
	all := make([]string, 0, len(set))
	for k := range set {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
