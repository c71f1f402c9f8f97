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

// Create makes the ledger's table if it is not there.
func (p Postgres) Create(ctx context.Context) error { return p.make(ctx, "") }

// Renew makes an empty ledger in place of one that may be there.
func (p Postgres) Renew(ctx context.Context) error {
	return p.make(ctx, "DROP TABLE IF EXISTS ledger; ")
}

func (p Postgres) make(ctx context.Context, before string) error {
	c, err := pgx.ConnectConfig(ctx, p.Config)
	if err != nil {
		return fmt.Errorf("connect to make the ledger: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	_, err = c.Exec(ctx, before+`CREATE TABLE IF NOT EXISTS ledger (ord bigserial PRIMARY KEY, writer int NOT NULL, seq bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`)
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

// insert tells the instance, and as the term the timeline: a promotion begins a new one.
const insert = `INSERT INTO ledger (writer, seq) VALUES ($1, $2)
	RETURNING current_setting('cluster_name'), ('x' || lpad(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::int8`

// Write implements Session. A refusal by the server before the commit did not take effect; a broken connection, and a commit
// that came with a warning, may have.
func (s *postgresSession) Write(ctx context.Context, e Entry) (Origin, error) {
	s.notice = ""
	var by Origin
	err := s.conn.QueryRow(ctx, insert, e.Writer, e.Seq).Scan(&by.Instance, &by.Term)
	var refused *pgconn.PgError
	switch {
	case err == nil && s.notice == "":
		return by, nil
	case err == nil:
		return Origin{}, fmt.Errorf("commit came with a warning, %s: %w", s.notice, ErrInDoubt)
	case errors.As(err, &refused) && refused.Severity == "ERROR":
		return Origin{}, fmt.Errorf("write %v: %w", e, err)
	default:
		return Origin{}, fmt.Errorf("write %v: %w: %w", e, ErrInDoubt, err)
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

// Lookout is a Looker for one PostgreSQL. Config is asked for at each new session: an instance's address changes with its pod.
type Lookout struct {
	Config func(ctx context.Context) (*pgx.ConnConfig, error)
	conn   *pgx.Conn
}

// Look implements Looker.
func (l *Lookout) Look(ctx context.Context) (Sight, error) {
	if l.conn == nil {
		config, err := l.Config(ctx)
		if err != nil {
			return Sight{}, err
		}
		if l.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			l.conn = nil
			return Sight{}, fmt.Errorf("connect: %w", err)
		}
	}
	var s Sight
	err := l.conn.QueryRow(ctx, `SELECT current_setting('cluster_name'), NOT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN 0
		ELSE ('x' || lpad(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::int8 END`).Scan(&s.Instance, &s.Primary, &s.Term)
	if err != nil {
		l.Close()
		return Sight{}, fmt.Errorf("look: %w", err)
	}
	return s, nil
}

// Close implements Looker.
func (l *Lookout) Close() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) //nolint:errcheck // as with a writer's session
	l.conn = nil
}
