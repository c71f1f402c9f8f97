package driver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestSecretsStayOutOfLogStatusAndStatistics: bootstrap SQL comes from a Secret, and a verifier is half a password. The server is
// told to log and to count all.
func TestSecretsStayOutOfLogStatusAndStatistics(t *testing.T) {
	c := newCluster(t)
	for name, value := range map[string]string{
		"shared_preload_libraries": "pg_stat_statements,auto_explain", "log_statement": "all", "log_min_duration_statement": "0",
		"pg_stat_statements.track": "all", "auto_explain.log_min_duration": "0",
	} {
		c.db.Spec.Parameters[name] = value
	}
	m := c.add(false)
	c.sql = []string{"CREATE TABLE k (k text);\nINSERT INTO k VALUES ('s3cr3t')", "INSERT INTO k VALUES ('s3cr3t');\nSELECT 's3cr3t'::int"}
	r := c.role(m, engine.Primary, 1, nil)
	r.Initialise = true
	m.start(r)
	var p *Problem
	if err := m.d.Become(c.ctx(), r); !errors.As(err, &p) || !strings.Contains(p.Message, "at character 41, in line 2 (SQLSTATE 22P02)") || strings.Contains(p.Message, "s3cr3t") {
		t.Fatalf("error %v", err)
	}
	c.sql[1] = "INSERT INTO k VALUES ('s3cr3t')"
	c.accounts = append(c.accounts, engine.Account{Name: "second", Verifier: verifier("another")})
	m.become(c.role(m, engine.Primary, 1, nil))
	m.exec("SELECT 'that is logged' FROM k")
	if got := asSuper[int](m, "app", "SELECT count(*) FROM pg_db_role_setting WHERE setrole <> 0"); got != 0 {
		t.Errorf("the owner keeps %d settings", got)
	}
	s, err := m.d.connect(c.ctx(), "postgres", "app")
	must(t, err)
	defer closeConn(s)
	_, err = s.Exec(c.ctx(), "CREATE EXTENSION pg_stat_statements SCHEMA public")
	must(t, err)
	all, err := one[string](c.ctx(), s, "SELECT string_agg(query, ' | ') FROM public.pg_stat_statements")
	must(t, err)
	if strings.Contains(all, "SCRAM") || strings.Contains(all, "INTO k") || !strings.Contains(all, "FROM k") {
		t.Errorf("statistics hold %s", all)
	}
	time.Sleep(2 * hold)
	m.mu.Lock()
	defer m.mu.Unlock()
	logged := false
	for _, rec := range m.records {
		text := fmt.Sprint(rec.Message, rec.Details)
		logged = logged || strings.Contains(text, "that is logged")
		if strings.Contains(text, "s3cr3t") || strings.Contains(text, "SCRAM-SHA-256$") {
			t.Errorf("the log holds %q", text)
		}
	}
	if !logged {
		t.Error("the log holds nothing of what it should")
	}
}
