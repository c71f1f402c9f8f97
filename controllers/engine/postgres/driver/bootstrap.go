package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// stepDatabase is the number under which the creation of the database is noted; SQL texts count from 1.
const stepDatabase = 0

// note of one step of the bootstrap: done, or begun in a transaction.
type note struct {
	done bool
	xid  string
}

// keepDatabase makes the first database, its owner and what the user's SQL makes, each once. What was done is noted in the
// database, so it goes where the data goes.
func (d *Driver) keepDatabase(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	if r.Database.Name == "" || r.Database.Owner == "" {
		return nil
	}
	notes, err := readNotes(ctx, c)
	if err != nil {
		return err
	}
	if !notes[stepDatabase].done {
		if err := createDatabase(ctx, c, r.Database); err != nil {
			return err
		}
		if err := writeNote(ctx, c, stepDatabase, note{done: true}); err != nil {
			return err
		}
	}
	for i, sql := range r.Database.SQL {
		step := i + 1
		if notes[step].done {
			continue
		}
		if err := d.once(ctx, c, r.Database, step, sql, notes[step]); err != nil {
			return err
		}
	}
	return nil
}

// readNotes, and make the table for them.
func readNotes(ctx context.Context, c *pgx.Conn) (map[int]note, error) {
	table := ident(postgres.SystemSchema) + ".bootstrap"
	there, err := one[bool](ctx, c, "SELECT to_regclass($1) IS NOT NULL", table)
	if err != nil {
		return nil, fmt.Errorf("read the notes of the bootstrap: %w", err)
	}
	if !there {
		// One string of statements is one transaction.
		_, err := c.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+ident(postgres.SystemSchema)+"; CREATE TABLE "+table+
			" (step integer PRIMARY KEY, done boolean NOT NULL, xid text NOT NULL, at timestamptz NOT NULL DEFAULT now())", pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return nil, fmt.Errorf("make the table for the notes of the bootstrap: %w", err)
		}
		return map[int]note{}, nil
	}
	rows, err := c.Query(ctx, "SELECT step, done, xid FROM "+table)
	if err != nil {
		return nil, fmt.Errorf("read the notes of the bootstrap: %w", err)
	}
	all := map[int]note{}
	var step int
	var n note
	if _, err := pgx.ForEachRow(rows, []any{&step, &n.done, &n.xid}, func() error { all[step] = n; return nil }); err != nil {
		return nil, fmt.Errorf("read the notes of the bootstrap: %w", err)
	}
	return all, nil
}

func writeNote(ctx context.Context, c *pgx.Conn, step int, n note) error {
	_, err := c.Exec(ctx, "INSERT INTO "+ident(postgres.SystemSchema)+".bootstrap (step, done, xid) VALUES ($1, $2, $3) ON CONFLICT (step) DO UPDATE SET done = excluded.done, xid = excluded.xid, at = now()",
		step, n.done, n.xid)
	return wrap("note what the bootstrap did", err)
}

func createDatabase(ctx context.Context, c *pgx.Conn, want engine.DatabaseInit) error {
	var role, database bool
	err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1), EXISTS (SELECT FROM pg_database WHERE datname = $2)", want.Owner, want.Name).Scan(&role, &database)
	if err != nil {
		return fmt.Errorf("look up database %s: %w", want.Name, err)
	}
	if !role {
		if _, err := c.Exec(ctx, "CREATE ROLE "+ident(want.Owner)+" LOGIN"); err != nil {
			return fmt.Errorf("create owner %s: %w", want.Owner, err)
		}
	}
	if database {
		return nil
	}
	if _, err := c.Exec(ctx, "SET statement_timeout = '5min'"); err != nil {
		return fmt.Errorf("create database %s: %w", want.Name, err)
	}
	if _, err := c.Exec(ctx, "CREATE DATABASE "+ident(want.Name)+" OWNER "+ident(want.Owner)); err != nil {
		return fmt.Errorf("create database %s: %w", want.Name, err)
	}
	_, err = c.Exec(ctx, "SET statement_timeout = '10s'")
	return wrap("create database "+want.Name, err)
}

