package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres writes to a PostgreSQL that Config reaches.
type Postgres struct {
	Config *pgx.ConnConfig
}

// Create makes the ledger's table.
func (p Postgres) Create(ctx context.Context) error {
	c, err := pgx.ConnectConfig(ctx, p.Config)
	if err != nil {
		return fmt.Errorf("connect to make the ledger: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	_, err = c.Exec(ctx, `CREATE TABLE IF NOT EXISTS ledger (ord bigserial PRIMARY KEY, writer int NOT NULL, seq bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`)
	if err != nil {
		return fmt.Errorf("make the ledger: %w", err)
	}
	return nil
}

// Open implements Store.
func (p Postgres) Open(ctx context.Context) (Session, error) {
	s := &postgresSession{}
	config := p.Config.Copy()
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.notice = n.Message }
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s.conn = c
	return s, nil
}

type postgresSession struct {
	conn *pgx.Conn
	// notice is the newest warning: PostgreSQL answers COMMIT with one when it gave up waiting for its replicas.
	notice string
}

// Write implements Session. A refusal by the server before the commit did not take effect; a broken connection, and a commit
// that came with a warning, may have.
func (s *postgresSession) Write(ctx context.Context, e Entry) (string, error) {
	s.notice = ""
	var instance string
	err := s.conn.QueryRow(ctx, `INSERT INTO ledger (writer, seq) VALUES ($1, $2) RETURNING current_setting('cluster_name')`, e.Writer, e.Seq).Scan(&instance)
	var refused *pgconn.PgError
	switch {
	case err == nil && s.notice == "":
		return instance, nil
	case err == nil:
		return "", fmt.Errorf("commit came with a warning, %s: %w", s.notice, ErrInDoubt)
	case errors.As(err, &refused) && refused.Severity == "ERROR":
		return "", fmt.Errorf("write %v: %w", e, err)
	default:
		return "", fmt.Errorf("write %v: %w: %w", e, ErrInDoubt, err)
	}
}

// Close implements Session.
func (s *postgresSession) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) //nolint:errcheck // the session is given up; the server sees the socket close in any case
}

// Read implements Reader.
func (p Postgres) Read(ctx context.Context) ([]Stored, error) {
	c, err := pgx.ConnectConfig(ctx, p.Config)
	if err != nil {
		return nil, fmt.Errorf("connect to read the ledger: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	rows, err := c.Query(ctx, `SELECT ord, writer, seq FROM ledger ORDER BY ord`)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Stored, err error) {
		return s, row.Scan(&s.Order, &s.Writer, &s.Seq)
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return held, nil
}
