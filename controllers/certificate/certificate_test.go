package certificate_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

func decode(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("no PEM in %q", raw)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func authority(t *testing.T, now time.Time, life time.Duration) certificate.Authority {
	t.Helper()
	a, err := certificate.NewAuthority(rand.Reader, now, life, "uid-1", "orders")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestOpenSSLAcceptsEveryLeafForItsPurposeOnly lets another implementation than Go's judge the certificates: PostgreSQL and most
// clients use it.
func TestOpenSSLAcceptsEveryLeafForItsPurposeOnly(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir, now := t.TempDir(), time.Now()
	old, ours := authority(t, now, 365*day), authority(t, now, 365*day)
	bundle := filepath.Join(dir, "ca.crt")
	write(t, bundle, append(bytes.Clone(old.Pair().Certificate), ours.Pair().Certificate...))
	for name, row := range map[string]struct {
		leaf           certificate.Leaf
		server, client bool
		host           string
	}{
		"server":  {certificate.ServerLeaf("uid-1", "shop", "orders"), true, false, "orders-rw.shop.svc"},
		"member":  {certificate.MemberLeaf("uid-1", "shop", "orders", "orders-1"), true, true, "orders-1.orders-members.shop.svc"},
		"manager": {certificate.ManagerLeaf("uid-1"), false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := ours.Issue(rand.Reader, now, 90*day, row.leaf)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name+".crt")
			write(t, path, pair.Certificate)
			for purpose, want := range map[string]bool{"sslserver": row.server, "sslclient": row.client} {
				args := []string{"verify", "-x509_strict", "-purpose", purpose, "-CAfile", bundle}
				if row.host != "" {
					args = append(args, "-verify_hostname", row.host)
				}
				out, err := exec.CommandContext(t.Context(), openssl, append(args, path)...).CombinedOutput()
				if (err == nil) != want {
					t.Errorf("%s: accepted %v, want %v: %s", purpose, err == nil, want, out)
				}
			}
		})
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLeavesSayWhoTheyAre(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := authority(t, now, 365*day)
	pair, err := a.Issue(rand.Reader, now, 90*day, certificate.MemberLeaf("uid-1", "shop", "orders", "orders-1"))
	if err != nil {
		t.Fatal(err)
	}
	c := decode(t, pair.Certificate)
	got := []any{c.Subject.CommonName, c.Subject.Organization, c.DNSNames, c.IsCA, c.NotBefore, c.NotAfter}
	want := []any{
		"plimsoll-member:orders-1",
		[]string{"uid-1"},
		[]string{"orders-1.orders-members.shop.svc", "orders-1"},
		false,
		now.Add(-5 * time.Minute), now.Add(90 * day),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("member's leaf (-want +got):\n%s", diff)
	}
	other, err := a.Issue(rand.Reader, now, 90*day, certificate.ManagerLeaf("uid-1"))
	if err != nil {
		t.Fatal(err)
	}
	if m := decode(t, other.Certificate); m.SerialNumber.Cmp(c.SerialNumber) == 0 || m.SerialNumber.BitLen() != 127 {
		t.Errorf("serial numbers %x and %x, want two of 127 bits", c.SerialNumber, m.SerialNumber)
	}
}

func TestALeafNeverOutlivesItsAuthority(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pair, err := authority(t, now, 10*day).Issue(rand.Reader, now, 90*day, certificate.ManagerLeaf("u"))
	if err != nil {
		t.Fatal(err)
	}
	if got := decode(t, pair.Certificate).NotAfter; !got.Equal(now.Add(10 * day)) {
		t.Errorf("the leaf ends at %s, want with its authority", got)
	}
}

func TestAnAuthorityOfTwoHalvesIsRefused(t *testing.T) {
	now := time.Now()
	a, b := authority(t, now, day), authority(t, now, day)
	leaf, err := a.Issue(rand.Reader, now, day, certificate.ManagerLeaf("u"))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]certificate.Pair{
		"key of another": {Certificate: a.Pair().Certificate, Key: b.Pair().Key},
		"leaf":           leaf,
		"no key":         {Certificate: a.Pair().Certificate},
		"no certificate": {Key: a.Pair().Key},
		"rubbish":        {Certificate: []byte("x"), Key: []byte("y")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := certificate.ParseAuthority(pair); err == nil {
				t.Error("it was taken")
			}
			data := map[string][]byte{"signer.crt": pair.Certificate, "signer.key": pair.Key, "ca.crt": a.Pair().Certificate}
			_, err := certificate.ParseMaterial(data, nil, nil)
			if err == nil || !strings.Contains(err.Error(), "restore the Secret of the authority") {
				t.Errorf("the Secret gives %v, want an error that says what to do", err)
			}
		})
	}
}

