package lease

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
)

// fakeAPI serves objects by path, with resourceVersions that are checked.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]kube.Object
	version int
	seen    []string
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, r.Method+" "+r.URL.Path)
	if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("User-Agent") != "plimsoll-agent/test" {
		http.Error(w, `{"kind":"Status","reason":"Unauthorized","message":"who are you"}`, http.StatusUnauthorized)
		return
	}
	o, ok := f.objects[r.URL.Path]
	if !ok {
		http.Error(w, `{"kind":"Status","reason":"NotFound","message":"no such object"}`, http.StatusNotFound)
		return
	}
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		var next kube.Object
		if err != nil || json.Unmarshal(body, &next) != nil {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		if next.ResourceVersion() != o.ResourceVersion() {
			http.Error(w, `{"kind":"Status","reason":"Conflict","message":"the object has been modified"}`, http.StatusConflict)
			return
		}
		f.version++
		next.Map("metadata")["resourceVersion"] = strconv.Itoa(f.version)
		f.objects[r.URL.Path] = next
		o = next
	}
	if err := json.NewEncoder(w).Encode(o); err != nil {
		panic(err)
	}
}

const (
	leaseAt = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/orders"
	sliceAt = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/orders-rw"
)

func newFakeStore(t *testing.T) (*fakeAPI, *KubeStore) {
	t.Helper()
	api := &fakeAPI{version: 10, objects: map[string]kube.Object{
		leaseAt: {
			"kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
			"metadata": map[string]any{
				"name": "orders", "resourceVersion": "5", "uid": "u", "labels": map[string]any{"app": "orders"},
				"annotations": map[string]any{AnnotationBootstrap: "orders-1", "other": "kept"},
			},
			"spec": map[string]any{"fieldOfALaterVersion": true},
		},
		sliceAt: {
			"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
			"metadata": map[string]any{"name": "orders-rw", "resourceVersion": "6"},
			"ports":    []any{map[string]any{"name": "postgres", "port": float64(5432)}},
		},
	}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client := kube.New(server.URL, server.Client(), func() (string, error) { return "secret", nil }, "plimsoll-agent/test")
	return api, NewKubeStore(client, "shop", "orders", "orders-rw", Endpoint{Address: "10.0.0.7", Node: "node-1", Pod: "orders-1"})
}

func TestKubeStoreSwap(t *testing.T) {
	api, store := newFakeStore(t)
	ctx := t.Context()
	seen, err := store.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Seen{ResourceVersion: "5", Bootstrap: "orders-1"}, seen); d != "" {
		t.Fatal(d)
	}
	if _, err := store.Swap(ctx, "4", goodRecord()); !errors.Is(err, ErrConflict) {
		t.Errorf("a swap on another version than was read: %v", err)
	}
	version, err := store.Swap(ctx, "5", goodRecord())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Swap(ctx, "5", goodRecord()); !errors.Is(err, ErrConflict) {
		t.Errorf("a second swap on the same version: %v", err)
	}
	text, err := goodRecord().Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := kube.Object{
		"kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
		"metadata": map[string]any{
			"name": "orders", "resourceVersion": version, "uid": "u", "labels": map[string]any{"app": "orders"},
			"annotations": map[string]any{AnnotationRecord: string(text), "other": "kept"},
		},
		"spec": map[string]any{"fieldOfALaterVersion": true, "holderIdentity": "b", "leaseTransitions": float64(5)},
	}
	if d := cmp.Diff(want, api.objects[leaseAt]); d != "" {
		t.Error(d)
	}
	got, err := store.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Seen{ResourceVersion: version, Record: goodRecord(), HasRecord: true}, got); d != "" {
		t.Error(d)
	}
	if _, err := store.Swap(ctx, version, Record{}); err == nil {
		t.Error("an empty record was written")
	}
}

func TestKubeStoreSwapLosesARace(t *testing.T) {
	api, store := newFakeStore(t)
	if _, err := store.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	api.objects[leaseAt].Map("metadata")["resourceVersion"] = "8" // somebody else wrote
	if _, err := store.Swap(t.Context(), "5", goodRecord()); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v", err)
	}
}

func TestKubeStoreRead(t *testing.T) {
	api, store := newFakeStore(t)
	api.objects[leaseAt].SetAnnotation(AnnotationRecord, `{"epoch":1}`)
	if seen, err := store.Read(t.Context()); err == nil {
		t.Errorf("a record that makes no sense: %+v", seen)
	}
	delete(api.objects, leaseAt)
	seen, err := store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Seen{}, seen); d != "" {
		t.Errorf("a missing Lease: %s", d)
	}
}

func TestKubeStoreRoute(t *testing.T) {
	api, store := newFakeStore(t)
	if err := store.Route(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	want := kube.Object{
		"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
		"metadata": map[string]any{
			"name": "orders-rw", "resourceVersion": "11", "annotations": map[string]any{AnnotationEpoch: "4"},
		},
		"ports": []any{map[string]any{"name": "postgres", "port": float64(5432)}},
		"endpoints": []any{map[string]any{
			"addresses": []any{"10.0.0.7"}, "nodeName": "node-1",
			"conditions": map[string]any{"ready": true, "serving": true, "terminating": false},
			"targetRef":  map[string]any{"kind": "Pod", "namespace": "shop", "name": "orders-1"},
		}},
	}
	if d := cmp.Diff(want, api.objects[sliceAt]); d != "" {
		t.Error(d)
	}
	if err := store.Route(t.Context(), 4); err != nil || !cmp.Equal(want, api.objects[sliceAt]) {
		t.Errorf("a second look writes: %v, %s", err, cmp.Diff(want, api.objects[sliceAt]))
	}
	api.objects[sliceAt]["endpoints"] = []any{} // restored from a backup of the same epoch
	if err := store.Route(t.Context(), 4); err != nil || len(api.objects[sliceAt]["endpoints"].([]any)) != 1 {
		t.Errorf("it leads to nobody: %v, %v", err, api.objects[sliceAt])
	}
	if err := store.Route(t.Context(), 3); !errors.Is(err, ErrConflict) {
		t.Errorf("an earlier leader took the route back: %v", err)
	}
	delete(api.objects, sliceAt)
	if err := store.Route(t.Context(), 5); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("a missing slice: %v", err)
	}
}

// TestALeaseOfALaterFormatIsNotUnderstood, and it is not the API server that is said to be away.
func TestALeaseOfALaterFormatIsNotUnderstood(t *testing.T) {
	api, store := newFakeStore(t)
	api.objects[leaseAt].SetAnnotation(AnnotationRecord, `{"format":2,`+recordOfOne[1:])
	_, err := store.Read(t.Context())
	want := Wait{For: WaitLease, Why: "lease orders: what it holds is not understood: leadership record: a later release wrote it: it is of format 2, and this one knows format 1"}
	if got := faultOf(err); got != want {
		t.Errorf("%v is told as %+v", err, got)
	}
}
