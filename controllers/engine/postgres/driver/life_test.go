package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// primary starts a new database on a new member.
func (c *cluster) primary(wal bool) *member {
	c.t.Helper()
	m := c.add(wal)
	r := c.role(m, engine.Primary, 1, nil)
	r.Initialise = true
	m.start(r)
	m.become(r)
	return m
}

// replica copies and follows.
func (c *cluster) replica(p *member, wal bool) *member {
	c.t.Helper()
	m := c.add(wal)
	p.become(c.role(p, engine.Primary, 1, nil)) // its slot
	r := c.role(m, engine.Replica, 1, p)
	m.start(r)
	m.become(r)
	m.follows(p)
	return m
}

func TestANewDatabaseServesItsOwnerOverTLS(t *testing.T) {
	c := newCluster(t)
	c.sql = []string{"CREATE TABLE a (id int);\nINSERT INTO a VALUES (1)", "CREATE TABLE who AS SELECT session_user::text AS name, current_user::text AS cur"}
	m := c.primary(true)
	r := c.role(m, engine.Primary, 1, nil)

	if got := query[string](m, "SELECT name || cur FROM who"); got != "appapp" {
		t.Errorf("bootstrap SQL ran as %q, want the owner", got)
	}
	if got := query[string](m, "SELECT datname::text FROM pg_database d JOIN pg_roles r ON r.oid = datdba WHERE rolname = 'app'"); got != "app" {
		t.Errorf("owner's database is %q", got)
	}
	m.become(r)
	if got := query[int](m, "SELECT count(*) FROM a"); got != 1 {
		t.Errorf("bootstrap SQL ran %d times", got)
	}
	if _, err := m.client(c.ctx(), "app", "wrong"); err == nil {
		t.Error("a wrong password gets in")
	}
	if _, err := m.client(c.ctx(), "postgres", password); err == nil {
		t.Error("the superuser gets in over the network")
	}
	c.until("refused logins are counted", func() error {
		if n := m.report().AuthFailures; n < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	link, err := os.Readlink(filepath.Join(m.d.data(), "pg_wal"))
	if err != nil || filepath.Dir(link) != m.cfg.WALDir {
		t.Errorf("the log is at %q (%v), want it on its own volume", link, err)
	}
	got := m.report()
	want := engine.Report{
		Role: engine.Primary, State: "running", Ready: true, Version: got.Version, Position: got.Position, AuthFailures: got.AuthFailures,
		Settings:        map[string]string{"max_connections": "50", "max_locks_per_transaction": "64", "max_prepared_transactions": "0", "max_wal_senders": "32", "max_worker_processes": "8"},
		AccountsApplied: AccountsHash(c.accounts), WALBytes: got.WALBytes, Connections: got.Connections, MaxConnections: 50,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Position.Timeline != 1 || got.Position.Bytes == 0 || got.WALBytes == 0 || got.Connections == 0 || got.Version == "" {
		t.Errorf("report %+v", got)
	}
	for name, want := range map[string]string{"data_checksums": "on", "ssl": "on", "cluster_name": "orders-1", "log_destination": "stderr"} {
		if got := asSuper[string](m, "postgres", "SELECT current_setting($1)", name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestLockFilesOfADeadServerAreNobodys starts a server in a container in which another process has the number of the last one.
func TestLockFilesOfADeadServerAreNobodys(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	m.kill()
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred}
	must(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for _, lock := range []string{filepath.Join(m.d.data(), "postmaster.pid"), filepath.Join(m.cfg.RunDir, fmt.Sprintf(".s.PGSQL.%d.lock", c.port))} {
		raw, err := os.ReadFile(lock)
		must(t, err)
		_, rest, _ := strings.Cut(string(raw), "\n")
		must(t, os.WriteFile(lock, fmt.Appendf(nil, "%d\n%s", other.Process.Pid, rest), 0o600))
	}
	r := c.role(m, engine.Primary, 1, nil)
	m.start(r)
	m.become(r)
}

func TestAnIdleDatabaseIsNotWrittenTo(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	r := c.role(m, engine.Primary, 1, nil)
	m.become(r)
	must(t, m.d.Checkpoint(c.ctx()))
	before := m.report().Position
	for range 3 {
		m.become(r)
	}
	if after := m.report().Position; after != before {
		t.Errorf("the log grew from %s to %s", before.Text, after.Text)
	}
}

func TestBadBootstrapSQLIsToldAndRunsOnceItIsCorrected(t *testing.T) {
	c := newCluster(t)
	m := c.add(false)
	c.sql = []string{"CREATE TABLE a (id int)", "INSERT INTO a VALUES (1);\nINSERT INTO b VALUES (1)"}
	r := c.role(m, engine.Primary, 1, nil)
	r.Initialise = true
	m.start(r)
	err := m.d.Become(c.ctx(), r)
	var p *Problem
	if !errors.As(err, &p) || p.Reason != "BootstrapFailed" {
		t.Fatalf("error %v, want a problem", err)
	}
	want := `bootstrap SQL 2 of 2 failed at character 39, in line 2 (SQLSTATE 42P01); nothing of it was kept; correct the text that spec.bootstrap.sql names`
	if p.Message != want {
		t.Errorf("message %q, want %q", p.Message, want)
	}
	if m.report().Role != engine.Primary {
		t.Error("it does not serve meanwhile")
	}
	c.sql[1] = "INSERT INTO a VALUES (2)"
	m.become(c.role(m, engine.Primary, 1, nil))
	if got := query[int](m, "SELECT sum(id) FROM a"); got != 2 {
		t.Errorf("sum %d, want 2", got)
	}
}

func TestTheOwnersSQLDoesNotReachTheSuperuser(t *testing.T) {
	c := newCluster(t)
	c.sql = []string{"RESET SESSION AUTHORIZATION; CREATE TABLE who AS SELECT rolsuper FROM pg_roles WHERE rolname = session_user"}
	m := c.primary(false)
	if query[bool](m, "SELECT rolsuper FROM who") {
		t.Error("it ran as the superuser")
	}
}

func TestShadowsInPublicAreNeverRun(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	for _, database := range []string{"postgres", "template1"} {
		s, err := m.d.connect(c.ctx(), postgres.Superuser, database)
		must(t, err)
		for _, sql := range []string{
			"CREATE TABLE public.caught (what text)", "GRANT ALL ON public.caught TO public",
			"CREATE FUNCTION public.trap(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES ('='); RETURN true; END $$",
			"CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.trap)",
			"CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES ('recovery'); RETURN true; END $$",
			"CREATE FUNCTION public.coalesce_lag(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
			"CREATE FUNCTION public.pg_conf_load_time() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES ('load'); RETURN now(); END $$",
			"ALTER ROLE postgres SET search_path = public, pg_catalog",
		} {
			_, err := s.Exec(c.ctx(), sql)
			must(t, err)
		}
		closeConn(s)
	}
	c.db.Spec.Parameters["work_mem"] = "5MB"
	c.db.Spec.Parameters["search_path"] = "public, pg_catalog"
	c.accounts = append(c.accounts, engine.Account{Name: "reader", Verifier: verifier("x")})
	m.become(c.role(m, engine.Primary, 2, nil))
	m.report()
	if n := asSuper[int](m, "postgres", "SELECT count(*) FROM public.caught"); n != 0 {
		t.Errorf("%d traps were run", n)
	}
}

func TestConfigurationIsReloadedOrWaitsForARestart(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	loaded := func() string { return asSuper[string](m, "postgres", "SELECT pg_conf_load_time()::text") }
	before := loaded()
	m.become(c.role(m, engine.Primary, 1, nil))
	if loaded() != before {
		t.Error("an unchanged configuration was loaded again")
	}
	c.db.Spec.Parameters["work_mem"] = "7MB"
	c.db.Spec.Parameters["max_connections"] = "60"
	m.become(c.role(m, engine.Primary, 1, nil))
	if got := query[string](m, "SHOW work_mem"); got != "7MB" {
		t.Errorf("work_mem %s", got)
	}
	r := m.report()
	if diff := cmp.Diff([]string{"max_connections"}, r.RestartPending); diff != "" || r.Settings["max_connections"] != "50" {
		t.Errorf("pending %v, runs with %s", r.RestartPending, r.Settings["max_connections"])
	}
	m.stop()
	m.start(c.role(m, engine.Primary, 1, nil))
	m.become(c.role(m, engine.Primary, 1, nil))
	r = m.report()
	if len(r.RestartPending) != 0 || r.Settings["max_connections"] != "60" {
		t.Errorf("after the restart: pending %v, runs with %s", r.RestartPending, r.Settings["max_connections"])
	}
}

func TestAConfigurationThatTheServerRefusesIsAProblem(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	for name, breakIt := range map[string]func(map[string]string){
		"a value that is none": func(f map[string]string) { f[postgres.FileParameters] += "work_mem = 'much'\n" },
		"a name that is none":  func(f map[string]string) { f[postgres.FileParameters] += "no_such_thing = 'x'\n" },
		"a line that is none":  func(f map[string]string) { f[postgres.FileHBA] = "hostssl all all nowhere/99 scram-sha-256\n" },
	} {
		t.Run(name, func(t *testing.T) {
			r := c.role(m, engine.Primary, 1, nil)
			breakIt(r.Files)
			r.SyncPeers, r.SyncCount = []string{name}, 1
			var p *Problem
			for range 2 {
				if err := m.d.Become(c.ctx(), r); !errors.As(err, &p) || p.Reason != "ConfigurationRefused" {
					t.Errorf("error %v", err)
				}
				if got := m.report(); got.Reason != "ConfigurationRefused" {
					t.Errorf("report %+v", got)
				}
			}
			if got := asSuper[string](m, "postgres", "SHOW synchronous_standby_names"); got != `ANY 1 ("`+name+`")` {
				t.Errorf("what the Lease says does not take effect: synchronous_standby_names %q", got)
			}
			m.stop()
			m.start(r)
			if err := m.d.Become(c.ctx(), r); !errors.As(err, &p) {
				t.Errorf("after a restart: error %v", err)
			}
			m.become(c.role(m, engine.Primary, 1, nil))
			if got := m.report(); got.Problem != "" {
				t.Errorf("it still says %s", got.Problem)
			}
		})
	}
}

func TestOlderEpochsAreRefused(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	m.become(c.role(m, engine.Primary, 5, nil))
	if err := m.d.Become(c.ctx(), c.role(m, engine.Primary, 4, nil)); err == nil {
		t.Error("Become took an older epoch")
	}
	m.stop()
	if err := m.d.Prepare(c.ctx(), c.role(m, engine.Primary, 4, nil)); err == nil {
		t.Error("Prepare took an older epoch")
	}
}

func TestPasswordsChangeUnderOpenSessions(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	open, err := m.client(c.ctx(), "app", password)
	must(t, err)
	defer closeConn(open)
	c.accounts = []engine.Account{{Name: "app", Verifier: verifier("new")}}
	m.become(c.role(m, engine.Primary, 1, nil))
	if _, err := open.Exec(c.ctx(), "SELECT 1"); err != nil {
		t.Errorf("the open session ended: %v", err)
	}
	if _, err := m.client(c.ctx(), "app", password); err == nil {
		t.Error("the old password still gets in")
	}
	fresh, err := m.client(c.ctx(), "app", "new")
	must(t, err)
	closeConn(fresh)
	if got := m.report().AccountsApplied; got != AccountsHash(c.accounts) {
		t.Errorf("accounts applied %s", got)
	}
	for _, name := range []string{"postgres", "plimsoll_replication", "pg_monitor"} {
		r := c.role(m, engine.Primary, 1, nil)
		r.Accounts = []engine.Account{{Name: name, Verifier: verifier("x")}}
		if err := m.d.Become(c.ctx(), r); err == nil {
			t.Errorf("account %s was written", name)
		}
	}
	for _, line := range m.log() {
		if strings.Contains(line, "SCRAM-SHA-256$") {
			t.Errorf("a verifier is in the log: %s", line)
		}
	}
}

func TestCertificatesAreExchangedWithoutARestart(t *testing.T) {
	c := newCluster(t)
	m := c.primary(false)
	serial := func() string {
		s, err := m.client(c.ctx(), "app", password)
		must(t, err)
		defer closeConn(s)
		return s.PgConn().Conn().(interface{ ConnectionState() tls.ConnectionState }).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	mountLeaf(t, c.ca, m.cfg.ServerTLSDir, "orders", m.address)
	m.become(c.role(m, engine.Primary, 1, nil))
	if serial() == before {
		t.Error("the server still serves its old certificate")
	}
	must(t, os.WriteFile(filepath.Join(m.cfg.ServerTLSDir, "tls.key"), []byte("nonsense"), 0o600))
	if err := m.d.Become(c.ctx(), c.role(m, engine.Primary, 1, nil)); err == nil {
		t.Error("a key that does not fit was taken")
	}
	serial()
}

func TestNobodyElseGetsIn(t *testing.T) {
	c := newCluster(t)
	p := c.primary(false)
	dir := t.TempDir()
	mountLeaf(t, c.ca, dir, "plimsoll-manager")
	stranger := authority.New(t)
	other := t.TempDir()
	mountLeaf(t, stranger, other, postgres.MemberPrefix+"orders-2")
	neighbour := t.TempDir()
	mountLeaf(t, c.ca, neighbour, postgres.MemberPrefix+"ordersX-2")
	for name, from := range map[string]string{"a certificate that is no member's": dir, "a member of another authority": other, "a member of another database": neighbour} {
		t.Run(name, func(t *testing.T) {
			must(t, p.d.mkdir(p.d.tlsDir()))
			d := &Driver{cfg: p.cfg, log: p.d.log, bins: p.d.bins}
			d.cfg.RunDir = t.TempDir()
			must(t, os.MkdirAll(d.tlsDir(), 0o700))
			for src, dst := range map[string]string{"tls.crt": memberCert, "tls.key": memberKey} {
				raw, err := os.ReadFile(filepath.Join(from, src))
				must(t, err)
				must(t, os.WriteFile(filepath.Join(d.tlsDir(), dst), raw, 0o600))
			}
			must(t, os.WriteFile(filepath.Join(d.tlsDir(), rootCA), c.ca.PEM, 0o600))
			if up, err := d.dial(c.ctx(), engine.Role{Upstream: p.address}); err == nil {
				up.close()
				t.Error("it got in")
			}
		})
	}
	if _, err := p.client(context.Background(), "plimsoll_replication", password); err == nil {
		t.Error("the members' role gets in by password")
	}
	if s, err := pgx.Connect(c.ctx(), fmt.Sprintf("host=%s port=%d user=app password='%s' dbname=app sslmode=disable", p.address, c.port, password)); err == nil {
		closeConn(s)
		t.Error("a client gets in without TLS")
	}
}
