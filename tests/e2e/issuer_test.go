package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// issuers of the test: one that signs itself makes an authority, which is that of the issuer that Databases name.
const issuers = `
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: self}, spec: {selfSigned: {}}}
---
{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: root}, spec: {isCA: true, commonName: Company root, secretName: root, issuerRef: {name: self}, privateKey: {algorithm: ECDSA, size: 256}}}
---
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: company}, spec: {ca: {secretName: root}}}
`

// TestIssuer has cert-manager sign the server's certificate: clients verify it against the issuer's authority alone, a renewal ends
// neither a pod nor a session, and without the issuer the Database's own authority serves again. cert-manager's controllers run as a
// process beside the control plane, of the version that tests/cluster pins.
func TestIssuer(t *testing.T) {
	namespace := shared.namespace(t)
	certManager(t, namespace)
	wish := orders(namespace, 3)
	wish.Spec.TLS.IssuerRef = &v1.IssuerReference{Name: "company", Kind: "Issuer"}
	d := shared.create(t, wish)
	t.Logf("ready after %s", d.awaitReady(readyLimit).Round(100*time.Millisecond))
	root := &corev1.Secret{}
	if err := shared.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "root"}, root); err != nil {
		t.Fatal(err)
	}
	if trusted := d.trusted(); !bytes.Equal(trusted, root.Data["tls.crt"]) {
		t.Errorf("ca.crt of the Secret is not the issuer's authority:\n%s", trusted)
	}
	stockPsql(t, namespace, "orders-app") // by the uri alone, which asks for verify-full

	w := d.ledger()
	before := d.served()
	session := d.session()
	began := time.Now()
	d.renew()
	took := eventually(t.Context(), t, 2*time.Minute, "every server to show the renewed certificate", func() error {
		for name, was := range before {
			leaf, err := d.leaf(name)
			if err != nil {
				return err
			}
			if leaf.Equal(was.leaf) {
				return fmt.Errorf("%s shows the old one", name)
			}
		}
		return nil
	})
	t.Logf("every server showed the renewed certificate after %s", took.Round(100*time.Millisecond))
	w.moves(10 * time.Second)
	if err := session.Ping(t.Context()); err != nil {
		t.Errorf("a session from before the renewal: %v", err)
	}
	for name, now := range d.served() {
		if now.pod != before[name].pod || now.restarts > 0 {
			t.Errorf("%s was restarted: pod %s then and %s now, %d restarts", name, before[name].pod, now.pod, now.restarts)
		}
	}
	account, _ := w.settle(began)
	if account.Hands() != 0 {
		t.Errorf("the writer changed %d times in a renewal", account.Hands())
	}

	d.change(func(s *v1.DatabaseSpec) { s.TLS.IssuerRef = nil })
	eventually(t.Context(), t, 2*time.Minute, "the own authority to serve, and the Certificate to go", func() error {
		c := d.certificate()
		if err := shared.Get(t.Context(), client.ObjectKeyFromObject(c), c); err == nil {
			return errors.New("the Certificate is still there")
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		return d.byOwn(root.Data["tls.crt"])
	})
	d.awaitReady(time.Minute)
	for name, now := range d.served() {
		if now.pod != before[name].pod || now.restarts > 0 {
			t.Errorf("%s was restarted on the way back: %d restarts", name, now.restarts)
		}
	}
}

// certManager runs cert-manager for a test, with the issuers in its namespace.
func certManager(t *testing.T, namespace string) {
	t.Helper()
	crds, err := cluster.CertManagerCRDs()
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(ctx context.Context, stdin string, args ...string) {
		t.Helper()
		if out, err := shared.cluster.Kubectl(ctx, stdin, args...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	all := string(bytes.Join(crds, []byte("\n---\n")))
	kubectl(t.Context(), all, "apply", "--server-side", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if out, err := shared.cluster.Kubectl(ctx, all, "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Errorf("remove the CRDs of cert-manager: %v\n%s", err, out)
		}
	})
	kubectl(t.Context(), "", "wait", "--for=condition=Established", "--timeout=60s", "crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io")
	cm, err := cluster.StartCertManager(context.Background(), t.TempDir(), shared.cluster.InsideKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cm.Stop()
		if t.Failed() {
			t.Log(cm.Log())
		}
	})
	kubectl(t.Context(), issuers, "--namespace="+namespace, "apply", "-f", "-")
	kubectl(t.Context(), "", "--namespace="+namespace, "wait", "--for=condition=Ready", "--timeout=60s", "issuer/company")
}

// certificate is the one that the operator asked for.
func (d *database) certificate() *unstructured.Unstructured {
	c := &unstructured.Unstructured{}
	c.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
	c.SetNamespace(d.key.Namespace)
	c.SetName(d.key.Name + "-issued")
	return c
}

// renew asks for a new certificate as cert-manager's command line does.
func (d *database) renew() {
	d.t.Helper()
	c := d.certificate()
	if err := d.Get(d.t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
		d.t.Fatal(err)
	}
	all, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
	all = append(all, map[string]any{
		"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by the test", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	})
	if err := unstructured.SetNestedSlice(c.Object, all, "status", "conditions"); err != nil {
		d.t.Fatal(err)
	}
	if err := d.Status().Update(d.t.Context(), c); err != nil {
		d.t.Fatalf("ask for a renewal: %v", err)
	}
}

// byOwn says that every instance shows a certificate that the Secret's ca.crt verifies, and that is not by the issuer's authority.
func (d *database) byOwn(issuer []byte) error {
	if bytes.Equal(d.trusted(), issuer) {
		return errors.New("ca.crt is still the issuer's authority")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(issuer)
	found, err := d.get(d.t.Context())
	if err != nil {
		return err
	}
	for _, i := range found.Status.Instances {
		leaf, err := d.leaf(i.Name) // verified against ca.crt in the handshake
		if err != nil {
			return fmt.Errorf("the certificate of %s: %w", i.Name, err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err == nil {
			return fmt.Errorf("%s still shows the issuer's certificate", i.Name)
		}
	}
	return nil
}
