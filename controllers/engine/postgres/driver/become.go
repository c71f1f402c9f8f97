package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	c, err := d.session(ctx)
	if err != nil {
		return err
	}
	replica, err := one[bool](ctx, c, "SELECT pg_is_in_recovery()")
	if err != nil {
		return fmt.Errorf("ask the server for its role: %w", err)
	}
	d.started()
	if r.Kind == engine.Replica && !replica {
		return errors.New("become replica: the server is a primary; it must be stopped and prepared first")
	}
	if err := d.mayFollow(ctx, c, r); err != nil {
		return err
	}
	d.epoch = r.Epoch
	if r.Kind == engine.Replica && r.Upstream == "" {
		d.turned = time.Now()
	}
	refusal, err := d.converge(ctx, c, r)
	if err != nil {
		return err
	}
	if r.Kind == engine.Primary {
		return d.lead(ctx, c, r, replica, refusal)
	}
	if err := silence(ctx, c, r); err != nil {
		return errors.Join(err, refusal)
	}
	if r.Upstream == "" {
		return incomplete(refusal) // others wait for this: slots have time
	}
	return incomplete(spareSlots(ctx, c, r), refusal)
}

// incomplete says what is missing of a role that is in force.
func incomplete(missing ...error) error {
	if err := errors.Join(missing...); err != nil {
		return &engine.Incomplete{Err: err}
	}
	return nil
}

// converge installs the configuration and has the server read it. Files that the server refuses must keep nobody from leading,
// and what the Lease says must take effect beside them: the last good ones are put back, and the refusal is told.
func (d *Driver) converge(ctx context.Context, c *pgx.Conn, r engine.Role) (refusal, err error) {
	if d.role.Upstream != r.Upstream {
		d.history.forget()
	}
	d.state.Lock()
	d.syncWanted, d.upstream = 0, r.Upstream
	d.turning, d.handing = r.Kind == engine.Replica && r.Upstream == "", false
	if r.Kind == engine.Primary {
		d.syncWanted = r.SyncCount
	}
	d.state.Unlock()
	usable := d.usable(r)
	fault, err := d.load(ctx, c, usable)
	if err != nil {
		return nil, err
	}
	if fault == "" {
		d.role = usable
		if maps.Equal(usable.Files, r.Files) {
			d.tellFault("")
			if d.refused != nil || !maps.Equal(d.good, r.Files) {
				d.good, d.refused = r.Files, nil
				d.remember()
			}
			return nil, nil
		}
		return refusedProblem(d.configFault), nil
	}
	d.tellFault(fault)
	if d.good == nil || maps.Equal(d.good, r.Files) {
		return nil, refusedProblem(fault)
	}
	d.refused = r.Files
	d.remember()
	d.role = d.usable(r)
	if again, err := d.load(ctx, c, d.role); err != nil || again != "" {
		return nil, errors.Join(refusedProblem(fault), err)
	}
	return refusedProblem(fault), nil
}

// usable is the role with files that the server takes: those of the role, unless it refused exactly them.
func (d *Driver) usable(r engine.Role) engine.Role {
	if d.refused != nil && d.good != nil && maps.Equal(d.refused, r.Files) {
		r.Files = d.good
	}
	return r
}

func (d *Driver) tellFault(fault string) {
	d.state.Lock()
	defer d.state.Unlock()
	d.configFault = fault
}

func refusedProblem(fault string) error {
	return &Problem{Reason: "ConfigurationRefused", Message: "the server does not take its new configuration and goes on with the old: " + fault}
}

// load gives the server its files, if they differ from what it has, and says what it does not take of them.
func (d *Driver) load(ctx context.Context, c *pgx.Conn, r engine.Role) (fault string, err error) {
	changed, err := d.install(r, false)
	d.dirty = d.dirty || changed || d.quiet
	d.quiet = false
	if err != nil || !d.dirty {
		return "", err
	}
	if fault, err := d.reload(ctx, c); err != nil || fault != "" {
		return fault, err
	}
	d.dirty = false
	if d.good != nil && maps.Equal(d.good, r.Files) {
		// The server took these files before. What differs is the member's own part, and that is quicker to look at than all.
		if ok, err := d.inForce(ctx, c, r); err != nil || ok {
			return "", err
		}
	}
	return checkConfig(ctx, c)
}

