package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres/driver"
)

// envPod makes the test binary play one pod: it names a file with a pod value. envStage tells root's part from the user's.
const (
	envPod   = "PLIMSOLL_TEST_POD"
	envStage = "PLIMSOLL_TEST_STAGE"
)

// pod is what the kubelet would give a pod: identity, directories, addresses.
type pod struct {
	Agent    agent.Config
	Data     string
	WAL      string
	Run      string
	Address  string
	Port     int
	API      string
	UID, GID int
	// Preload is a library that slows the servers' disk; empty for none.
	Preload string
}

func TestMain(m *testing.M) {
	path := os.Getenv(envPod)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := playPod(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playPod sets up what a container runtime does, then is the agent: PID 1, not root.
func playPod(path string) error {
	if err := process.HoldMainThread(); err != nil {
		return err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p pod
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if os.Getenv(envStage) == "" {
		return becomeUser(p)
	}
	// A change of user forgets it: a test that ends badly must not leave pods behind.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the test: %w", err)
	}
	api := kube.New(p.API, http.DefaultClient, func() (string, error) { return "token", nil }, "test")
	store := lease.NewKubeStore(api, p.Agent.Namespace, p.Agent.Database, p.Agent.Database+"-rw", lease.Endpoint{Address: p.Address, Pod: p.Agent.Instance})
	return serve(options{agent: p.Agent, store: store, out: os.Stdout, driver: driver.Config{
		DataDir: p.Data, WALDir: p.WAL, RunDir: p.Run, MemberTLSDir: p.Agent.MemberTLSDir, ServerTLSDir: p.Agent.ServerTLSDir, Listen: p.Address, Port: p.Port,
	}})
}

func becomeUser(p pod) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to this pod: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(p.GID), syscall.Setuid(p.UID)); err != nil {
		return fmt.Errorf("give up root: %w", err)
	}
	env := []string{envPod + "=" + os.Getenv(envPod), envStage + "=user", "PATH=/usr/bin:/bin"}
	if p.Preload != "" {
		env = append(env, "LD_PRELOAD="+p.Preload)
	}
	return syscall.Exec("/proc/self/exe", os.Args, env)
}

const (
	uid      = "11111111-2222-3333-4444-555555555555"
	password = "correct horse"
)

// database is three pods, the API server and the manager's part.
type database struct {
	t       *testing.T
	dir     string
	ca      *authority
	api     *api
	port    int
	members []*memberPod
	manager *client.Client
	change  func(*engine.Aim)
	lines   lines
}

type memberPod struct {
	db   *database
	name string
	pod  pod
	cmd  *exec.Cmd
	out  *os.File
	done chan error
}

func newDatabase(t *testing.T, members int) *database {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("pods in namespaces of their own need root")
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		t.Skip("there is no user postgres")
	}
	d := &database{t: t, dir: must(os.MkdirTemp("/tmp", "pagent"))(t), ca: newAuthority(t), api: newAPI(t, "orders-1"), port: freePort(t)}
	if err := os.Chmod(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.Getenv("PLIMSOLL_TEST_KEEP") == "" {
			_ = os.RemoveAll(d.dir)
		}
	})
	source := must(client.Fixed(d.ca.leaf(t, uid, client.ManagerName, nil)))(t)
	agentPort, healthPort, preload := freePort(t), freePort(t), d.slowDisk(t)
	d.manager = client.New(uid, source, client.WithPort(agentPort))
	t.Cleanup(d.manager.Close)
	user, group := must(strconv.Atoi(owner.Uid))(t), must(strconv.Atoi(owner.Gid))(t)
	for i := range members {
		m := &memberPod{db: d, name: fmt.Sprintf("orders-%d", i+1)}
		at := func(s string) string { return filepath.Join(d.dir, m.name, s) }
		address := fmt.Sprintf("127.0.7.%d", i+1)
		m.pod = pod{
			Agent: agent.Config{
				Namespace: "shop", Database: "orders", UID: uid, Instance: m.name, Version: "test", Host: address,
				StateDir: at("data/plimsoll"), DataDir: at("data"), WALDir: at("wal"), MemberTLSDir: at("member"), ServerTLSDir: at("server"),
				AgentPort: agentPort, HealthPort: healthPort,
			},
			Data: at("data"), WAL: at("wal"), Run: at("run"), Address: address, Port: d.port, API: d.api.URL, UID: user, GID: group, Preload: preload,
		}
		for _, dir := range []string{"data", "run", "member", "server"} {
			if err := errors.Join(os.MkdirAll(at(dir), 0o755), os.Chown(at(dir), user, group)); err != nil {
				t.Fatal(err)
			}
		}
		mount(t, at("member"), d.ca.leaf(t, uid, client.MemberPrefix+m.name, []string{m.name, m.name + ".orders-members.shop.svc"}, address))
		mount(t, at("server"), d.ca.leaf(t, uid, "orders", []string{"orders-rw.shop.svc"}, "127.0.7.1", "127.0.7.2", "127.0.7.3"))
		d.members = append(d.members, m)
	}
	t.Cleanup(func() {
		for _, m := range d.members {
			m.kill()
			if raw, _ := os.ReadFile(filepath.Join(d.dir, m.name, "log")); bytes.Contains(raw, []byte("DATA RACE")) || bytes.Contains(raw, []byte("panic: ")) {
				t.Errorf("the agent of %s has a data race or panicked", m.name)
			}
			if t.Failed() {
				t.Logf("log of %s:\n%s", m.name, m.lastLog(40))
			}
		}
	})
	return d
}

