package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

const (
	uid      = "11111111-2222-3333-4444-555555555555"
	password = "correct horse"
)

// database is three pods, the API server and the manager's part.
type database struct {
	t       *testing.T
	dir     string
	ca      *authority.Authority
	api     *api
	network string // the first three numbers of the pods' addresses
	// port of PostgreSQL, and the ports of the agents.
	port, agentPort, healthPort int

	members []*memberPod
	witness *memberPod // beside them; nil for none
	manager *client.Client
	// credentials are the manager's own.
	credentials atomic.Pointer[client.Credentials]
	// patience of a client with a statement.
	patience time.Duration
	// change of what the manager wants.
	change func(*engine.Aim)
	// lines of the switchovers so far.
	lines lines
}

// databases counts those that were made.
var databases atomic.Int32 //nolint:gochecknoglobals // tests side by side need networks of their own

// newDatabase makes a Database on the loopback network. No pod runs yet.
func newDatabase(t *testing.T, members int) *database {
	t.Helper()
	dir := must(os.MkdirTemp("/tmp", "pagent"))(t)
	t.Cleanup(func() {
		if os.Getenv("PLIMSOLL_TEST_KEEP") == "" {
			_ = os.RemoveAll(dir)
		}
	})
	// Tests must not meet, those of other processes neither.
	d := emptyDatabase(t, dir, fmt.Sprintf("127.%d.%d", 8+os.Getpid()%240, databases.Add(1)))
	d.api = newAPI(t, "orders-1")
	d.freePorts(&d.port, &d.agentPort, &d.healthPort)
	d.manage()
	for i := range members {
		d.add(i)
	}
	return d
}

func emptyDatabase(t *testing.T, dir, network string) *database {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("pods in namespaces of their own need root")
	}
	d := &database{t: t, dir: dir, ca: authority.New(t), network: network, patience: time.Second}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all := d.members
		if d.witness != nil {
			all = append(slices.Clone(all), d.witness)
		}
		for _, m := range all {
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

// manage makes the manager's way to the agents.
func (d *database) manage() {
	d.t.Helper()
	d.credentials.Store(new(d.ca.Leaf(d.t, uid, client.ManagerName)))
	d.manager = client.New(uid, d.identity, client.WithPort(d.agentPort))
	d.t.Cleanup(d.manager.Close)
}

// add a member with its directories and certificates.
func (d *database) add(i int) *memberPod {
	d.members = append(d.members, d.make(fmt.Sprintf("orders-%d", i+1), fmt.Sprintf("%s.%d", d.network, i+1)))
	return d.members[len(d.members)-1]
}

// watch the members: a witness votes beside them.
func (d *database) watch(i int) *memberPod {
	d.witness = d.make(fmt.Sprintf("orders-w%d", i), fmt.Sprintf("%s.%d", d.network, 100+i))
	d.witness.pod.Witness = true
	return d.witness
}

// make a pod with its directories and certificates.
func (d *database) make(name, address string) *memberPod {
	t := d.t
	t.Helper()
	owner, err := user.Lookup("postgres")
	if err != nil {
		t.Skip("there is no user postgres")
	}
	user, group := must(strconv.Atoi(owner.Uid))(t), must(strconv.Atoi(owner.Gid))(t)
	m := &memberPod{db: d, name: name}
	at := m.at
	m.pod = pod{
		Agent: agent.Config{
			Namespace: "shop", Database: "orders", UID: uid, Instance: m.name, Address: address, Version: "test", Host: address,
			StateDir: at("data/plimsoll"), DataDir: at("data"), WALDir: at("wal"), MemberTLSDir: at("member"), ServerTLSDir: at("server"),
			ViewSocket: at("run/view.sock"), AgentPort: d.agentPort, HealthPort: d.healthPort,
		},
		Data: at("data"), WAL: at("wal"), Run: at("run"), Address: address, Port: d.port, API: d.api.URL, UID: user, GID: group, Preload: d.slowDisk(t),
	}
	for _, dir := range []string{"data", "run", "member", "server"} {
		if err := errors.Join(os.MkdirAll(at(dir), 0o755), os.Chown(at(dir), user, group)); err != nil {
			t.Fatal(err)
		}
	}
	authority.Mount(t, at("member"), m.leaf(d.ca))
	authority.Mount(t, at("server"), d.leaf(d.ca))
	return m
}

// identity is the manager's, as it is now.
func (d *database) identity() (*tls.Certificate, *x509.CertPool, error) {
	source, err := client.Fixed(*d.credentials.Load())
	if err != nil {
		return nil, nil, err
	}
	return source()
}

// leaf is the server's, for its clients; all members share it.
func (d *database) leaf(ca *authority.Authority) client.Credentials {
	return ca.Leaf(d.t, uid, "orders", authority.Names("orders-rw.shop.svc"), authority.Addresses(d.network+".1", d.network+".2", d.network+".3"))
}

// freePorts finds ports that nobody uses, all of them different.
func (d *database) freePorts(ports ...*int) {
	for _, port := range ports {
		l := must(net.Listen("tcp", d.network+".1:0"))(d.t)
		defer func() { _ = l.Close() }()
		*port = l.Addr().(*net.TCPAddr).Port
	}
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
	if d.witness != nil {
		a.Witness = new(d.witness.peer())
	}
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

// until waits for a condition and publishes aims meanwhile. The limit is for a machine with nothing else to do; a busy one gets more.
func (d *database) until(what string, limit time.Duration, check func() error) time.Duration {
	d.t.Helper()
	begin := time.Now()
	var told time.Time
	for {
		err := check()
		waited := time.Since(begin)
		if err == nil {
			return waited
		}
		if waited > limit+busy {
			d.t.Fatalf("waiting until %s: %v", what, err)
		}
		if time.Since(told) > 500*time.Millisecond {
			d.publish()
			told = time.Now()
		}
		// A look asks every member, over TLS: those who wait for long look less often.
		time.Sleep(min(max(waited/20, 20*time.Millisecond), 200*time.Millisecond))
	}
}

// busy is how much longer a step may take beside other tests and builds.
const busy = time.Minute

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
	voters := len(d.members)
	if d.witness != nil {
		voters++
	}
	if len(told.Voters) != voters {
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

// must returns the value or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
