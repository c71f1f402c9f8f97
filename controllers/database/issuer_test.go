package database

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

func TestWhatCertManagerSaysIsTold(t *testing.T) {
	ago := func(d time.Duration) string { return noon().Add(-d).Format(time.RFC3339) }
	type condition = map[string]any
	for sentence, row := range map[string]struct {
		made       string
		conditions []any
		want       Issuing
	}{
		"a Certificate of this moment is waited for": {
			made: ago(2 * time.Second),
			want: Issuing{Waiting: &Finding{v1.ReasonChanging, "waiting for cert-manager to issue Certificate orders-issued"}},
		},
		"an old Certificate that has just become unready is waited for": {
			made:       ago(24 * time.Hour),
			conditions: []any{condition{"type": "Ready", "status": "False", "lastTransitionTime": ago(time.Second), "message": "renewing"}},
			want:       Issuing{Waiting: &Finding{v1.ReasonChanging, "waiting for cert-manager to issue Certificate orders-issued"}},
		},
		"one that nobody looks at needs a person": {
			made: ago(time.Minute),
			want: Issuing{Trouble: &Finding{v1.ReasonIssuerNotReady, "spec.tls.issuerRef: cert-manager has not issued Certificate orders-issued; it says: nothing; see its CertificateRequests, and whether its controller runs"}},
		},
		"one that stays unready needs a person, who is told why": {
			made:       ago(time.Hour),
			conditions: []any{condition{"type": "Ready", "status": "False", "lastTransitionTime": ago(time.Minute), "message": "Secret does not exist"}},
			want:       Issuing{Trouble: &Finding{v1.ReasonIssuerNotReady, "spec.tls.issuerRef: cert-manager has not issued Certificate orders-issued; it says: Secret does not exist; see its CertificateRequests, and whether its controller runs"}},
		},
		"one that the issuer refused needs a person at once": {
			made:       ago(time.Second),
			conditions: []any{condition{"type": "Issuing", "status": "False", "reason": "Failed", "message": "The certificate request has failed: no such name"}},
			want:       Issuing{Trouble: &Finding{v1.ReasonIssuerNotReady, "spec.tls.issuerRef: cert-manager could not issue Certificate orders-issued: The certificate request has failed: no such name; it tries again by itself, an hour later or more"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": "orders-issued", "creationTimestamp": row.made}, "status": map[string]any{"conditions": row.conditions},
			}}
			if diff := cmp.Diff(row.want, awaited(c, noon())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnIssuedSecretIsUsedWhileItIsGood(t *testing.T) {
	const life = 90 * 24 * time.Hour
	authority, err := certificate.NewAuthority(rand.Reader, noon(), 4*life, "issuer", "company")
	if err != nil {
		t.Fatal(err)
	}
	d := empty(1).Database
	pair, err := authority.Issue(rand.Reader, noon(), life, certificate.ServerLeaf("u1", d.Namespace, d.Name))
	if err != nil {
		t.Fatal(err)
	}
	by := func(kind, name string) map[string]string {
		return map[string]string{"cert-manager.io/issuer-kind": kind, "cert-manager.io/issuer-name": name}
	}
	type told struct {
		Problem        string
		Used, Unissued bool
		Loose          string
	}
	for sentence, row := range map[string]struct {
		after  time.Duration
		notes  map[string]string
		labels map[string]string
		owners []metav1.OwnerReference
		drop   string
		want   told
	}{
		"good":                         {notes: by("Issuer", "ca"), want: told{Used: true}},
		"without cert-manager's notes": {want: told{Used: true}},
		"by an issuer of another name": {notes: by("Issuer", "old"), want: told{Used: true, Unissued: true}},
		"by an issuer of another kind": {notes: by("ClusterIssuer", "ca"), want: told{Used: true, Unissued: true}},
		"two thirds over":              {after: life * 7 / 10, want: told{Used: true}},
		"not renewed in time":          {after: life * 4 / 5, want: told{Used: true, Unissued: true}},
		"ours to take along":           {labels: map[string]string{v1.LabelDatabase: "orders"}, want: told{Used: true, Loose: "s1"}},
		"of another Database by label": {labels: map[string]string{v1.LabelDatabase: "billing"}, want: told{Used: true}},
		"owned already":                {labels: map[string]string{v1.LabelDatabase: "orders"}, owners: []metav1.OwnerReference{{UID: "c1"}}, want: told{Used: true}},
		"without the issuer's authority": {drop: "ca.crt", want: told{
			Unissued: true,
			Problem:  "IssuerNotReady: spec.tls.issuerRef: the issuer puts no ca.crt into Secret orders-issued, so clients could not verify the server; name an issuer that does, as those of the kinds CA and Vault do",
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := empty(1).Database
			d.Spec.TLS.IssuerRef = &v1.IssuerReference{Name: "ca"}
			data := map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key, "ca.crt": authority.Pair().Certificate}
			delete(data, row.drop)
			s := interpret(d, rawSecrets{foreign: rawSecret{
				found: true, uid: "s1", notes: row.notes, labels: row.labels, owners: row.owners, data: data,
			}}, noon().Add(row.after))
			got := told{Problem: s.Problem.String(), Used: s.Foreign != nil, Unissued: s.Unissued, Loose: string(s.Loose)}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
