package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestCertificates changes the authority and every certificate while clients write: in the end the new authority alone is trusted,
// every server shows a certificate of it, and neither a pod nor a session has ended on the way.
func TestCertificates(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 3))
	d.awaitReady(readyLimit)
	w := d.ledger()
	before := d.served()
	old := d.trusted()
	session := d.session()

	began := time.Now()
	out, err := d.plimsoll("rotate", "orders")
	if err != nil {
		t.Fatalf("rotate: %v\n%s", err, out)
	}
	t.Logf("rotated after %s:\n%s", time.Since(began).Round(time.Second), out)
	d.awaitReady(time.Minute)
	w.moves(10 * time.Second)
	if err := session.Ping(t.Context()); err != nil {
		t.Errorf("a session from before the rotation: %v", err)
	}

	trusted := d.trusted()
	block, rest := pem.Decode(trusted)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 || bytes.Equal(trusted, old) {
		t.Fatalf("ca.crt is not one new authority alone:\n%s", trusted)
	}
	after := d.served() // verified against ca.crt in the handshake
	for name, was := range before {
		now := after[name]
		if now.leaf.Equal(was.leaf) {
			t.Errorf("%s still shows the certificate from before", name)
		}
		if roots := x509.NewCertPool(); roots.AppendCertsFromPEM(old) {
			if _, err := now.leaf.Verify(x509.VerifyOptions{Roots: roots}); err == nil {
				t.Errorf("the certificate of %s is by the old authority", name)
			}
		}
		if now.pod != was.pod || now.restarts > 0 {
			t.Errorf("%s was restarted: pod %s then and %s now, %d restarts", name, was.pod, now.pod, now.restarts)
		}
	}
	account, _ := w.settle(began)
	if account.Hands() != 0 {
		t.Errorf("the writer changed %d times in a rotation of certificates", account.Hands())
	}
}

// shown is an instance's pod and the certificate that its server shows.
type shown struct {
	leaf     *x509.Certificate
	pod      string
	restarts int32
}

// served asks each instance for its server's certificate, which must be verified by the Secret's ca.crt.
func (d *database) served() map[string]shown {
	d.t.Helper()
	pods := &corev1.PodList{}
	if err := d.List(d.t.Context(), pods, client.InNamespace(d.key.Namespace), client.HasLabels{v1.LabelDatabase}); err != nil {
		d.t.Fatal(err)
	}
	found := map[string]shown{}
	for _, pod := range pods.Items {
		leaf, err := d.leaf(pod.Name)
		if err != nil {
			d.t.Fatalf("the certificate of %s: %v", pod.Name, err)
		}
		s := shown{leaf: leaf, pod: string(pod.UID)}
		for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			s.restarts += c.RestartCount
		}
		found[pod.Name] = s
	}
	return found
}

func (d *database) leaf(instance string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
	defer cancel()
	config, err := d.instance(ctx, instance)
	if err != nil {
		return nil, err
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	session, ok := c.PgConn().Conn().(*tls.Conn)
	if !ok {
		return nil, errors.New("the session is not encrypted")
	}
	peers := session.ConnectionState().PeerCertificates
	if len(peers) == 0 {
		return nil, fmt.Errorf("%s shows no certificate", instance)
	}
	return peers[0], nil
}

func (d *database) trusted() []byte {
	d.t.Helper()
	s, err := d.secret(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return s.Data["ca.crt"]
}
