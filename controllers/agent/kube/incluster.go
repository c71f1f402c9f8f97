package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// ServiceAccount is where the kubelet mounts a pod's token, CA and namespace.
const ServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns a client with the pod's own identity, read from dir (see
// ServiceAccount). getenv is os.Getenv.
func InCluster(dir string, getenv func(string) string, userAgent string) (*Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("kubernetes client: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
	}
	ca, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("kubernetes client: %s/ca.crt holds no certificate", dir)
	}
	tokens := &tokenFile{path: dir + "/token", now: time.Now}
	base := "https://" + net.JoinHostPort(host, port)
	return New(base, newHTTPClient(pool), tokens.read, userAgent), nil
}

// newHTTPClient keeps no connection of an idle Database open for long, and
// speaks HTTP/1.1, where a connection into nowhere costs one request only.
func newHTTPClient(pool *x509.CertPool) *http.Client {
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		Timeout: 5 * time.Second, // callers set shorter ones
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: time.Second,
			TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:        1,
			MaxConnsPerHost:     2,
			IdleConnTimeout:     20 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tokenFile reads the token again each minute, because the kubelet renews it.
type tokenFile struct {
	path string
	now  func() time.Time

	mu    sync.Mutex
	token string
	at    time.Time
}

func (t *tokenFile) read() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && t.now().Sub(t.at) < time.Minute {
		return t.token, nil
	}
	b, err := os.ReadFile(t.path)
	if err != nil {
		return "", fmt.Errorf("read service account token: %w", err)
	}
	t.token, t.at = strings.TrimSpace(string(b)), t.now()
	return t.token, nil
}