// once runs one text in a transaction of its own, as the owner: it logs in as the owner, so that nothing in the text gets back to
// the superuser. The transaction's number is noted before it commits; after an end in between, the server tells what became of it.
func (d *Driver) once(ctx context.Context, c *pgx.Conn, want engine.DatabaseInit, step int, sql string, before note) error {
	what := fmt.Sprintf("bootstrap SQL %d of %d", step, len(want.SQL))
	if before.xid != "" {
		fate, err := one[*string](ctx, c, "SELECT pg_xact_status($1::xid8)", before.xid)
		if err != nil {
			return fmt.Errorf("%s: what became of it: %w", what, err)
		}
		switch {
		case fate == nil || *fate == "committed":
			return writeNote(ctx, c, step, note{done: true, xid: before.xid})
		case *fate == "in progress":
			return &Problem{Reason: "BootstrapRunning", Message: what + " is still running"}
		}
	}
	ctx, done := context.WithTimeout(ctx, d.cfg.BootstrapTimeout)
	defer done()
	owner, err := d.connectQuietly(ctx, c, want)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer closeConn(owner)
	if _, err := owner.Exec(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	xid, err := one[string](ctx, owner, "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text")
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := writeNote(ctx, c, step, note{xid: xid}); err != nil {
		return err
	}
	started := time.Now()
	if _, err := owner.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return bootstrapProblem(what, sql, err)
	}
	if _, err := owner.Exec(ctx, "COMMIT"); err != nil {
		return bootstrapProblem(what, sql, err)
	}
	d.log.Info("ran bootstrap SQL", "step", step, "of", len(want.SQL), "milliseconds", time.Since(started).Milliseconds())
	return writeNote(ctx, c, step, note{done: true, xid: xid})
}

// quietly are settings that keep a text out of the server's log and its statistics: it comes from a Secret. Errors quote it, too.
func quietly() [][2]string {
	return [][2]string{
		{"log_statement", "none"},
		{"log_min_messages", "fatal"},
		{"log_min_error_statement", "panic"},
		{"log_duration", "off"},
		{"log_min_duration_statement", "-1"},
		{"log_min_duration_sample", "-1"},
		{"log_transaction_sample_rate", "0"},
		{"pg_stat_statements.track", "none"},
		{"pgaudit.log", "none"},
		{"auto_explain.log_min_duration", "-1"},
	}
}

// connectQuietly logs in as the owner with those settings. Only the superuser may make them, so they are the owner's for the moment
// in which its session begins: that keeps them to its end. An end in between leaves them, and the step, which is not noted yet, comes
// again and takes them away.
func (d *Driver) connectQuietly(ctx context.Context, c *pgx.Conn, want engine.DatabaseInit) (*pgx.Conn, error) {
	whose := "ALTER ROLE " + ident(want.Owner) + " IN DATABASE " + ident(want.Name)
	var set, reset strings.Builder
	for _, s := range quietly() {
		fmt.Fprintf(&set, "%s SET %s = %s;", whose, s[0], quoted(s[1]))
		fmt.Fprintf(&reset, "%s RESET %s;", whose, s[0])
	}
	if _, err := c.Exec(ctx, set.String(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("keep the text out of the log: %w", err)
	}
	owner, err := d.connect(ctx, want.Owner, want.Name)
	if _, failed := c.Exec(ctx, reset.String(), pgx.QueryExecModeSimpleProtocol); failed != nil {
		err = errors.Join(err, fmt.Errorf("let the owner's later sessions be logged again: %w", failed))
	}
	if err != nil && owner != nil {
		closeConn(owner)
	}
	return owner, err
}

// bootstrapProblem says which line of the user's text is wrong, and nothing of what the server says of it: its words may quote the
// text.
func bootstrapProblem(what, sql string, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", what, err)
	}
	line := 1
	for i, r := range []rune(sql) {
		if i >= int(e.Position)-1 {
			break
		}
		if r == '\n' {
			line++
		}
	}
	where := ""
	if e.Position > 0 {
		where = fmt.Sprintf(" at character %d, in line %d", e.Position, line)
	}
	return &Problem{Reason: "BootstrapFailed", Message: fmt.Sprintf("%s failed%s (SQLSTATE %s); nothing of it was kept; correct the text that spec.bootstrap.sql names", what, where, e.Code)}
}
