package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

const testUID = "11111111-2222-3333-4444-555555555555"

// desk is a service on a loopback port, and what reached it.
type desk struct {
	service *service
	ca      *authority.Authority
	dir     string
	port    int

	mu   sync.Mutex
	aims []engine.Aim
	raws [][]byte
	asks []lease.Request
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{ca: authority.New(t), dir: t.TempDir()}
	authority.Mount(t, d.dir, d.ca.Leaf(t, testUID, client.MemberPrefix+"orders-1", authority.Names("orders-1")))
	cfg := Config{Namespace: "shop", Database: "orders", UID: testUID, Instance: "orders-1", MemberTLSDir: d.dir, ServerTLSDir: d.dir}
	certs := newCertificates(d.dir, d.dir)
	d.service = &service{
		cfg: cfg, log: slog.New(slog.DiscardHandler), certs: certs, lease: lease.Handler(d, callerOf(testUID)),
		reporter: newReporter(cfg, lease.BootClock{}, certs, func() string { return "" }), take: d.take,
		program: func(_ context.Context, from io.Reader, size int64, digest, version string) error {
			raw, err := io.ReadAll(from)
			if string(raw) != "code" || size != 4 || digest != "sha256:1" || version != "v2" {
				return refuse("got %q of %d bytes, %s %s", raw, size, digest, version)
			}
			return err
		},
	}
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	d.port = l.Addr().(*net.TCPAddr).Port
	v := d.service.server(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = v.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() { _ = v.Close(); <-ended })
	return d
}

func (d *desk) take(a engine.Aim, raw []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.Epoch < 7 {
		return &staleError{aim: a.Epoch, seen: 7}
	}
	d.aims, d.raws = append(d.aims, a), append(d.raws, raw)
	return nil
}

func (d *desk) Ask(_ context.Context, r lease.Request) (lease.Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asks = append(d.asks, r)
	return lease.Answer{Database: testUID, From: "orders-1", Seq: r.Seq, OK: true}, nil
}

func (d *desk) client(t *testing.T, c client.Credentials) *client.Client {
	t.Helper()
	out := client.New(testUID, must(client.Fixed(c))(t), client.WithPort(d.port))
	t.Cleanup(out.Close)
	return out
}

func aimFor(change func(*engine.Aim)) engine.Aim {
	a := engine.Aim{UID: testUID, Namespace: "shop", Database: "orders", Member: "orders-1", Epoch: 7}
	if change != nil {
		change(&a)
	}
	return a
}

var here = engine.Peer{Name: "orders-1", Address: "127.0.0.1"} //nolint:gochecknoglobals // a constant of the tests

func TestWhoMayDoWhat(t *testing.T) {
	d := newDesk(t)
	stranger := authority.New(t)
	foreign := stranger.Leaf(t, testUID, client.ManagerName)
	foreign.CA = d.ca.PEM // it trusts the server; the server must not trust it
	rows := map[string]struct {
		who                   client.Credentials
		aim, report, question bool
	}{
		"the manager sets aims, sends programs and reads reports": {d.ca.Leaf(t, testUID, client.ManagerName), true, true, false},
		"a member reads reports and speaks of leadership":         {d.ca.Leaf(t, testUID, client.MemberPrefix+"orders-2"), false, true, true},
		"a manager of another Database is refused":                {d.ca.Leaf(t, "99999999-2222-3333-4444-555555555555", client.ManagerName), false, false, false},
		"a leaf without an organisation is refused":               {d.ca.Leaf(t, "", client.ManagerName), false, false, false},
		"a leaf of another name is refused":                       {d.ca.Leaf(t, testUID, "postgres"), false, false, false},
		"a member without a name is refused":                      {d.ca.Leaf(t, testUID, client.MemberPrefix), false, false, false},
		"a leaf that has run out is refused":                      {d.ca.Leaf(t, testUID, client.ManagerName, authority.Ended()), false, false, false},
		"a leaf of another authority is refused":                  {foreign, false, false, false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			c := d.client(t, row.who)
			_, err := c.Report(t.Context(), here)
			expect(t, "report", err, row.report)
			expect(t, "aim", c.SetAim(t.Context(), here.Address, aimFor(nil)), row.aim)
			expect(t, "program", c.Exchange(t.Context(), here, client.Program{Digest: "sha256:1", Version: "v2", Size: 4, Open: func() (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader("code")), nil
			}}), row.aim)
			var a lease.Answer
			err = c.Post(t.Context(), here, lease.Path+"prevote", lease.Request{Kind: lease.KindPreVote, Database: testUID, From: "orders-2", Seq: 1, Epoch: 1}, &a)
			expect(t, "question", err, row.question)
		})
	}
}

