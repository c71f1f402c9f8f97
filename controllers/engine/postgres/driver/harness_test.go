package driver

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// A cluster is real servers on loopback addresses that share a port.
type cluster struct {
	t        *testing.T
	dir      string
	db       *v1.Database
	port     int
	ca       *authority.Authority
	engine   *postgres.Engine
	cred     *syscall.Credential
	accounts []engine.Account
	sql      []string
	members  []*member
}

type member struct {
	c       *cluster
	name    string
	address string
	cfg     Config
	d       *Driver
	cmd     *exec.Cmd
	exited  chan struct{}
	mu      sync.Mutex
	records []Record
}

const password = "correct horse"

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if _, err := findBinaries("", 0); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("/tmp", "plimsoll")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{
		t: t, dir: dir, port: freePort(t), ca: authority.New(t), engine: postgres.New(postgres.Options{}),
		db: &v1.Database{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}, Spec: v1.DatabaseSpec{
			Engine: v1.EnginePostgres, Version: strconv.Itoa(installedMajor(t)), Storage: v1.StorageSpec{Size: resource.MustParse("2Gi")},
			Parameters: map[string]string{"max_connections": "50", "shared_buffers": "16MB"},
		}},
		accounts: []engine.Account{{Name: "app", Verifier: verifier(password)}},
	}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("the server refuses root, and there is no user postgres")
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		c.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return c
}

