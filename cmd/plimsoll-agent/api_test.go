package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// api is as much of an API server as an agent uses: single objects, updated under their resourceVersion.
type api struct {
	*httptest.Server

	mu       sync.Mutex
	objects  map[string]map[string]any
	version  int
	requests int
	// away answers nobody.
	away bool
}

// leave answers nobody from now on, until it is back.
func (a *api) leave(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

const (
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/orders"
	slicePath = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/orders-rw"
)

// newAPI holds the two shells that the manager makes.
func newAPI(t *testing.T, bootstrap string) *api {
	t.Helper()
	a := shells(bootstrap)
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// newTLSAPI is the same at an address, with the certificate that the in-cluster client wants.
func newTLSAPI(t *testing.T, bootstrap, address string, ca *authority.Authority) *api {
	t.Helper()
	leaf := ca.Leaf(t, uid, "kubernetes", authority.Addresses(address))
	a := shells(bootstrap)
	a.Server = httptest.NewUnstartedServer(a)
	_ = a.Listener.Close()
	a.Listener = must(net.Listen("tcp", address+":0"))(t)
	a.TLS = &tls.Config{Certificates: []tls.Certificate{must(tls.X509KeyPair(leaf.Cert, leaf.Key))(t)}, MinVersion: tls.VersionTLS12}
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func shells(bootstrap string) *api {
	return &api{objects: map[string]map[string]any{
		leasePath: {"metadata": map[string]any{"name": "orders", "resourceVersion": "1", "annotations": map[string]any{"plimsoll.dev/bootstrap": bootstrap}}},
		slicePath: {"metadata": map[string]any{"name": "orders-rw", "resourceVersion": "2"}, "addressType": "IPv4"},
	}, version: 2}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests++
	if a.away {
		panic(http.ErrAbortHandler)
	}
	old, ok := a.objects[r.URL.Path]
	if !ok {
		refuse(w, http.StatusNotFound, "NotFound")
		return
	}
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(old)
		return
	}
	raw, _ := io.ReadAll(r.Body)
	var next map[string]any
	if json.Unmarshal(raw, &next) != nil {
		refuse(w, http.StatusBadRequest, "BadRequest")
		return
	}
	if versionOf(next) != versionOf(old) {
		refuse(w, http.StatusConflict, "Conflict")
		return
	}
	a.version++
	next["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[r.URL.Path] = next
	_ = json.NewEncoder(w).Encode(next)
}

func versionOf(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	text, _ := meta["resourceVersion"].(string)
	return text
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

// routed is the address that the EndpointSlice names; empty before anybody led.
func (a *api) routed() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, _ := a.objects[slicePath]["endpoints"].([]any)
	if len(all) == 0 {
		return ""
	}
	addresses, _ := all[0].(map[string]any)["addresses"].([]any)
	if len(addresses) == 0 {
		return ""
	}
	text, _ := addresses[0].(string)
	return text
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}