func expect(t *testing.T, what string, err error, want bool) {
	t.Helper()
	if (err == nil) != want {
		t.Errorf("%s: got error %v, want success %v", what, err, want)
	}
}

func TestNobodyWithoutCertificate(t *testing.T) {
	d := newDesk(t)
	resp, err := http.Get("https://127.0.0.1:" + port(d.port) + "/v1/report") //nolint:noctx // a test
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("a caller without a certificate was let in")
	}
}

func TestMemberSpeaksForItselfOnly(t *testing.T) {
	d := newDesk(t)
	c := d.client(t, d.ca.Leaf(t, testUID, client.MemberPrefix+"orders-2"))
	err := c.Post(t.Context(), here, lease.Path+"support", lease.Request{Kind: lease.KindSupport, Database: testUID, From: "orders-3", Seq: 1, Epoch: 9}, nil)
	if !errors.Is(err, client.ErrRefused) {
		t.Fatalf("got %v, want %v", err, client.ErrRefused)
	}
	if len(d.asks) != 0 {
		t.Fatalf("the leadership heard %v", d.asks)
	}
}

func TestAimIsRefused(t *testing.T) {
	d := newDesk(t)
	c := d.client(t, d.ca.Leaf(t, testUID, client.ManagerName))
	rows := map[string]struct {
		aim  engine.Aim
		want error
	}{
		"for another Database of that name":  {aimFor(func(a *engine.Aim) { a.UID = "other" }), client.ErrMisdirected},
		"for another namespace":              {aimFor(func(a *engine.Aim) { a.Namespace = "other" }), client.ErrMisdirected},
		"for another Database":               {aimFor(func(a *engine.Aim) { a.Database = "other" }), client.ErrMisdirected},
		"decided on an older epoch":          {aimFor(func(a *engine.Aim) { a.Epoch = 6 }), client.ErrStale},
		"larger than an aim may be":          {aimFor(func(a *engine.Aim) { a.Files = map[string]string{"x": strings.Repeat("x", maxState)} }), client.ErrRefused},
		"taken when decided on a newer one":  {aimFor(func(a *engine.Aim) { a.Epoch = 8 }), nil},
		"taken when decided on the same one": {aimFor(nil), nil},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if err := c.SetAim(t.Context(), here.Address, row.aim); !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
		})
	}
}

// TestClientKnowsTheMember reaches an agent by an address that another member had before.
func TestClientKnowsTheMember(t *testing.T) {
	d := newDesk(t)
	c := d.client(t, d.ca.Leaf(t, testUID, client.ManagerName))
	if _, err := c.Report(t.Context(), engine.Peer{Name: "orders-2", Address: "127.0.0.1"}); err == nil {
		t.Fatal("the client took orders-1 for orders-2")
	}
}

// TestRotation changes leaf, then authority, under a client that keeps asking on one connection and one that dials anew.
func TestRotation(t *testing.T) {
	d := newDesk(t)
	before := d.client(t, d.ca.Leaf(t, testUID, client.ManagerName))
	told := func(c *client.Client) error { _, err := c.Report(t.Context(), here); return err }
	expect(t, "before", told(before), true)
	old := d.service.certs.hash()

	next := authority.New(t)
	both := append(append([]byte{}, d.ca.PEM...), next.PEM...)
	leaf := next.Leaf(t, testUID, client.MemberPrefix+"orders-1", authority.Names("orders-1"))
	leaf.CA = both
	authority.Mount(t, d.dir, leaf)

	expect(t, "a connection from before lives on", told(before), true)
	manager := next.Leaf(t, testUID, client.ManagerName)
	manager.CA = both
	expect(t, "a leaf of the new authority", told(d.client(t, manager)), true)
	last := d.ca.Leaf(t, testUID, client.ManagerName)
	last.CA = both
	expect(t, "a leaf of the old authority, while both are trusted", told(d.client(t, last)), true)
	// The manager compares it with that of what it wrote: an authority is withdrawn only when all hashes fit.
	want := engine.SecretsHash(engine.TLSFiles{Certificate: leaf.Cert, Trusted: leaf.CA}, engine.TLSFiles{Certificate: leaf.Cert, Trusted: leaf.CA})
	if got := d.service.certs.hash(); got == old || got != want {
		t.Errorf("the report's hash of certificates is %s, before %s, want the manager's %s", got, old, want)
	}

	leaf.CA = next.PEM
	authority.Mount(t, d.dir, leaf)
	expect(t, "a leaf of the old authority, when it is gone", told(d.client(t, last)), false)
	expect(t, "a leaf of the new authority, to the end", told(d.client(t, manager)), true)

	authority.Mount(t, d.dir, client.Credentials{CA: next.PEM, Cert: []byte("half a file"), Key: leaf.Key})
	expect(t, "broken files do not end service", told(d.client(t, manager)), true)
}