func installedMajor(t *testing.T) int {
	t.Helper()
	b, err := findBinaries("", 0)
	must(t, err)
	d := &Driver{bins: b}
	if d.bins.major() == 0 {
		t.Skip("the version of the installed PostgreSQL is unknown")
	}
	return d.bins.major()
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	defer func() { must(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

// add a member with directories of its own; wal says whether its log has a volume of its own.
func (c *cluster) add(wal bool) *member {
	c.t.Helper()
	n := len(c.members) + 1
	m := &member{c: c, name: fmt.Sprintf("orders-%d", n), address: fmt.Sprintf("127.0.0.%d", n+1)}
	at := func(s string) string { return filepath.Join(c.dir, strconv.Itoa(n), s) }
	m.cfg = Config{
		DataDir: at("data"), WALDir: at("wal"), RunDir: at("run"), MemberTLSDir: at("member"), ServerTLSDir: at("server"),
		Listen: m.address, Port: c.port, Credential: c.cred,
	}
	if testing.Verbose() {
		m.cfg.Logger = slog.New(slog.NewTextHandler(logTo{c.t, m.name}, nil))
	}
	dirs := []string{"data", "run", "member", "server"}
	if wal {
		dirs = append(dirs, "wal")
	}
	for _, s := range dirs {
		must(c.t, os.MkdirAll(at(s), 0o755))
		if c.cred != nil {
			must(c.t, os.Chown(at(s), int(c.cred.Uid), int(c.cred.Gid)))
		}
	}
	mountLeaf(c.t, c.ca, m.cfg.MemberTLSDir, postgres.MemberPrefix+m.name, m.address)
	authority.Mount(c.t, m.cfg.ServerTLSDir, c.ca.Leaf(c.t, "uid", "orders", authority.Addresses("127.0.0.2", "127.0.0.3", "127.0.0.4"),
		authority.Names("orders-1.shop.invalid", "orders-2.shop.invalid", "orders-3.shop.invalid")))
	m.open()
	c.members = append(c.members, m)
	c.t.Cleanup(func() { m.kill(); m.d.Close() })
	return m
}

func (m *member) open() {
	m.c.t.Helper()
	d, err := New(m.cfg)
	must(m.c.t, err)
	m.d = d
}

type logTo struct {
	t    *testing.T
	name string
}

func (l logTo) Write(p []byte) (int, error) { l.t.Logf("%s: %s", l.name, p); return len(p), nil }

// host is a name that the certificate is for and that no DNS server knows: a member is reached by the address that it told.
func (m *member) host() string { return m.name + ".shop.invalid" }

func (c *cluster) role(m *member, kind engine.Kind, epoch int64, upstream *member) engine.Role {
	r := engine.Role{Kind: kind, Epoch: epoch, Member: m.name, Accounts: c.accounts, Database: engine.DatabaseInit{Name: "app", Owner: "app", SQL: c.sql}}
	if upstream != nil {
		r.Upstream, r.UpstreamIP = upstream.host(), upstream.address
	}
	var all []engine.Member
	for _, o := range c.members {
		r.Peers = append(r.Peers, o.name)
		all = append(all, engine.Member{Name: o.name, Leader: kind == engine.Primary && o == m || o == upstream})
	}
	r.Files = c.engine.Files(c.db, engine.Member{Name: m.name, Leader: kind == engine.Primary}, all)
	return r
}

// start prepares and starts the server, and waits until it takes connections.
func (m *member) start(r engine.Role) {
	m.c.t.Helper()
	ctx := m.c.ctx()
	must(m.c.t, m.d.Prepare(ctx, r))
	m.launch(r)
}

func (m *member) launch(r engine.Role) {
	m.c.t.Helper()
	c := m.d.Command(r)
	m.cmd = exec.Command(c.Path, c.Args...)
	m.cmd.Env, m.cmd.Dir = c.Env, c.Dir
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.c.cred, Setpgid: true}
	errs, err := m.cmd.StderrPipe()
	must(m.c.t, err)
	must(m.c.t, m.cmd.Start())
	m.exited = make(chan struct{})
	cmd, exited := m.cmd, m.exited
	go func() {
		_ = m.d.Watch().Pump(context.Background(), errs, func(r Record) {
			m.mu.Lock()
			m.records = append(m.records, r)
			m.mu.Unlock()
		})
		_ = cmd.Wait()
		close(exited)
	}()
	m.c.until("the server of "+m.name+" answers", func() error {
		select {
		case <-exited:
			return fmt.Errorf("the server ended: %v", m.log())
		default:
		}
		c, err := m.d.admin(m.c.ctx())
		if err == nil {
			closeConn(c)
		}
		return err
	})
}

func (m *member) log() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, r := range m.records {
		all = append(all, r.Level+": "+r.Message)
	}
	return all
}

func (m *member) stop() {
	m.c.t.Helper()
	if m.cmd == nil {
		return
	}
	must(m.c.t, m.cmd.Process.Signal(fastStop))
	select {
	case <-m.exited:
	case <-time.After(30 * time.Second):
		m.c.t.Fatalf("the server of %s does not stop: %v", m.name, m.log())
	}
	m.cmd = nil
}

// kill all of the server's processes, as the agent's hard stop does. Each is a process group of its own session leader.
func (m *member) kill() {
	if m.cmd == nil {
		return
	}
	for _, pid := range append(children(m.cmd.Process.Pid), m.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-m.exited
	m.cmd = nil
}

func children(pid int) []int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var all []int
	for s := range split(string(raw)) {
		if n, err := strconv.Atoi(s); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func split(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		word := ""
		for _, r := range s + " " {
			if r != ' ' {
				word += string(r)
				continue
			}
			if word != "" && !yield(word) {
				return
			}
			word = ""
		}
	}
}

func (c *cluster) ctx() context.Context {
	ctx, done := context.WithTimeout(context.Background(), 2*time.Minute)
	c.t.Cleanup(done)
	return ctx
}

func (c *cluster) until(what string, check func() error) {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waiting until %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (m *member) become(r engine.Role) {
	m.c.t.Helper()
	must(m.c.t, m.d.Become(m.c.ctx(), r))
}

func (m *member) report() engine.Report {
	m.c.t.Helper()
	r, err := m.d.Report(m.c.ctx())
	must(m.c.t, err)
	return r
}

// follows waits until the replica has what the primary has.
func (m *member) follows(p *member) {
	m.c.t.Helper()
	m.c.until(m.name+" follows "+p.name, func() error {
		a, err := p.d.Report(m.c.ctx())
		if err != nil {
			return err
		}
		b, err := m.d.Report(m.c.ctx())
		if err != nil {
			return err
		}
		if b.LagBytes != 0 || b.Position != a.Position {
			return fmt.Errorf("%+v of %+v (%s): %v", b.Position, a.Position, b.Problem, m.log())
		}
		return nil
	})
}

// client logs in over the network as the application does.
func (m *member) client(ctx context.Context, user, pass string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=app sslmode=verify-full sslrootcert=%s connect_timeout=2",
		m.address, m.c.port, user, pass, filepath.Join(m.cfg.ServerTLSDir, "ca.crt")))
}

func (m *member) exec(sql string, args ...any) {
	m.c.t.Helper()
	c, err := m.client(m.c.ctx(), "app", password)
	must(m.c.t, err)
	defer closeConn(c)
	_, err = c.Exec(m.c.ctx(), sql, args...)
	must(m.c.t, err)
}

func query[T any](m *member, sql string, args ...any) T {
	m.c.t.Helper()
	c, err := m.client(m.c.ctx(), "app", password)
	must(m.c.t, err)
	defer closeConn(c)
	v, err := one[T](m.c.ctx(), c, sql, args...)
	must(m.c.t, err)
	return v
}

func asSuper[T any](m *member, database, sql string, args ...any) T {
	m.c.t.Helper()
	c, err := m.d.connect(m.c.ctx(), postgres.Superuser, database)
	must(m.c.t, err)
	defer closeConn(c)
	v, err := one[T](m.c.ctx(), c, sql, args...)
	must(m.c.t, err)
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mountLeaf of the Database "uid" at dir.
func mountLeaf(t *testing.T, ca *authority.Authority, dir, name string, addresses ...string) {
	t.Helper()
	authority.Mount(t, dir, ca.Leaf(t, "uid", name, authority.Addresses(addresses...)))
}

// verifier of a password as RFC 5803 has it.
func verifier(pass string) string {
	salt := []byte("0123456789abcdef")
	salted, _ := pbkdf2.Key(sha256.New, pass, salt, 4096, 32)
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	b := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$4096:%s$%s:%s", b(salt), b(stored[:]), b(sum(salted, "Server Key")))
}
