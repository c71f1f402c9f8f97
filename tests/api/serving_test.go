package api

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission/serving"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// TestTheManagerKeepsItsOwnCertificate starts a second operator that nobody gives a certificate, with no more rights than
// config/webhook/self-managed and the manager's on Secrets. The API server must come to ask it.
func TestTheManagerKeepsItsOwnCertificate(t *testing.T) {
	ns := namespace(t, nil)
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	names := installTwin(t, ns, port)
	c := limited(t, ns, names)
	k, err := serving.New(serving.Options{
		Client: c, Namespace: ns, Secret: "webhook-certificate", Names: []string{"localhost", "plimsoll-webhook." + ns + ".svc"},
		Validating: names[0], Mutating: names[1], CRDs: []string{names[2]}, Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := admission.NewServer(admission.ServerOptions{Host: "127.0.0.1", Port: port, GetCertificate: k.GetCertificate})
	if err := admission.Register(server, shared.scheme, admission.Options{Engines: engines(), Namespaces: shared.client, Databases: shared.client}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- k.Start(ctx) }()
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})

	asked := func(ctx context.Context) (bool, error) {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fresh()}}
		err := shared.client.Create(ctx, configMap)
		return err != nil && strings.Contains(err.Error(), "decode Database"), nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, asked); err != nil {
		hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		t.Fatalf("the API server does not trust the webhook: %v; the keeper says %v; %v", err, k.Check(nil), shared.client.Get(t.Context(), client.ObjectKey{Name: names[0]}, hook))
	}
	secret := &corev1.Secret{}
	if err := shared.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "webhook-certificate"}, secret); err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := shared.client.Get(t.Context(), client.ObjectKey{Name: names[2]}, crd); err != nil {
		t.Fatal(err)
	}
	if got, want := string(crd.Spec.Conversion.Webhook.ClientConfig.CABundle), string(secret.Data["ca.crt"]); got != want {
		t.Errorf("the CRD trusts %q, want %q", got, want)
	}
	if crd.Spec.Conversion.Webhook.ClientConfig.Service.Name != "elsewhere" {
		t.Error("more of the CRD was changed than whom it trusts")
	}
}

// installTwin installs registrations beside the shared ones: a validating webhook that is asked about ConfigMaps of one namespace
// and fails closed, so that an answer can only come from it, and a CRD whose conversion nobody uses.
func installTwin(t *testing.T, ns string, port int) [3]string {
	t.Helper()
	names := [3]string{"validating-" + ns, "mutating-" + ns, "twins.example.com"}
	url := "https://localhost:" + strconv.Itoa(port) + admission.ValidatePath
	only := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
	rule := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: names[0]},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "a.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, Rules: rule, NamespaceSelector: only,
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: names[1]}}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	text := `
metadata: {name: twins.example.com}
spec:
  group: example.com
  names: {kind: Twin, plural: twins}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: elsewhere, namespace: default}}}
`
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{validating, mutating, crd} {
		if err := shared.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shared.client.Delete(context.Background(), object) })
	}
	return names
}

// limited is a client with the rights of config/webhook/self-managed, under these names, and get, create and patch on Secrets.
func limited(t *testing.T, ns string, names [3]string) client.Client {
	t.Helper()
	raw, err := os.ReadFile("../../config/webhook/self-managed/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("plimsoll-validating", names[0], "plimsoll-mutating", names[1], crdName, names[2]).Replace(strings.Split(string(raw), "\n---\n")[0])
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(text), role); err != nil {
		t.Fatal(err)
	}
	role.Name = "twin-" + ns
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "create", "patch"}})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "twin"}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := shared.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(shared.config)
	config.Impersonate.UserName = "twin"
	c, err := client.New(config, client.Options{Scheme: shared.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCallers holds that with --webhook-client-ca-file only the API server is admitted, and that conversions stay open.
func TestCallers(t *testing.T) {
	dir := t.TempDir()
	own := authority.New(t)
	pair := own.Pair(t, "uid", "webhooks", authority.Addresses("127.0.0.1"))
	stranger := authority.New(t).Pair(t, "uid", "webhooks")
	authority.Mount(t, dir, own.Leaf(t, "uid", "server", authority.Addresses("127.0.0.1")))
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	ca := dir + "/ca.crt"
	for sentence, r := range map[string]struct {
		names       []string
		certificate *tls.Certificate
		path        string
		want        int
	}{
		"the API server is admitted":              {nil, &pair, admission.ValidatePath, http.StatusOK},
		"its name is among those that are":        {[]string{"x", "webhooks"}, &pair, admission.MutatePath, http.StatusOK},
		"another name is not":                     {[]string{"kube-apiserver"}, &pair, admission.ValidatePath, http.StatusForbidden},
		"nobody without a certificate is":         {nil, nil, admission.ValidatePath, http.StatusForbidden},
		"nor is a stranger, not even at the door": {nil, &stranger, admission.ValidatePath, 0},
		"a conversion needs none":                 {nil, nil, admission.ConvertPath, http.StatusBadRequest},
	} {
		t.Run(sentence, func(t *testing.T) {
			callers, err := admission.NewCallers(ca, r.names, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			server := admission.NewServer(admission.ServerOptions{Host: "127.0.0.1", Port: port, CertDir: dir, Callers: callers})
			if err := admission.Register(server, shared.scheme, admission.Options{Engines: engines(), Namespaces: shared.client, Databases: shared.client, Callers: callers}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- server.Start(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			if err := waitServing(ctx, server); err != nil {
				t.Fatal(err)
			}
			config := &tls.Config{RootCAs: own.Pool(), MinVersion: tls.VersionTLS12}
			if r.certificate != nil {
				// Shown whatever authorities the server names.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.certificate, nil }
			}
			caller := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 10 * time.Second}
			got := 0
			answer, err := caller.Post("https://127.0.0.1:"+strconv.Itoa(port)+r.path, "application/json", strings.NewReader("{}"))
			if err == nil {
				got = answer.StatusCode
				answer.Body.Close()
			}
			if got != r.want {
				t.Errorf("answered %d (%v), want %d", got, err, r.want)
			}
		})
	}
	if _, err := admission.NewCallers(dir+"/tls.key", nil, time.Now); err == nil || !strings.Contains(err.Error(), "holds no certificate in PEM") {
		t.Errorf("a key was taken for an authority: %v", err)
	}
}