func TestWatchTellsAtOnce(t *testing.T) {
	d := newDesk(t)
	c := d.client(t, d.ca.Leaf(t, testUID, client.ManagerName))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := make(chan engine.Report, 16)
	ended := make(chan error, 1)
	go func() { ended <- c.WatchReports(ctx, here, func(r engine.Report) { got <- r }) }()
	<-got // the first, at once
	begin := time.Now()
	d.service.reporter.(*reporter).look(sample{At: time.Now(), Word: word{Server: server{Life: up}}, Report: engine.Report{State: "running", Role: engine.Primary, Ready: true}})
	r := <-got
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("a change of state was told after %s, want at once", took)
	}
	if diff := cmp.Diff([]any{engine.Primary, "running", true}, []any{r.Role, r.State, r.Ready}); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	// Positions change all the time and are no news.
	d.service.reporter.(*reporter).look(sample{At: time.Now(), Word: word{Server: server{Life: up}}, Report: engine.Report{State: "running", Role: engine.Primary, Ready: true, Position: engine.Position{Bytes: 9}}})
	select {
	case r := <-got:
		t.Errorf("a position alone woke the watcher: %+v", r)
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v, want %v", err, context.Canceled)
	}
}

// TestSlowCallerIsCutOff opens a connection and says nothing.
func TestSlowCallerIsCutOff(t *testing.T) {
	d := newDesk(t)
	v := d.service.server(nil)
	if v.ReadHeaderTimeout == 0 || v.ReadTimeout == 0 || v.WriteTimeout == 0 || v.IdleTimeout == 0 || v.MaxHeaderBytes == 0 {
		t.Fatalf("a bound is missing: %+v", v)
	}
	conn := must(net.Dial("tcp", "127.0.0.1:"+port(d.port)))(t)
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout + 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want the agent to hang up", err)
	}
}

// FuzzAim: an aim is taken as it was meant, by the member that it is for, or not at all, and the answer says which.
func FuzzAim(f *testing.F) {
	good, err := json.Marshal(aimFor(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"uid":"` + testUID + `","namespace":"shop","database":"orders","member":"orders-2","epoch":7}`))
	f.Add([]byte(`{"uid":"` + testUID + `","namespace":"shop","database":"orders","member":"orders-1","epoch":6} {}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := &desk{}
		d.service = &service{cfg: Config{Namespace: "shop", Database: "orders", UID: testUID, Instance: "orders-1"}, log: slog.New(slog.DiscardHandler), take: d.take}
		answer := httptest.NewRecorder()
		d.service.putAim(answer, httptest.NewRequest(http.MethodPut, "/v1/aim", bytes.NewReader(body)), client.Identity{Manager: true})
		if taken := len(d.aims) == 1; taken != (answer.Code == http.StatusNoContent) {
			t.Fatalf("%d aims were taken, the answer is %d", len(d.aims), answer.Code)
		}
		if answer.Code != http.StatusNoContent {
			if !slices.Contains([]int{400, 409, 413, 421}, answer.Code) || answer.Body.Len() == 0 {
				t.Fatalf("refused with %d and %q", answer.Code, answer.Body)
			}
			return
		}
		a := d.aims[0]
		if a.UID != testUID || a.Namespace != "shop" || a.Database != "orders" || a.Member != "orders-1" || a.Epoch < 7 {
			t.Fatalf("taken: %+v", a)
		}
		// The agent keeps it on its volume: what is read back after a restart must be the same.
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var again engine.Aim
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatalf("kept as %s, which cannot be read: %v", raw, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(raw, twice) {
			t.Fatalf("kept as %s, read back as %s (%v)", raw, twice, err)
		}
	})
}
