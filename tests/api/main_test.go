// Package api tests the API as its users meet it: a real API server with the generated CRD, and the real webhooks.
package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll-operator/api/v1beta1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

const crdName = "databases.plimsoll.dev"

// world is what every test here shares: one API server, with the webhooks of one operator.
type world struct {
	config     *rest.Config
	kubeconfig string
	client     client.Client
	scheme     *runtime.Scheme
	// hooks is the address of the webhooks and authority who vouches for it.
	hooks     string
	authority []byte
	// conversions counts the calls of the conversion webhook.
	conversions atomic.Int64
	// names counts those that fresh has given away.
	names atomic.Int64
}

var shared *world //nolint:gochecknoglobals // TestMain hands it to every test: one API server per test binary

func TestMain(m *testing.M) {
	code, before := 1, goleak.IgnoreCurrent()
	defer func() { os.Exit(code) }()
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "plimsoll-api-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithTimeout(context.Background(), 15*time.Minute)
	ended, err := start(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server and the webhooks:", err)
		stop()
		return
	}
	code = m.Run()
	stop()
	ended()
	if err := goleak.Find(before); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
}

func start(ctx context.Context, dir string) (ended func(), err error) {
	api, err := cluster.StartAPI(ctx, dir)
	if err != nil {
		return nil, err
	}
	w, done, err := newWorld(ctx, dir, api.Kubeconfig)
	if err != nil {
		api.Stop()
		return nil, err
	}
	shared = w
	return func() {
		<-done
		api.Stop()
	}, nil
}

func newWorld(ctx context.Context, dir, kubeconfig string) (*world, <-chan struct{}, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{}
	w := &world{config: config, kubeconfig: kubeconfig, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme, v1beta1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(w.scheme); err != nil {
			return nil, nil, err
		}
	}
	if w.client, err = client.New(config, client.Options{Scheme: w.scheme}); err != nil {
		return nil, nil, err
	}
	done, err := w.serveHooks(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	return w, done, errors.Join(w.installCRD(ctx), w.installHooks(ctx))
}

// serveHooks serves the operator's webhooks on loopback.
func (w *world) serveHooks(ctx context.Context, dir string) (<-chan struct{}, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	if w.authority, err = mount(filepath.Join(dir, "hooks")); err != nil {
		return nil, err
	}
	w.hooks = fmt.Sprintf("https://127.0.0.1:%d", port)
	server := admission.NewServer(admission.ServerOptions{Host: "127.0.0.1", Port: port, CertDir: filepath.Join(dir, "hooks")})
	if err := admission.Register(counting{server, &w.conversions}, w.scheme, admission.Options{Engines: engines(), Namespaces: w.client, Databases: w.client}); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "serve webhooks:", err)
		}
	}()
	return done, waitServing(ctx, server)
}

func waitServing(ctx context.Context, server webhook.Server) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return server.StartedChecker()(nil) == nil, nil
	})
}

// installCRD installs the generated CRD, with conversions by URL.
func (w *world) installCRD(ctx context.Context) error {
	crd, err := readCRD()
	if err != nil {
		return err
	}
	crd.Spec.Conversion = w.conversion()
	if err := w.client.Create(ctx, crd); err != nil {
		return fmt.Errorf("create the generated CRD: %w", err)
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		return w.client.List(ctx, &v1.DatabaseList{}) == nil && w.client.List(ctx, &v1alpha1.DatabaseList{}) == nil, nil
	})
}

func (w *world) conversion() *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To(w.hooks + admission.ConvertPath), CABundle: w.authority},
		},
	}
}

// counting is the webhooks' server with a count of the conversions.
type counting struct {
	webhook.Server
	conversions *atomic.Int64
}

func (c counting) Register(path string, next http.Handler) {
	c.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path == admission.ConvertPath {
			c.conversions.Add(1)
		}
		next.ServeHTTP(w, r)
	}))
}

// installHooks installs the generated webhook configurations, by URL in place of their Service.
func (w *world) installHooks(ctx context.Context) error {
	raw, err := os.ReadFile("../../config/webhook/manifests.yaml")
	if err != nil {
		return err
	}
	for _, document := range strings.Split(string(raw), "\n---\n") {
		switch {
		case strings.Contains(document, "kind: Validating"):
			hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			if err := yaml.Unmarshal([]byte(document), hook); err != nil {
				return err
			}
			for i := range hook.Webhooks {
				w.byURL(&hook.Webhooks[i].ClientConfig)
			}
			err = errors.Join(err, w.client.Create(ctx, hook))
		case strings.Contains(document, "kind: Mutating"):
			hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
			if err := yaml.Unmarshal([]byte(document), hook); err != nil {
				return err
			}
			for i := range hook.Webhooks {
				w.byURL(&hook.Webhooks[i].ClientConfig)
			}
			err = errors.Join(err, w.client.Create(ctx, hook))
		}
	}
	if err != nil {
		return err
	}
	return w.waitForHooks(ctx)
}

// byURL keeps the path of a webhook and drops its Service.
func (w *world) byURL(c *admissionregistrationv1.WebhookClientConfig) {
	*c = admissionregistrationv1.WebhookClientConfig{URL: ptr.To(w.hooks + *c.Service.Path), CABundle: w.authority}
}

// waitForHooks waits until the API server asks the webhooks: both fail open, so a test could pass without them.
func (w *world) waitForHooks(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hooks", Labels: map[string]string{v1.LabelRegion: "here"}}}
	if err := w.client.Create(ctx, namespace); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "hooks", Name: "probe"}}
		d.Spec = minimal()
		d.Spec.Region = ""
		if err := w.client.Create(ctx, d, client.DryRunAll); err != nil {
			return false, err
		}
		filled := d.Spec.Region == "here"
		d = &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "hooks", Name: "probe"}}
		d.Spec = minimal()
		d.Spec.TLS.ServerSecret = "probe-ca"
		return w.client.Create(ctx, d, client.DryRunAll) != nil && filled, nil
	})
}

func readCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	raw, err := os.ReadFile("../../config/crd/bases/plimsoll.dev_databases.yaml")
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, yaml.UnmarshalStrict(raw, crd)
}
