package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Become converges the running server to the role. For a primary that is not one yet, promotion comes before everything that
// clients do not wait for.
func (d *Driver) Become(ctx context.Context, r engine.Role) error {
	d.work.Lock()
	defer d.work.Unlock()
	if r.Epoch < d.epoch {
		return fmt.Errorf("become %s at epoch %d: epoch %d was obeyed already", r.Kind, r.Epoch, d.epoch)
	}
	if r.Kind == engine.Stopped {
		d.epoch, d.role = r.Epoch, r
		return nil
	}
	c, err := d.admin(ctx)
	if err != nil {
		return err
	}
	defer closeConn(c)
	replica, err := one[bool](ctx, c, "SELECT pg_is_in_recovery()")
	if err != nil {
		return fmt.Errorf("ask the server for its role: %w", err)
	}
	if r.Kind == engine.Replica && !replica {
		return errors.New("become replica: the server is a primary; it must be stopped and prepared first")
	}
	d.epoch, d.role = r.Epoch, r
	if err := d.converge(ctx, c, r); err != nil {
		return err
	}
	if r.Kind == engine.Replica {
		if err := silence(ctx, c, r); err != nil {
			return err
		}
		return dropSlots(ctx, c, r)
	}
	return d.lead(ctx, c, r, replica)
}

// converge installs the configuration and has the server read it.
func (d *Driver) converge(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	changed, err := d.install(r, false)
	d.dirty = d.dirty || changed || d.quiet
	d.quiet = false
	d.state.Lock()
	d.syncWanted, d.upstream = 0, r.Upstream
	if r.Kind == engine.Primary {
		d.syncWanted = r.SyncCount
	}
	d.state.Unlock()
	if err != nil || !d.dirty {
		return err
	}
	if err := d.reload(ctx, c); err != nil {
		return err
	}
	d.dirty = false
	return d.checkConfig(ctx, c)
}

// silence waits until a replica of nobody receives nothing more: its position is final then, and it may support another leader.
func silence(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	if r.Upstream != "" {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	for quiet := 0; quiet < 2; {
		may, err := one[bool](ctx, c, "SELECT "+mayReceive)
		if err != nil {
			return fmt.Errorf("end receiving: %w", err)
		}
		quiet++
		if may {
			quiet = 0
		}
		// Twice, with a pause: the server may just be starting a receiver on what it read before.
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("end receiving: it goes on: %w", err)
		}
	}
	return nil
}

// reload waits until the server has read its files: this session reads them after the postmaster has.
func (d *Driver) reload(ctx context.Context, c *pgx.Conn) error {
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	before, err := one[time.Time](ctx, c, "SELECT pg_conf_load_time()")
	if err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	if _, err := c.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	for {
		now, err := one[time.Time](ctx, c, "SELECT pg_conf_load_time()")
		if err != nil {
			return fmt.Errorf("reload: %w", err)
		}
		if now.After(before) {
			return nil
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("reload: the server does not read its files: %w", err)
		}
	}
}

// checkConfig finds what the server did not take of the files: it goes on with its old values then, and says so only in its log.
func (d *Driver) checkConfig(ctx context.Context, c *pgx.Conn) error {
	var fault string
	err := c.QueryRow(ctx, `SELECT coalesce((SELECT coalesce(name || ': ', '') || error FROM pg_file_settings
		WHERE error IS NOT NULL AND error NOT LIKE '%restart%' AND NOT EXISTS (SELECT FROM pg_settings s WHERE s.name = lower(pg_file_settings.name) AND (s.context IN ('postmaster','internal') OR s.source = 'command line'))
		ORDER BY seqno LIMIT 1), (SELECT 'line ' || line_number || ' of pg_hba.conf: ' || error FROM pg_hba_file_rules WHERE error IS NOT NULL ORDER BY line_number LIMIT 1), '')`).Scan(&fault)
	if err != nil {
		return fmt.Errorf("check the configuration: %w", err)
	}
	d.state.Lock()
	d.configFault = fault
	d.state.Unlock()
	if fault != "" {
		return &Problem{Reason: "ConfigurationRefused", Message: "the server does not take its new configuration and goes on with the old: " + fault}
	}
	return nil
}

// lead makes a primary. Slots come first: from promotion on, each replica's log is kept.
func (d *Driver) lead(ctx context.Context, c *pgx.Conn, r engine.Role, replica bool) error {
	if err := d.keepSlots(ctx, c, r); err != nil {
		return err
	}
	if replica {
		if err := d.promote(ctx, c, r); err != nil {
			return err
		}
	}
	if err := d.keepAccounts(ctx, c, r); err != nil {
		return err
	}
	return d.keepDatabase(ctx, c, r)
}