func TestABrokenOrForeignLeafIsIssuedAgain(t *testing.T) {
	w := newWorld(t, 0, 0)
	good := w.latest()
	stranger := authority(t, w.now, 365*day)
	foreign, err := stranger.Issue(rand.Reader, w.now, 90*day, certificate.MemberLeaf("uid-1", "shop", "orders", "orders-1"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := certificate.ParseAuthority(good.Signer)
	if err != nil {
		t.Fatal(err)
	}
	otherDatabase, err := signer.Issue(rand.Reader, w.now, 90*day, certificate.MemberLeaf("uid-2", "shop", "orders", "orders-1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, leaf := range map[string]certificate.Pair{
		"gone":                         {},
		"rubbish":                      {Certificate: []byte("x"), Key: []byte("y")},
		"of another authority":         foreign,
		"for another UID":              otherDatabase,
		"with the key of another leaf": {Certificate: good.Members["orders-1"].Certificate, Key: good.Members["orders-2"].Key},
		"another instance's":           good.Members["orders-2"],
	} {
		t.Run(name, func(t *testing.T) {
			broken := good
			broken.Members = map[string]certificate.Pair{"orders-1": leaf, "orders-2": good.Members["orders-2"]}
			w.secrets = append(w.secrets, broken)
			if !w.plan() {
				t.Fatal("nothing changed")
			}
			w.loadAll()
			if err := w.check(0); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(good.Members["orders-2"], w.latest().Members["orders-2"]); diff != "" {
				t.Error("the good leaf of the other instance was issued again")
			}
		})
	}
}

func TestAUsersServerCertificateIsUsedAndTheMembersKeepOurs(t *testing.T) {
	w := newWorld(t, 0, 0)
	theirs := authority(t, w.now, 365*day)
	leaf, err := theirs.Issue(rand.Reader, w.now, 300*day, certificate.ServerLeaf("x", "shop", "orders"))
	if err != nil {
		t.Fatal(err)
	}
	w.foreign = &certificate.Foreign{Pair: leaf, Trusted: theirs.Pair().Certificate}
	w.plan()
	w.loadAll()
	if err := w.check(0); err != nil {
		t.Error(err)
	}
	if w.plan() {
		t.Error("the plan does not come to rest")
	}
	ends := w.latest().Expiries()
	if got, want := ends["server"], w.now.Add(300*day); !got.Equal(want) {
		t.Errorf("the server's certificate ends at %s, want %s", got, want)
	}
	w.foreign = nil
	w.plan()
	w.loadAll()
	if err := w.check(0); err != nil {
		t.Errorf("back to our own: %v", err)
	}
}

func TestCheckServerSaysWhatToDo(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a, b := authority(t, now, 365*day), authority(t, now, 365*day)
	issue := func(namespace string) certificate.Pair {
		pair, err := a.Issue(rand.Reader, now, 90*day, certificate.ServerLeaf("u", namespace, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	good, trusted := issue("shop"), a.Pair().Certificate
	for name, row := range map[string]struct {
		at   time.Time
		give certificate.Foreign
		want string
	}{
		"a good one":                {now, certificate.Foreign{Pair: good, Trusted: trusted}, ""},
		"no key":                    {now, certificate.Foreign{Pair: certificate.Pair{Certificate: good.Certificate}, Trusted: trusted}, "key tls.key is missing or empty; add it"},
		"no authority":              {now, certificate.Foreign{Pair: good}, "key ca.crt is missing or empty; add it"},
		"another's key":             {now, certificate.Foreign{Pair: certificate.Pair{Certificate: good.Certificate, Key: b.Pair().Key}, Trusted: trusted}, "cannot be used together"},
		"another authority":         {now, certificate.Foreign{Pair: good, Trusted: b.Pair().Certificate}, "does not verify with ca.crt"},
		"an authority of rubbish":   {now, certificate.Foreign{Pair: good, Trusted: []byte("x")}, "ca.crt holds no PEM certificate"},
		"one that has ended":        {now.Add(91 * day), certificate.Foreign{Pair: good, Trusted: trusted}, "ended at 2026-04-01T00:00:00Z; renew it"},
		"one that has not begun":    {now.Add(-day), certificate.Foreign{Pair: good, Trusted: trusted}, "begins only at"},
		"one for another namespace": {now, certificate.Foreign{Pair: issue("other"), Trusted: trusted}, "is not for orders-rw.shop.svc"},
	} {
		t.Run(name, func(t *testing.T) {
			err := certificate.CheckServer(row.at, row.give, "orders-rw.shop.svc")
			if (err == nil) != (row.want == "") || (err != nil && !strings.Contains(err.Error(), row.want)) {
				t.Errorf("error is %v, want %q", err, row.want)
			}
		})
	}
}

// FuzzParseMaterial: whatever people put into a Secret, reading it does not panic, and what is read can be planned from.
func FuzzParseMaterial(f *testing.F) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a, err := certificate.NewAuthority(rand.Reader, now, 365*day, "uid-1", "orders")
	if err != nil {
		f.Fatal(err)
	}
	p := a.Pair()
	f.Add(p.Certificate, p.Key, p.Certificate, []byte("2026-01-01T00:00:00Z"))
	f.Add([]byte("x"), []byte(nil), []byte("-----BEGIN CERTIFICATE-----"), []byte("never"))
	f.Fuzz(func(t *testing.T, crt, key, trusted, when []byte) {
		data := map[string][]byte{"signer.crt": crt, "signer.key": key, "ca.crt": trusted, "next-signs": when}
		leaf := map[string][]byte{"tls.crt": crt, "tls.key": key, "ca.crt": trusted}
		m, err := certificate.ParseMaterial(data, leaf, map[string]map[string][]byte{"orders-1": leaf})
		if err != nil {
			return
		}
		wanted := certificate.Wanted{UID: "uid-1", Namespace: "shop", Database: "orders", Instances: []string{"orders-1"}}
		if _, _, _, err := certificate.Plan(rand.Reader, now, certificate.DefaultPolicy(), m, wanted); err != nil {
			t.Errorf("what was read cannot be planned from: %v", err)
		}
	})
}

func TestMaterialHoldsWhatSecretsSayAlikeOnce(t *testing.T) {
	m := certificate.Material{
		Trusted: []byte("one"), ServerTrusted: []byte("one"), Signer: certificate.Pair{Certificate: []byte("one"), Key: []byte("k")},
		Next: certificate.Pair{Certificate: []byte("two"), Key: []byte("l")},
	}
	shared := m.Shared()
	if diff := cmp.Diff(m, shared); diff != "" {
		t.Errorf("it says something else (-before +after):\n%s", diff)
	}
	if &shared.Signer.Certificate[0] != &shared.Trusted[0] || &shared.ServerTrusted[0] != &shared.Trusted[0] {
		t.Error("the bundle is held more than once")
	}
}
