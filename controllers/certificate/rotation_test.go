package certificate_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

const day = 24 * time.Hour

// files are what a process has loaded: its leaf and whom it trusts.
type files struct {
	leaf    certificate.Pair
	trusted []byte
}

// instance is a pod that loads its mounted Secrets some days late.
type instance struct {
	name           string
	lag            int
	member, server files
	silent         bool
}

// world is a Database whose Secrets are written by Plan and read by its instances, with a clock of its own.
type world struct {
	t         *testing.T
	now       time.Time
	policy    certificate.Policy
	secrets   []certificate.Material // one a day, newest last
	instances []*instance
	manager   files
	rotation  string
	foreign   *certificate.Foreign
	looks     time.Time
	// managerless leaves the manager's connections out of check.
	managerless bool
}

func newWorld(t *testing.T, lags ...int) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), policy: certificate.DefaultPolicy()}
	for i, lag := range lags {
		w.instances = append(w.instances, &instance{name: fmt.Sprintf("orders-%d", i+1), lag: lag})
	}
	w.plan()
	for _, i := range w.instances {
		i.load(w.latest())
	}
	return w
}

func (w *world) latest() certificate.Material { return w.secrets[len(w.secrets)-1] }

// plan is a pass of the manager: read the Secrets, plan, write them.
func (w *world) plan() (changed bool) {
	w.t.Helper()
	current := certificate.Material{}
	if len(w.secrets) > 0 {
		current = roundTrip(w.t, w.latest())
	}
	wanted := certificate.Wanted{
		UID: "uid-1", Namespace: "shop", Database: "orders", Foreign: w.foreign, Rotation: w.rotation, Reported: map[string]string{},
	}
	for _, i := range w.instances {
		wanted.Instances = append(wanted.Instances, i.name)
		if len(w.secrets) > 0 {
			wanted.Reported[i.name] = i.report()
		}
	}
	next, changed, looks, err := certificate.Plan(rand.Reader, w.now, w.policy, current, wanted)
	if err != nil {
		w.t.Fatalf("%s: %v", w.now, err)
	}
	if !looks.After(w.now) {
		w.t.Fatalf("%s: look again at %s, which is past", w.now, looks)
	}
	w.looks = looks
	w.secrets = append(w.secrets, next)
	if next.Stale(w.now, w.manager.leaf) {
		if w.manager.leaf, err = next.Manager(rand.Reader, w.now, w.policy, "uid-1"); err != nil {
			w.t.Fatal(err)
		}
	}
	w.manager.trusted = next.Trusted
	return changed
}

// roundTrip is what the Secrets make of a material.
func roundTrip(t *testing.T, m certificate.Material) certificate.Material {
	t.Helper()
	members := map[string]map[string][]byte{}
	for name := range m.Members {
		members[name] = m.MemberData(name)
	}
	read, err := certificate.ParseMaterial(m.AuthorityData(), m.ServerData(), members)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, read) {
		t.Fatalf("the Secrets lose something:\nwritten %+v\nread    %+v", m, read)
	}
	return read
}

func (i *instance) load(m certificate.Material) {
	i.member = files{leaf: m.Members[i.name], trusted: m.Trusted}
	i.server = files{leaf: m.Server, trusted: m.ServerTrusted}
}

func (i *instance) report() string {
	if i.silent {
		return ""
	}
	m := certificate.Material{
		Members: map[string]certificate.Pair{i.name: i.member.leaf}, Trusted: i.member.trusted,
		Server: i.server.leaf, ServerTrusted: i.server.trusted,
	}
	return m.SecretsHash(i.name)
}

// passDay moves the clock, lets each instance load what the Secrets held its lag ago, and plans.
func (w *world) passDay() {
	w.now = w.now.Add(day)
	for _, i := range w.instances {
		if at := len(w.secrets) - 1 - i.lag; at >= 0 && !i.silent {
			i.load(w.secrets[at])
		}
	}
	w.plan()
}

// check lets every two processes shake hands, both ways round, and a client that fetched its trust `copied` days ago connect.
func (w *world) check(copied int) error {
	stale := w.secrets[max(0, len(w.secrets)-1-copied)]
	for _, server := range w.instances {
		host := server.name + ".orders-members.shop.svc"
		if err := w.shake(server.member, w.manager, host); err != nil && !w.managerless {
			return fmt.Errorf("manager to %s: %w", server.name, err)
		}
		for _, host := range []string{"orders-rw.shop.svc", "orders-ro", host, "localhost", "127.0.0.1"} {
			if err := w.shake(server.server, files{trusted: stale.ServerTrusted}, host); err != nil {
				return fmt.Errorf("client to %s as %s: %w", server.name, host, err)
			}
		}
		for _, other := range w.instances {
			if err := w.shake(server.member, other.member, host); err != nil {
				return fmt.Errorf("%s to %s: %w", other.name, server.name, err)
			}
		}
	}
	return nil
}

