package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// API is an API server with its etcd on loopback, without nodes or controllers: enough for custom resources,
// admission webhooks (by URL) and controllers under test. Several can run side by side.
type API struct {
	Host       string // https://127.0.0.1:PORT
	CA         []byte // PEM: the authority of the server's certificate
	ClientCert []byte // PEM: a client in the group system:masters
	ClientKey  []byte
	Kubeconfig string // file with all of these

	server, etcd           *child
	dir                    string
	ports                  []int // of the server, of etcd for clients and for peers
	serverBinary, etcdPath string
}

// StartAPI starts an API server that keeps everything in dir and is ready to serve when StartAPI returns.
// It ends with Stop, with ctx, or with this process, whatever comes first. It wraps ErrNotBuilt when the binaries are missing.
func StartAPI(ctx context.Context, dir string) (*API, error) {
	server, err := Binary("kube-apiserver")
	if err != nil {
		return nil, err
	}
	etcd, err := Binary("etcd")
	if err != nil {
		return nil, err
	}
	certs := pki{dir: filepath.Join(dir, "pki")}
	if err := makeAPICertificates(certs); err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	a := &API{
		Host: "https://127.0.0.1:" + strconv.Itoa(ports[0]), Kubeconfig: filepath.Join(dir, "kubeconfig"),
		dir: dir, ports: ports, serverBinary: server, etcdPath: etcd,
	}
	if err := a.readCredentials(certs); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// start both servers on what the directory holds.
func (a *API) start(ctx context.Context) (err error) {
	certs := pki{dir: filepath.Join(a.dir, "pki")}
	if a.etcd, err = startChild(ctx, filepath.Join(a.dir, "etcd.log"), a.etcdPath, apiEtcdArgs(a.dir, a.ports[1], a.ports[2])); err != nil {
		return err
	}
	if a.server, err = startChild(ctx, filepath.Join(a.dir, "kube-apiserver.log"), a.serverBinary, apiServerArgs(certs, a.ports[0], a.ports[1])); err != nil {
		a.Stop()
		return err
	}
	if err := a.waitReady(ctx); err != nil {
		a.Stop()
		return err
	}
	return nil
}

// Save copies all that the API server knows. It is away for a few seconds.
func (a *API) Save(ctx context.Context) error { return a.copied(ctx, "etcd", "etcd-saved") }

// Restore puts back what Save copied. Versions of objects begin anew from there.
func (a *API) Restore(ctx context.Context) error { return a.copied(ctx, "etcd-saved", "etcd") }

func (a *API) copied(ctx context.Context, from, to string) error {
	a.Stop()
	if err := os.RemoveAll(filepath.Join(a.dir, to)); err != nil {
		return fmt.Errorf("copy etcd: %w", err)
	}
	if _, err := run(ctx, "", "cp", "-a", filepath.Join(a.dir, from), filepath.Join(a.dir, to)); err != nil {
		return err
	}
	return a.start(ctx)
}

// Stop ends the API server and etcd at once; nothing of them is worth a graceful end.
func (a *API) Stop() {
	a.server.stop()
	a.etcd.stop()
}

func makeAPICertificates(p pki) error {
	return errors.Join(
		p.authority("ca"),
		p.server("ca", "apiserver", "localhost", "127.0.0.1", "kubernetes.default.svc"),
		p.server("ca", "etcd", "127.0.0.1"),
		p.client("ca", "admin", "kubernetes-admin", "system:masters"),
		p.client("ca", "etcd-client", "kube-apiserver", ""),
		p.signingKey("sa"),
	)
}

func (a *API) readCredentials(p pki) error {
	for path, to := range map[string]*[]byte{p.crt("ca"): &a.CA, p.crt("admin"): &a.ClientCert, p.key("admin"): &a.ClientKey} {
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the API server's credentials: %w", err)
		}
		*to = data
	}
	config, err := p.kubeconfig(a.Host, "ca", "admin")
	if err != nil {
		return err
	}
	return replaceFile(a.Kubeconfig, config, 0o600)
}

func apiEtcdArgs(dir string, client, peer int) []string {
	p := pki{dir: filepath.Join(dir, "pki")}
	clientURL, peerURL := fmt.Sprintf("https://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	return []string{
		"--name=api", "--data-dir=" + filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + clientURL, "--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=api=" + peerURL,
		"--client-cert-auth", "--trusted-ca-file=" + p.crt("ca"), "--cert-file=" + p.crt("etcd"), "--key-file=" + p.key("etcd"),
	}
}

func apiServerArgs(p pki, port, etcdPort int) []string {
	return []string{
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		// The endpoint of a loopback address is invalid, and nobody here uses the Service "kubernetes".
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + p.crt("apiserver"), "--tls-private-key-file=" + p.key("apiserver"), "--client-ca-file=" + p.crt("ca"),
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", etcdPort), "--etcd-cafile=" + p.crt("ca"),
		"--etcd-certfile=" + p.crt("etcd-client"), "--etcd-keyfile=" + p.key("etcd-client"),
		"--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(p.dir, "sa.pub"), "--service-account-signing-key-file=" + p.key("sa"),
		"--authorization-mode=RBAC", "--allow-privileged=true",
		// No controller makes the default service accounts here, so the plugin would refuse every pod.
		"--disable-admission-plugins=ServiceAccount",
		"--profiling=false", "--shutdown-delay-duration=0s", "--v=1",
	}
}

// waitReady waits until the server says that all its own start-up work is done.
func (a *API) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for {
		if get(ctx, client, a.Host+"/readyz") == nil {
			return nil
		}
		select {
		case <-a.server.done:
			return fmt.Errorf("start kube-apiserver: %s", a.server.lastWords())
		case <-a.etcd.done:
			return fmt.Errorf("start etcd: %s", a.etcd.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("start kube-apiserver: not ready: %w: %s", ctx.Err(), a.server.lastWords())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (a *API) client() (*http.Client, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.CA)
	pair, err := tls.X509KeyPair(a.ClientCert, a.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("read the API client's certificate: %w", err)
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}},
	}, nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	return nil
}

// freePorts asks the kernel for ports of 127.0.0.1 that nobody uses now. It hands them out in turn, so another
// call does not get the same ones soon.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all stay open until the end, so that they differ
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// child is a process that ends with this one.
type child struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func startChild(ctx context.Context, log, path string, args []string) (*child, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	c := &child{cmd: exec.CommandContext(ctx, path, args...), log: log, done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the *thread* that forked ends, so this one must live as long as the child.
		runtime.LockOSThread()
		defer out.Close()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // killed, or it has said why in its log
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	return c, nil
}

func (c *child) stop() {
	if c == nil {
		return
	}
	_ = c.cmd.Process.Kill() // fails only if it has ended already
	<-c.done
}

// lastWords returns the end of the log.
func (c *child) lastWords() string { return tail(c.log, 1500) }

func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}