// inForce says whether what the Lease says of this member is what the server goes by.
func (d *Driver) inForce(ctx context.Context, c *pgx.Conn, r engine.Role) (bool, error) {
	m := d.memberSettings(r)
	ok, err := one[bool](ctx, c, "SELECT current_setting('primary_conninfo') = $1 AND current_setting('primary_slot_name') = $2 AND current_setting('synchronous_standby_names') = $3",
		m.conninfo, m.slot, m.synchronous)
	return ok, wrap("check the configuration", err)
}

// patienceWithReceiver bounds the wait for a receiver that was told to end: one that hangs would keep its member from supporting anybody.
const patienceWithReceiver = 3 * time.Second

// silence waits until a replica of nobody receives nothing more: its position is final then, and it may support another leader.
func silence(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	if r.Upstream != "" {
		return nil
	}
	asked := ctx
	ctx, done := context.WithTimeout(ctx, patienceWithReceiver)
	defer done()
	for quiet := 0; ; {
		may, err := one[bool](ctx, c, "SELECT "+mayReceive)
		if err != nil && (asked.Err() != nil || ctx.Err() == nil) {
			return fmt.Errorf("end receiving: %w", err)
		}
		if err != nil { // the patience ended within the question
			return &engine.StillReceives{}
		}
		quiet++
		if may {
			quiet = 0
		}
		if quiet == 2 {
			return nil
		}
		// Twice, with a pause: the server may just be starting a receiver on what it read before.
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			if asked.Err() == nil {
				return &engine.StillReceives{}
			}
			return fmt.Errorf("end receiving: it goes on: %w", err)
		}
	}
}

// patience with a server that does not read its files, before the files are asked why: of files with an unknown name in them it
// takes nothing, and does not even note that it looked.
const patience = 300 * time.Millisecond

// reload waits until the server has read its files: this session reads them after the postmaster has. It says why it does not.
func (d *Driver) reload(ctx context.Context, c *pgx.Conn) (fault string, err error) {
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	before, err := one[time.Time](ctx, c, "SELECT pg_conf_load_time()")
	if err != nil {
		return "", fmt.Errorf("reload: %w", err)
	}
	if _, err := c.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return "", fmt.Errorf("reload: %w", err)
	}
	ask := time.Now().Add(patience)
	for {
		now, err := one[time.Time](ctx, c, "SELECT pg_conf_load_time()")
		if err != nil {
			return "", fmt.Errorf("reload: %w", err)
		}
		if now.After(before) {
			return "", nil
		}
		if time.Now().After(ask) {
			if fault, err := checkConfig(ctx, c); err != nil || fault != "" {
				return fault, err
			}
			ask = time.Now().Add(patience)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return "", fmt.Errorf("reload: the server does not read its files: %w", err)
		}
	}
}

// checkConfig finds what the server did not take of the files: it goes on with its old values then, and says so only in its log.
func checkConfig(ctx context.Context, c *pgx.Conn) (string, error) {
	var fault string
	err := c.QueryRow(ctx, `SELECT coalesce((SELECT coalesce(name || ': ', '') || error FROM pg_file_settings
		WHERE error IS NOT NULL AND error NOT LIKE '%restart%' AND NOT EXISTS (SELECT FROM pg_settings s WHERE s.name = lower(pg_file_settings.name) AND (s.context IN ('postmaster','internal') OR s.source = 'command line'))
		ORDER BY seqno LIMIT 1), (SELECT 'line ' || line_number || ' of pg_hba.conf: ' || error FROM pg_hba_file_rules WHERE error IS NOT NULL ORDER BY line_number LIMIT 1), '')`).Scan(&fault)
	return fault, wrap("check the configuration", err)
}

// lead makes a primary. Slots come first: a replica that attaches finds its own, and from then on its log is kept. But nothing that
// can be mended later keeps it from leading.
func (d *Driver) lead(ctx context.Context, c *pgx.Conn, r engine.Role, replica bool, refusal error) error {
	var slots error
	if replica {
		slots = spareSlots(ctx, c, r) // mostly there already
		if err := d.promote(ctx, c, r); err != nil {
			return errors.Join(err, slots, refusal)
		}
		d.promoted = time.Now()
		d.state.Lock()
		d.left, d.led = nil, false // of its leadership before
		d.state.Unlock()
		d.afterPromotion(r)
	} else if time.Since(d.promoted) > settleTime {
		slots = d.keepSlots(ctx, c, r)
	}
	if err := d.keepAccounts(ctx, c, r); err != nil {
		return incomplete(err, slots, refusal)
	}
	return incomplete(d.keepDatabase(ctx, c, r), slots, refusal)
}
