package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// SQLSTATEs that are told apart.
const (
	cannotConnectNow = "57P03" // starting, stopping or recovering
	undefinedObject  = "42704"
	duplicateObject  = "42710"
)

// connect over the socket. Every name is looked up in pg_catalog alone: what users put into public is never run by the superuser.
// Nothing that is done here waits for replicas, or appears in the server's log: verifiers are half a password.
func (d *Driver) connect(ctx context.Context, role, database string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Database = d.cfg.RunDir, uint16(d.cfg.Port), role, database
	cfg.Password, cfg.TLSConfig, cfg.Fallbacks = "", nil, nil
	cfg.ConnectTimeout = 5 * time.Second
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.RuntimeParams = map[string]string{"application_name": "plimsoll_agent"}
	if role == postgres.Superuser {
		cfg.RuntimeParams = map[string]string{
			"application_name": "plimsoll_agent", "search_path": "pg_catalog", "statement_timeout": "10s", "lock_timeout": "3s",
			"idle_in_transaction_session_timeout": "30s", "synchronous_commit": "local", "default_transaction_read_only": "off",
			"standard_conforming_strings": "on", "row_security": "off", "client_min_messages": "warning",
			"log_statement": "none", "log_min_error_statement": "panic", "log_min_duration_statement": "-1", "log_duration": "off",
			// Of extensions; without their libraries the server takes them for names that nobody reads.
			"pg_stat_statements.track": "none", "pgaudit.log": "none",
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return conn, nil
}

// admin is a connection of the superuser to Plimsoll's own database.
func (d *Driver) admin(ctx context.Context) (*pgx.Conn, error) {
	return d.connect(ctx, postgres.Superuser, postgres.SystemDatabase)
}

// session is the one that is kept, if it still works, or a new one. The question also has it read what the server was told to read
// before, so that a reload that comes next is told from an earlier one.
func (d *Driver) session(ctx context.Context) (*pgx.Conn, error) {
	if d.kept != nil {
		asking, done := context.WithTimeout(ctx, time.Second)
		err := d.kept.Ping(asking)
		done()
		if err == nil {
			return d.kept, nil
		}
		d.forgetSession()
	}
	c, err := d.admin(ctx)
	if err != nil {
		return nil, err
	}
	d.kept = c
	return c, nil
}

func (d *Driver) forgetSession() {
	if d.kept != nil {
		closeConn(d.kept)
		d.kept = nil
	}
}

func closeConn(c *pgx.Conn) {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = c.Close(ctx) // nothing is under way on it
}

// one value of one row.
func one[T any](ctx context.Context, c *pgx.Conn, sql string, args ...any) (T, error) {
	var v T
	err := c.QueryRow(ctx, sql, args...).Scan(&v)
	return v, err
}

func state(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// quoted literal; standard_conforming_strings is on in every session of ours.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
