package install

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// TestCertManagerKeepsTheWebhooksCertificate installs config/default-certmanager on an API server where cert-manager's controllers run,
// and looks for the authority where the API server takes it from. The webhooks themselves do not run here.
func TestCertManagerKeepsTheWebhooksCertificate(t *testing.T) {
	k, _ := apiServer(t)
	must := func(stdin []byte, args ...string) string {
		t.Helper()
		out, err := k.Run(t.Context(), stdin, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	crds, err := cluster.CertManagerCRDs()
	if err != nil {
		t.Fatal(err)
	}
	must(bytes.Join(crds, []byte("\n---\n")), "apply", "--server-side", "-f", "-")
	if err := k.Established(t.Context(), "certificates.cert-manager.io", "issuers.cert-manager.io"); err != nil {
		t.Fatal(err)
	}
	cm, err := cluster.StartCertManager(t.Context(), t.TempDir(), k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cm.Stop()
		if t.Failed() {
			t.Log(cm.Log())
		}
	})
	manifests := []byte(must(nil, "kustomize", root+"/config/default-certmanager"))
	must(manifests, "apply", "--server-side", "-f", "-")

	t.Run("the manager's pod that mounts it passes the restricted standard", func(t *testing.T) {
		must(managerPod(t, manifests), "create", "--dry-run=server", "-f", "-")
	})
	t.Run("the manager may not write the registrations", func(t *testing.T) {
		out, _ := k.Run(t.Context(), nil, "--as", manager, "auth", "can-i", "patch", "validatingwebhookconfigurations/plimsoll-validating")
		if strings.TrimSpace(out) != "no" {
			t.Errorf("the API server says %q", out)
		}
	})

	secret := func(key string) []byte {
		raw := must(nil, "-n", Namespace, "get", "secret", "plimsoll-webhook-certificate", "-o", `jsonpath={.data.`+strings.ReplaceAll(key, ".", `\.`)+`}`)
		data, err := base64.StdEncoding.DecodeString(raw)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var first []byte
	t.Run("each registration trusts the authority of the certificate that is mounted", func(t *testing.T) {
		must(nil, "-n", Namespace, "wait", "--for=condition=Ready", "--timeout=60s", "certificate/plimsoll-webhook")
		first = secret("tls.crt")
		trusted := secret("ca.crt")
		verifies(t, first, trusted)
		injected(t, k, trusted)
	})
	t.Run("a renewal changes the certificate and not the authority", func(t *testing.T) {
		trusted := secret("ca.crt")
		must(nil, "-n", Namespace, "delete", "secret", "plimsoll-webhook-certificate")
		await(t, "a new certificate", func() error {
			out, err := k.Run(t.Context(), nil, "-n", Namespace, "get", "secret", "plimsoll-webhook-certificate", "--ignore-not-found", "-o", `jsonpath={.data.tls\.crt}`)
			if err != nil || out == "" {
				return fmt.Errorf("no Secret yet: %w", err)
			}
			return nil
		})
		second := secret("tls.crt")
		if bytes.Equal(first, second) {
			t.Fatal("the certificate is the same")
		}
		if now := secret("ca.crt"); !bytes.Equal(trusted, now) {
			t.Errorf("the authority changed with the certificate:\n%s\nthen\n%s", trusted, now)
		}
		verifies(t, second, trusted)
		injected(t, k, trusted)
	})
}

func verifies(t *testing.T, certificate, trusted []byte) {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatalf("no certificate in %q", certificate)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "plimsoll-webhook." + Namespace + ".svc"}); err != nil {
		t.Error(err)
	}
}

// injected waits until every registration trusts exactly the authority.
func injected(t *testing.T, k Kubectl, trusted []byte) {
	t.Helper()
	want := base64.StdEncoding.EncodeToString(trusted)
	for object, path := range map[string]string{
		"validatingwebhookconfiguration/plimsoll-validating": `{range .webhooks[*]}{.clientConfig.caBundle}{"\n"}{end}`,
		"mutatingwebhookconfiguration/plimsoll-mutating":     `{range .webhooks[*]}{.clientConfig.caBundle}{"\n"}{end}`,
		"customresourcedefinition/databases.plimsoll.dev":    `{.spec.conversion.webhook.clientConfig.caBundle}`,
	} {
		await(t, object+" to trust it", func() error {
			out, err := k.Run(t.Context(), nil, "get", object, "-o", "jsonpath="+path)
			if err != nil {
				return err
			}
			lines := strings.Fields(out)
			for _, line := range lines {
				if line != want {
					return fmt.Errorf("it trusts %.40s…", line)
				}
			}
			if len(lines) == 0 {
				return errors.New("it trusts nothing")
			}
			return nil
		})
	}
}

func await(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
