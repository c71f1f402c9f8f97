package database

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// rotating is a settled Database of two with real certificates, asked for a rotation.
type rotating struct {
	*scene
	t *testing.T
}

func newRotating(t *testing.T) rotating {
	t.Helper()
	r := rotating{settled(2), t}
	r.pass("", noon().Add(-time.Hour))
	r.load("orders-1", "orders-2")
	r.annotate(v1.AnnotationRotate, request1("c", "", noon().Add(time.Minute)))
	return r
}

// pass plans the certificates as apply does.
func (r rotating) pass(token string, now time.Time) {
	r.t.Helper()
	d := draft{seen: r.Seen}
	wanted := d.wantedCertificates()
	wanted.Rotation = token
	next, _, _, err := certificate.Plan(rand.Reader, now, certificate.DefaultPolicy(), r.Secrets.Material, *wanted)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Secrets.Material = next
}

// load lets agents use what the Secrets hold.
func (r rotating) load(names ...string) {
	for _, name := range names {
		r.report(name, func(report *engine.Report) { report.SecretsHash = r.Secrets.Material.SecretsHash(name) })
	}
}

func TestRotationIsToldStepByStep(t *testing.T) {
	signs := noon().Add(certificate.DefaultPolicy().QuickOverlap)
	due := func(r rotating) { r.pass("c", noon()); r.load("orders-1", "orders-2") }
	signed := func(r rotating) { due(r); r.pass("c", signs) }
	dropped := func(r rotating) { signed(r); r.load("orders-1", "orders-2"); r.pass("c", signs) }
	for sentence, row := range map[string]struct {
		scene func(rotating)
		at    time.Time
		asks  string
		want  gist
	}{
		"one that was just asked for begins": {
			scene: func(rotating) {}, at: noon(), asks: "c",
			want: gist{
				Working: "Changing: changing the certificates as requested: making a new authority", Answers: []string{"rotate c: Running, making a new authority"},
			},
		},
		"the new authority is trusted before it signs": {
			scene: due, at: noon(), asks: "c",
			want: gist{
				Working: "Changing: changing the certificates as requested: 1 of 3, the new authority is trusted beside the old one, and signs from 2026-03-01T12:10:30Z on",
				Answers: []string{"rotate c: Running, 1 of 3, the new authority is trusted beside the old one, and signs from 2026-03-01T12:10:30Z on"},
			},
		},
		"an instance that does not trust it yet is named": {
			scene: func(r rotating) { r.pass("c", noon()); r.load("orders-1") }, at: signs, asks: "c",
			want: gist{
				Working: "Changing: changing the certificates as requested: 1 of 3, the new authority is trusted beside the old one, and signs once every instance trusts it: waiting for orders-2",
				Answers: []string{"rotate c: Running, 1 of 3, the new authority is trusted beside the old one, and signs once every instance trusts it: waiting for orders-2"},
			},
		},
		"an instance that is silent is waited for": {
			scene: func(r rotating) { signed(r); r.load("orders-1"); r.silence("orders-2") }, at: signs, asks: "c",
			want: gist{
				Working: "Changing: changing the certificates as requested: 2 of 3, the new authority has issued every certificate anew, and the old one is trusted until every instance uses its new one: waiting for orders-2",
				Answers: []string{"rotate c: Running, 2 of 3, the new authority has issued every certificate anew, and the old one is trusted until every instance uses its new one: waiting for orders-2"},
			},
		},
		"the old authority goes last": {
			scene: func(r rotating) { dropped(r); r.load("orders-2") }, at: signs, asks: "c",
			want: gist{
				Working: "Changing: changing the certificates as requested: 3 of 3, the old authority is trusted no more: waiting for orders-1",
				Answers: []string{"rotate c: Running, 3 of 3, the old authority is trusted no more: waiting for orders-1"},
			},
		},
		"it is done once every instance has let the old one go, though it took longer than the expiry": {
			scene: func(r rotating) { dropped(r); r.load("orders-1", "orders-2") }, at: signs, asks: "c",
			want: gist{Answers: []string{"rotate c: Done, a new authority issued every certificate, and the old one is trusted no more"}},
		},
		"one that was not begun in time is told so, and not begun": {
			scene: func(rotating) {}, at: noon().Add(time.Hour), asks: "",
			want: gist{Answers: []string{"rotate c: Expired, it was not begun in time"}},
		},
		"one with a target is refused": {
			scene: func(r rotating) {
				r.annotate(v1.AnnotationRotate, request1("c", "orders-1", noon().Add(time.Minute)))
			},
			at: noon(), asks: "",
			want: gist{Answers: []string{"rotate c: Failed, a rotation has no target: it changes the certificates of all instances"}},
		},
		"one that was answered is not done again": {
			scene: func(r rotating) {
				r.Database.Status.Requests = []v1.RequestStatus{{ID: "c", Kind: kindRotate, State: v1.RequestDone}}
			},
			at: noon(), asks: "",
		},
		"a hibernated Database gets its new certificates, too": {
			scene: func(r rotating) {
				r.Database.Spec.Maintenance.Hibernated = true
				r.Pods, r.Heard = map[string]*corev1.Pod{}, map[string]Heard{}
			},
			at: noon(), asks: "c",
			want: gist{
				Bootstrap: "", Working: "Changing: changing the certificates as requested: making a new authority",
				Answers: []string{"rotate c: Running, making a new authority"},
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newRotating(t)
			row.scene(r)
			plan := decide(r.Seen, surroundings(), row.at)
			got := gistOf(r.Seen, plan)
			got.Aims = nil // the restart's and the configuration's business
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if plan.Certificates.Rotation != row.asks {
				t.Errorf("the certificates' plan is asked for rotation %q, want %q", plan.Certificates.Rotation, row.asks)
			}
		})
	}
}

