package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const host = "plimsoll-webhook.plimsoll-system.svc"

// memory is a store, and an API server that trusts what was published last.
type memory struct {
	data      map[string][]byte
	version   int
	published []byte
	broken    error
	races     int
}

func (s *memory) load(context.Context) (map[string][]byte, string, error) {
	if s.data == nil {
		return nil, "", nil
	}
	return maps.Clone(s.data), strconv.Itoa(s.version), nil
}

func (s *memory) save(_ context.Context, data map[string][]byte, version string) error {
	if s.races > 0 {
		s.races--
		return errRaced
	}
	if s.data != nil && version != strconv.Itoa(s.version) {
		return errRaced
	}
	s.data, s.version = maps.Clone(data), s.version+1
	return nil
}

func (s *memory) publish(_ context.Context, bundle []byte) error {
	if s.broken != nil {
		return s.broken
	}
	if len(bundle) > 0 {
		s.published = bundle
	}
	return nil
}

// trusts says why an API server that trusts a bundle would not accept what a keeper serves now.
func trusts(bundle []byte, k *Keeper, now time.Time) error {
	served, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	_, err = served.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: host})
	return err
}

func keeper(t *testing.T, s store, clock *clocktesting.FakeClock) *Keeper {
	t.Helper()
	k, err := newKeeper(s, []string{host}, clock, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestTwoReplicasAreTrustedForThreeYears runs two keepers that look at different moments, and an API server that hears of a bundle
// late. At every moment, it must trust what either serves.
func TestTwoReplicasAreTrustedForThreeYears(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := &memory{}
	a, b := keeper(t, s, clock), keeper(t, s, clock)
	for _, k := range []*Keeper{a, b} {
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// An API server hears of a bundle five minutes after it was published.
	type told struct {
		at     time.Time
		bundle []byte
	}
	history := []told{{clock.Now().Add(-time.Hour), s.published}}
	heard := func() []byte {
		for i := len(history) - 1; ; i-- {
			if i == 0 || clock.Since(history[i].at) >= 5*time.Minute {
				return history[i].bundle
			}
		}
	}
	leaves := map[string]bool{}
	end := clock.Now().AddDate(3, 0, 0)
	for step := 0; clock.Now().Before(end); step++ {
		// Quick steps around a renewal, large ones between.
		pause := 72 * time.Hour
		if parse(s.data).next != nil {
			pause = 2 * time.Minute
		}
		clock.Step(pause / 2)
		if err := a.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			if last := history[len(history)-1]; !bytes.Equal(last.bundle, s.published) {
				history = append(history, told{clock.Now(), s.published})
			}
			for name, k := range map[string]*Keeper{"a": a, "b": b} {
				if err := trusts(heard(), k, clock.Now()); err != nil {
					t.Fatalf("%s, %s, replica %s: %v", clock.Now(), when, name, err)
				}
			}
		}
		check("after a looked")
		clock.Step(pause / 2)
		if err := b.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("after b looked")
		served, err := a.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaves[served.Leaf.SerialNumber.String()] = true
		if n := len(parse(s.data).trusted); n > 3 {
			t.Fatalf("%d authorities are trusted", n)
		}
	}
	// 90 days, renewed after 60: 1095 / 60.
	if len(leaves) < 17 || len(leaves) > 20 {
		t.Errorf("%d certificates in three years, want about 18", len(leaves))
	}
}

func TestANewPairWaitsUntilItIsTrusted(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := &memory{}
	k := keeper(t, s, clock)
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, _ := k.GetCertificate(nil)
	heard := s.published
	s.broken = errors.New("no right to patch")
	for clock.Now().Before(first.Leaf.NotAfter.Add(-time.Minute)) {
		clock.Step(12 * time.Hour)
		if clock.Now().After(first.Leaf.NotAfter.Add(-time.Minute)) {
			break
		}
		err := k.look(t.Context())
		if !errors.Is(err, s.broken) {
			t.Fatalf("got %v, want what is wrong with publishing", err)
		}
		if err := trusts(heard, k, clock.Now()); err != nil {
			t.Fatalf("%s: an untrusted certificate is served: %v", clock.Now(), err)
		}
	}
	s.broken = nil
	for range 12 {
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Minute)
	}
	now, _ := k.GetCertificate(nil)
	if now.Leaf.Equal(first.Leaf) {
		t.Error("the new pair is not served once it could be published")
	}
}

func TestWhatIsBrokenIsMadeAgain(t *testing.T) {
	for sentence, spoil := range map[string]func(s *memory){
		"the Secret is deleted":          func(s *memory) { s.data = nil },
		"the key is cut":                 func(s *memory) { s.data[keyPrivate] = s.data[keyPrivate][:40] },
		"the certificate is another's":   func(s *memory) { p, _ := newPair(time.Now(), []string{host}); s.data[keyLeaf], _, _ = p.encode() },
		"the authorities are gone":       func(s *memory) { delete(s.data, keyTrusted) },
		"the authorities are words":      func(s *memory) { s.data[keyTrusted] = []byte("none") },
		"the next pair is half a pair":   func(s *memory) { s.data[keyNextLeaf] = s.data[keyLeaf] },
		"there is a key that nobody has": func(s *memory) { s.data["tls.p12"] = []byte("x") },
	} {
		t.Run(sentence, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			s := &memory{}
			k := keeper(t, s, clock)
			for range 2 {
				if err := k.look(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := trusts(s.published, k, clock.Now()); err != nil {
					t.Fatal(err)
				}
				spoil(s)
				clock.Step(every)
			}
			if err := k.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			other := keeper(t, s, clock)
			if err := other.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(trusts(s.published, k, clock.Now()), trusts(s.published, other, clock.Now())); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnotherServiceNameIsANewPair(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	s := &memory{}
	old, err := newKeeper(s, []string{"plimsoll.elsewhere.svc"}, clock, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := old.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := keeper(t, s, clock)
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := trusts(s.published, k, clock.Now()); err != nil {
		t.Error(err)
	}
}

func TestANameThatNoCertificateBearsIsRefused(t *testing.T) {
	for _, names := range [][]string{nil, {host, "127.0.0.1"}, {""}, {"a b"}, {"::1"}} {
		if _, err := newKeeper(&memory{}, names, clocktesting.NewFakeClock(time.Now()), prometheus.NewRegistry()); err == nil {
			t.Errorf("taken: %q", names)
		}
	}
}

func TestStartRunsALostRaceAgainAndEndsWithItsContext(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	s := &memory{races: 2}
	k := keeper(t, s, clock)
	if err := k.Check(nil); err == nil {
		t.Error("ready without a certificate")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Start(ctx) }()
	for !clock.HasWaiters() || k.Check(nil) != nil {
		time.Sleep(time.Millisecond) // until Start, in its own goroutine, has looked
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !bytes.Equal(s.published, parse(s.data).bundle()) {
		t.Error("what is published is not what is stored")
	}
}

func FuzzParse(f *testing.F) {
	p, err := newPair(time.Now(), []string{host})
	if err != nil {
		f.Fatal(err)
	}
	leaf, key, err := p.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(leaf, key, encodeCertificates(p.authority))
	f.Add([]byte{}, []byte{}, []byte{})
	f.Add(key, leaf, leaf)
	f.Fuzz(func(t *testing.T, leaf, key, trusted []byte) {
		m := parse(map[string][]byte{keyLeaf: leaf, keyPrivate: key, keyTrusted: trusted, keyNextLeaf: leaf, keyNextKey: key})
		if m.current != nil {
			if _, err := tls.X509KeyPair(leaf, key); err != nil {
				t.Fatal("a pair was read that is none")
			}
		}
		if len(m.trusted) > maxTrusted {
			t.Fatal("too many authorities")
		}
	})
}