func freePort(t *testing.T) int {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.7.1:0"))(t)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// start the pod.
func (m *memberPod) start() {
	t := m.db.t
	t.Helper()
	path := filepath.Join(m.db.dir, m.name, "pod.json")
	if err := os.WriteFile(path, must(json.Marshal(m.pod))(t), 0o644); err != nil {
		t.Fatal(err)
	}
	m.out = must(os.OpenFile(filepath.Join(m.db.dir, m.name, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	m.cmd = exec.Command(must(os.Executable())(t))
	m.cmd.Env = []string{envPod + "=" + path}
	m.cmd.Stdout, m.cmd.Stderr = m.out, m.out
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, done := m.cmd, make(chan error, 1)
	m.done = done
	go func() { done <- cmd.Wait() }()
}

// kill the whole pod, as the loss of its node does.
func (m *memberPod) kill() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	<-m.done
	_ = m.out.Close()
	m.cmd = nil
}

// terminate the pod as the kubelet does, and return how it ended.
func (m *memberPod) terminate() error {
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case err = <-m.done:
	case <-time.After(40 * time.Second):
		return errors.New("it did not end in time")
	}
	_ = m.out.Close()
	m.cmd = nil
	return err
}

// server is the host's number of the server process.
func (m *memberPod) server() (int, error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		raw, _ := os.ReadFile(name)
		for _, field := range strings.Fields(string(raw)) {
			comm, _ := os.ReadFile("/proc/" + field + "/comm")
			if strings.TrimSpace(string(comm)) == "postgres" {
				return strconv.Atoi(field)
			}
		}
	}
	return 0, errors.New("there is no server")
}

func (m *memberPod) lastLog(lines int) string {
	raw, _ := os.ReadFile(filepath.Join(m.db.dir, m.name, "log"))
	all := strings.Split(string(raw), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (m *memberPod) peer() engine.Peer { return engine.Peer{Name: m.name, Address: m.pod.Address} }

func (m *memberPod) report() (engine.Report, error) {
	ctx, cancel := context.WithTimeout(m.db.t.Context(), time.Second)
	defer cancel()
	return m.db.manager.Report(ctx, m.peer())
}

// spec is the Database that is run.
func (d *database) spec() *v1.Database {
	return &v1.Database{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}, Spec: v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: "15.18", Storage: v1.StorageSpec{Size: resource.MustParse("2Gi")},
		Parameters: map[string]string{"max_connections": "50", "shared_buffers": "32MB"},
	}}
}

// aim is what the manager wants of a member now.
func (d *database) aim(m *memberPod, epoch int64) engine.Aim {
	a := engine.Aim{
		UID: uid, Namespace: "shop", Database: "orders", Member: m.name, Epoch: epoch, Bootstrap: "orders-1", Synchronous: "required",
		Init:     engine.DatabaseInit{Name: "app", Owner: "app", SQL: []string{"CREATE TABLE ledger (id bigint PRIMARY KEY, at timestamptz DEFAULT now())"}},
		Accounts: []engine.Account{{Name: "app", Verifier: verifier(password)}},
	}
	var all []engine.Member
	for _, o := range d.members {
		a.Members = append(a.Members, o.peer())
		all = append(all, engine.Member{Name: o.name})
	}
	a.Files = postgres.New(postgres.Options{}).Files(d.spec(), engine.Member{Name: m.name}, all)
	if d.change != nil {
		d.change(&a)
	}
	return a
}

// publish gives every member that answers its aim, as the manager does after each look.
func (d *database) publish() {
	for _, m := range d.members {
		if m.cmd == nil {
			continue
		}
		r, err := m.report()
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
		if err := d.manager.SetAim(ctx, m.pod.Address, d.aim(m, r.Epoch)); err != nil && !errors.Is(err, client.ErrStale) {
			d.t.Logf("aim for %s: %v", m.name, err)
		}
		cancel()
	}
}

// until waits for a condition and publishes aims meanwhile.
func (d *database) until(what string, limit time.Duration, check func() error) time.Duration {
	d.t.Helper()
	begin := time.Now()
	var told time.Time
	for {
		err := check()
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > limit {
			d.t.Fatalf("waiting until %s: %v", what, err)
		}
		if time.Since(told) > 500*time.Millisecond {
			d.publish()
			told = time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// leader is the member that says it leads and is ready.
func (d *database) leader() (*memberPod, engine.Report, error) {
	var last error = errors.New("nobody answers")
	for _, m := range d.members {
		if m.cmd == nil {
			continue
		}
		r, err := m.report()
		if err != nil {
			last = err
			continue
		}
		if r.Leading && r.Ready {
			return m, r, nil
		}
		last = fmt.Errorf("%s is %s %s: %s", m.name, r.State, r.Role, r.Problem)
	}
	return nil, engine.Report{}, last
}

// whole says that all members run, follow one leader and count.
func (d *database) whole() error {
	lead, told, err := d.leader()
	if err != nil {
		return err
	}
	if len(told.Voters) != len(d.members) {
		return fmt.Errorf("voters are %v", told.Voters)
	}
	for _, m := range d.members {
		r, err := m.report()
		if err != nil {
			return err
		}
		if !r.Ready || !r.Converged || m != lead && (r.Role != engine.Replica || r.LagBytes < 0) {
			return fmt.Errorf("%s is %s %s, ready %v, converged %v: %s %s", m.name, r.State, r.Role, r.Ready, r.Converged, r.Reason, r.Problem)
		}
	}
	return nil
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