// TestRotationOnAPIServer changes the authority of a running Database by one annotation: every leaf is by the new authority, the old
// one is trusted nowhere, and no pod was replaced.
func TestRotationOnAPIServer(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three instances", running)
	old := w.secret("orders-app").Data["ca.crt"]
	before := map[string]types.UID{}
	for _, name := range []string{"orders-1", "orders-2", "orders-3"} {
		before[name] = w.pod(name).UID
	}
	w.annotate("orders", v1.AnnotationRotate, request1("c1", "", time.Now().Add(time.Minute)))
	var said []string
	w.until("orders", "the rotation", func(d *v1.Database) bool {
		i := slices.IndexFunc(d.Status.Requests, func(r v1.RequestStatus) bool { return r.ID == "c1" })
		if i < 0 {
			return false
		}
		if text := d.Status.Requests[i].Message; !slices.Contains(said, text) {
			said = append(said, text)
		}
		return d.Status.Requests[i].State == v1.RequestDone && running(d)
	})
	t.Logf("said: %q", said)
	trusted := w.secret("orders-app").Data["ca.crt"]
	if string(trusted) == string(old) || count(trusted) != 1 {
		t.Fatalf("ca.crt holds %d authorities, or the old one", count(trusted))
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	for _, name := range []string{"orders-server", "orders-1-member", "orders-2-member", "orders-3-member"} {
		s := w.secret(name)
		if string(s.Data["ca.crt"]) != string(trusted) {
			t.Errorf("%s trusts another authority", name)
		}
		block, _ := pem.Decode(s.Data["tls.crt"])
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		}
		if err != nil {
			t.Errorf("the certificate of %s: %v", name, err)
		}
	}
	for name, uid := range before {
		if w.pod(name).UID != uid {
			t.Errorf("the pod of %s was replaced", name)
		}
		if got := w.fleet.of(name).restarts; len(got) > 0 {
			t.Errorf("%s was restarted by %v", name, got)
		}
	}
	w.annotate("orders", v1.AnnotationRotate, request1("c2", "orders-1", time.Now().Add(time.Minute)))
	w.until("orders", "a refusal", func(d *v1.Database) bool {
		return slices.ContainsFunc(d.Status.Requests, func(r v1.RequestStatus) bool { return r.ID == "c2" && r.State == v1.RequestFailed })
	})
}

func count(bundle []byte) int {
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}
