package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// built is the program that the image holds.
func built(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "plimsoll")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds it, for the cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// TestTheBinaryDrains builds the program that the image holds and ends it as the kubelet does, while an API server that answers
// nothing any more holds a pass and the leader election: it is gone in less than the pod's grace, and says that it ended.
func TestTheBinaryDrains(t *testing.T) {
	bin := built(t)
	dir := t.TempDir()
	api, err := cluster.StartAPI(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Stop()
	admin := prepare(t, api)

	hung := newHangingProxy(t, api)
	probes, profiles := freeAddress(t), freeAddress(t)
	var log bytes.Buffer
	manager := exec.CommandContext(t.Context(), bin, "manager", "--agent-image=registry.test/plimsoll:v1", "--webhook=false",
		"--metrics-bind-address=0", "--health-probe-bind-address="+probes, "--pprof-bind-address="+profiles)
	manager.Env = append(os.Environ(), "KUBECONFIG="+hung.kubeconfig(t, dir))
	manager.Stdout, manager.Stderr = &log, &log
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Wait() }()
	within(t, "the manager to be ready", func() error { return ready("http://" + probes + "/readyz") })
	if err := ready("http://" + profiles + "/debug/pprof/cmdline"); err != nil {
		t.Errorf("profiles: %v", err)
	}
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}, Spec: v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: "15", Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")},
	}}
	if err := admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	select {
	case <-hung.held:
	case <-time.After(20 * time.Second):
		t.Fatalf("no write was made:\n%s", log.String())
	}
	began := time.Now()
	if err := manager.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Logf("ended after %s", time.Since(began))
		if err != nil || !strings.Contains(log.String(), `"msg":"stopped"`) {
			t.Errorf("the manager ended with %v:\n%s", err, log.String())
		}
	case <-time.After(30 * time.Second):
		t.Error("the manager did not end within 30 s")
		_ = manager.Process.Kill() // the test has failed already
		<-ended
	}
}

// prepare makes the namespaces and the kind, and returns a person's client.
func prepare(t *testing.T, api *cluster.API) client.Client {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(&rest.Config{
		Host: api.Host, TLSClientConfig: rest.TLSClientConfig{CAData: api.CA, CertData: api.ClientCert, KeyData: api.ClientKey},
	}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"plimsoll-system", "shop"} {
		if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"databases", "probes"} {
		install(t, admin, filepath.Join("..", "config", "crd", "bases", "plimsoll.dev_"+kind+".yaml"))
	}
	within(t, "the kinds", func() error {
		return errors.Join(admin.List(t.Context(), &v1.DatabaseList{}), admin.List(t.Context(), &v1.ProbeList{}))
	})
	return admin
}

// hangingProxy stands before an API server. From the first write of a Service on it answers nothing.
type hangingProxy struct {
	*httptest.Server
	held chan struct{}
}

func newHangingProxy(t *testing.T, api *cluster.API) *hangingProxy {
	t.Helper()
	target, err := url.Parse(api.Host)
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(api.ClientCert, api.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(api.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Authorization") }, Transport: transport, FlushInterval: -1,
	}
	p := &hangingProxy{held: make(chan struct{})}
	hanging, end := make(chan struct{}), make(chan struct{})
	hang := sync.OnceFunc(func() {
		close(hanging)
		close(p.held)
	})
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hanging:
			<-end
			return
		default:
		}
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/services/") {
			hang()
			<-end
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(end)
		p.CloseClientConnections()
		p.Close()
		transport.CloseIdleConnections()
	})
	return p
}

func (p *hangingProxy) kubeconfig(t *testing.T, dir string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL, CertificateAuthorityData: authority}
	config.AuthInfos["nobody"] = &clientcmdapi.AuthInfo{Token: "the proxy has a certificate"}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", AuthInfo: "nobody"}
	config.CurrentContext = "proxy"
	file := filepath.Join(dir, "proxy.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
