package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// AccountsHash names a set of accounts, for Report.AccountsApplied.
func AccountsHash(all []engine.Account) string {
	raw, err := json.Marshal(all)
	if err != nil {
		return "" // strings always encode
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// keepAccounts gives each account its verifier, and members their role. Roles that are in order are not written: a write on an
// idle database would keep it from being idle.
func (d *Driver) keepAccounts(ctx context.Context, c *pgx.Conn, r engine.Role) error {
	if err := keepReplicationRole(ctx, c); err != nil {
		return err
	}
	var problems []error
	for _, a := range r.Accounts {
		problems = append(problems, keepAccount(ctx, c, a))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	d.state.Lock()
	d.applied = AccountsHash(r.Accounts)
	d.state.Unlock()
	return nil
}

func keepAccount(ctx context.Context, c *pgx.Conn, a engine.Account) error {
	if a.Name == postgres.Superuser || strings.HasPrefix(a.Name, "pg_") || strings.HasPrefix(a.Name, "plimsoll") {
		return &Problem{Reason: "AccountRefused", Message: fmt.Sprintf("the account name %q is the server's or Plimsoll's own; choose another", a.Name)}
	}
	if !isVerifier(a.Verifier) {
		return &Problem{Reason: "AccountRefused", Message: fmt.Sprintf("account %s comes without a SCRAM-SHA-256 verifier", a.Name)}
	}
	var login bool
	var verifier *string
	err := c.QueryRow(ctx, "SELECT rolcanlogin, rolpassword FROM pg_authid WHERE rolname = $1", a.Name).Scan(&login, &verifier)
	verb := "ALTER"
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		verb = "CREATE"
	case err != nil:
		return fmt.Errorf("look up account %s: %w", a.Name, err)
	case login && verifier != nil && *verifier == a.Verifier:
		return nil
	}
	// Utility statements take no parameters.
	if _, err := c.Exec(ctx, fmt.Sprintf("%s ROLE %s LOGIN PASSWORD %s", verb, ident(a.Name), quoted(a.Verifier))); err != nil {
		return fmt.Errorf("write account %s: %w", a.Name, err)
	}
	return nil
}

func isVerifier(text string) bool {
	return regexp.MustCompile(`^SCRAM-SHA-256\$[0-9]{4,7}:[A-Za-z0-9+/=]{8,88}\$[A-Za-z0-9+/=]{44}:[A-Za-z0-9+/=]{44}$`).MatchString(text)
}

// rewindFunctions are what pg_rewind reads a primary by.
func rewindFunctions() []string {
	return []string{"pg_ls_dir(text, boolean, boolean)", "pg_stat_file(text, boolean)", "pg_read_binary_file(text)", "pg_read_binary_file(text, bigint, bigint, boolean)"}
}

// keepReplicationRole: it streams, rewinds and asks for sizes, and owns nothing.
func keepReplicationRole(ctx context.Context, c *pgx.Conn) error {
	name := ident(postgres.ReplicationUser)
	fine, err := one[bool](ctx, c, `SELECT EXISTS (SELECT FROM pg_roles r WHERE rolname = $1 AND rolcanlogin AND rolreplication AND NOT rolsuper
		AND pg_has_role(oid, 'pg_monitor', 'MEMBER') AND has_function_privilege(oid, 'pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)', 'EXECUTE'))`, postgres.ReplicationUser)
	if err != nil || fine {
		return wrap("look up the members' role", err)
	}
	exists, err := one[bool](ctx, c, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", postgres.ReplicationUser)
	if err != nil {
		return wrap("look up the members' role", err)
	}
	verb := "CREATE"
	if exists {
		verb = "ALTER"
	}
	statements := []string{
		verb + " ROLE " + name + " LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS CONNECTION LIMIT -1 PASSWORD NULL",
		"GRANT pg_monitor TO " + name,
	}
	for _, f := range rewindFunctions() {
		statements = append(statements, "GRANT EXECUTE ON FUNCTION pg_catalog."+f+" TO "+name)
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return wrap("write the members' role", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s); err != nil {
			return wrap("write the members' role", err)
		}
	}
	return wrap("write the members' role", tx.Commit(ctx))
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