// state is the same while every instance goes on with what it has.
func (w *world) state() string {
	state := string(w.latest().Trusted)
	for _, i := range w.instances {
		state += i.report()
	}
	return state
}

// shake is a real handshake. A client without a leaf is one that has a password instead.
func (w *world) shake(server, client files, host string) error {
	serverTLS := &tls.Config{Certificates: []tls.Certificate{w.pair(server.leaf)}, Time: func() time.Time { return w.now }}
	clientTLS := &tls.Config{RootCAs: w.pool(client.trusted), ServerName: host, Time: func() time.Time { return w.now }}
	if client.leaf.Certificate != nil {
		serverTLS.ClientAuth, serverTLS.ClientCAs = tls.RequireAndVerifyClientCert, w.pool(server.trusted)
		clientTLS.Certificates = []tls.Certificate{w.pair(client.leaf)}
	}
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	_ = errors.Join(a.SetDeadline(time.Now().Add(5*time.Second)), b.SetDeadline(time.Now().Add(5*time.Second)))
	accepted := make(chan error, 1)
	go func() { accepted <- serve(tls.Server(a, serverTLS)) }()
	c := tls.Client(b, clientTLS)
	// In TLS 1.3 a client learns that its certificate was refused only when it reads.
	_, err := c.Read(make([]byte, 1))
	return errors.Join(err, <-accepted)
}

func serve(c *tls.Conn) error {
	if err := c.Handshake(); err != nil {
		_ = c.Close()
		return err
	}
	_, err := c.Write([]byte("x"))
	return err
}

func (w *world) pair(p certificate.Pair) tls.Certificate {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pair
}

func (w *world) pool(raw []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(raw)
	return pool
}

func bundleSize(raw []byte) int {
	n := 0
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

func TestEveryPairOfPeersAcceptsEachOtherThroughTwoRotations(t *testing.T) {
	w := newWorld(t, 0, 1, 3)
	signers, most, checked := map[string]bool{}, 0, ""
	for len(signers) < 3 || bundleSize(w.latest().Trusted) > 1 {
		if w.now.After(time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Fatalf("%d authorities have signed and %d are trusted after three years, want three and one", len(signers), bundleSize(w.latest().Trusted))
		}
		w.passDay()
		signers[string(w.latest().Signer.Certificate)] = true
		most = max(most, bundleSize(w.latest().Trusted))
		// Handshakes cost: on days on which nobody loaded anything, one in ten is enough.
		if w.state() == checked && w.now.YearDay()%10 != 0 {
			continue
		}
		checked = w.state()
		if err := w.check(29); err != nil {
			t.Fatalf("%s, %d authorities trusted: %v", w.now.Format(time.DateOnly), bundleSize(w.latest().Trusted), err)
		}
	}
	if most != 2 {
		t.Errorf("at most %d authorities were trusted at once, want 2", most)
	}
}

func TestAPlanComesToRest(t *testing.T) {
	w := newWorld(t, 0, 0)
	for range 3 {
		if w.plan() {
			t.Fatal("the plan changes something though nothing happened")
		}
	}
	// It says when it wants to look, and before that nothing changes.
	for w.now.Before(w.looks.Add(-day)) {
		w.now = w.now.Add(day)
		if w.plan() {
			t.Fatalf("something changed at %s, before the look at %s", w.now, w.looks)
		}
	}
	w.now = w.looks
	if !w.plan() {
		t.Error("nothing changed at the time of the look")
	}
}

func TestARequestedRotationWaitsForTheInstancesAndIsDoneOnce(t *testing.T) {
	w := newWorld(t, 0, 0)
	first := w.latest().Signer
	w.rotation = "2026-01"
	w.plan()
	if bundleSize(w.latest().Trusted) != 2 || !reflect.DeepEqual(w.latest().Signer, first) {
		t.Fatal("a rotation must begin with trust in both authorities and the old one signing")
	}
	w.now = w.now.Add(w.policy.QuickOverlap)
	w.plan()
	if !reflect.DeepEqual(w.latest().Signer, first) {
		t.Fatal("the new authority signs before the instances have said that they trust it")
	}
	if err := w.check(0); err != nil {
		t.Fatal(err)
	}
	w.loadAll()
	w.plan()
	if reflect.DeepEqual(w.latest().Signer, first) {
		t.Fatal("the new authority does not sign though every instance trusts it")
	}
	if err := w.check(0); err != nil {
		t.Fatalf("instances with leaves of the old authority: %v", err)
	}
	w.instances[0].load(w.latest())
	if err := w.check(0); err != nil {
		t.Fatalf("one instance with a new leaf, one with an old: %v", err)
	}
	w.plan()
	if bundleSize(w.latest().Trusted) != 2 {
		t.Fatal("the old authority is gone while an instance still uses its leaf")
	}
	w.loadAll()
	w.plan()
	if bundleSize(w.latest().Trusted) != 1 {
		t.Fatal("the old authority is still trusted though no leaf of it is left")
	}
	w.loadAll()
	if w.plan() {
		t.Error("the same request began another rotation")
	}
	if err := w.check(0); err != nil {
		t.Error(err)
	}
}

func (w *world) loadAll() {
	for _, i := range w.instances {
		i.load(w.latest())
	}
}

func TestASilentInstanceHoldsARotationBackButNotForEver(t *testing.T) {
	w := newWorld(t, 0, 0)
	w.instances[1].silent = true
	first := w.latest().Signer
	var handedOver time.Time
	for handedOver.IsZero() && w.now.Before(time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)) {
		w.passDay()
		if !reflect.DeepEqual(w.latest().Signer, first) {
			handedOver = w.now
		}
	}
	// Eleven twelfths of a year that began five minutes before the first of January.
	if want := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC); handedOver.Sub(want).Abs() > 2*day {
		t.Errorf("the new authority signs from %s, want about %s", handedOver, want)
	}
	if got := bundleSize(w.latest().Trusted); got != 2 {
		t.Errorf("%d authorities are trusted, want both while the silent instance may come back", got)
	}
}

func TestAnInstanceWithoutAPodIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 0)
	w.rotation = "now"
	w.plan()
	w.loadAll()
	w.now = w.now.Add(w.policy.QuickOverlap)
	current := w.latest()
	next, _, _, err := certificate.Plan(rand.Reader, w.now, w.policy, current, certificate.Wanted{
		UID: "uid-1", Namespace: "shop", Database: "orders", Rotation: "now", Instances: []string{"orders-1", "orders-2"},
		Reported: map[string]string{"orders-1": current.SecretsHash("orders-1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(next.Signer, current.Signer) {
		t.Error("the rotation waits for an instance that has no pod")
	}
}

func TestADatabaseThatLostItsAuthorityGetsAnotherWithoutAnOutage(t *testing.T) {
	w := newWorld(t, 0, 1, 2)
	lost := w.latest()
	members := map[string]map[string][]byte{}
	for name := range lost.Members {
		members[name] = lost.MemberData(name)
	}
	found, err := certificate.ParseMaterial(nil, lost.ServerData(), members)
	if err != nil {
		t.Fatal(err)
	}
	w.secrets = append(w.secrets, found)
	w.planFrom(found)
	for days := range 60 {
		// Nobody can sign for the old authority now: until an instance trusts the new one, it knows the manager's old leaf only.
		w.managerless = days < 4
		if err := w.check(29); err != nil {
			t.Fatalf("%s: %v", w.now.Format(time.DateOnly), err)
		}
		w.passDay()
	}
	if got := bundleSize(w.latest().Trusted); got != 1 {
		t.Errorf("%d authorities are trusted in the end, want the new one alone", got)
	}
	if w.latest().Signer.Empty() || reflect.DeepEqual(w.latest().Signer, lost.Signer) {
		t.Error("the new authority does not sign")
	}
}

// planFrom plans from a material that no Secret round trip can give.
func (w *world) planFrom(current certificate.Material) {
	w.t.Helper()
	wanted := certificate.Wanted{UID: "uid-1", Namespace: "shop", Database: "orders", Reported: map[string]string{}}
	for _, i := range w.instances {
		wanted.Instances = append(wanted.Instances, i.name)
		wanted.Reported[i.name] = i.report()
	}
	next, _, _, err := certificate.Plan(rand.Reader, w.now, w.policy, current, wanted)
	if err != nil {
		w.t.Fatal(err)
	}
	w.secrets = append(w.secrets, next)
	w.manager.trusted = next.Trusted
}
