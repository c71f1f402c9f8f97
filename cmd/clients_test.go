package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
)

// streams is an API server that streams pods, as one since 1.34 does; then it tells that one has gone.
func streams(t *testing.T, gone <-chan struct{}, pods ...corev1.Pod) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/pods" || q.Get("fieldSelector") != "status.phase!=Succeeded,status.phase!=Failed" || q.Get("sendInitialEvents") != "true" {
			t.Errorf("asked for %s", r.URL)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		say := func(kind string, pod corev1.Pod) {
			pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			if err := json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": pod}); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
		}
		for _, pod := range pods {
			say("ADDED", pod)
		}
		say("BOOKMARK", corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
		select {
		case <-gone:
			say("DELETED", pods[0])
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestClientsAreToldByThePodsOfTheCluster(t *testing.T) {
	web := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "app", Name: "web-7d9f-abcde", UID: "1", ResourceVersion: "3", Labels: map[string]string{"pod-template-hash": "7d9f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d9f", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", HostIP: "192.168.1.1"},
	}
	gone := make(chan struct{})
	server := streams(t, gone, web)
	pods := attribute.NewPods()
	reflector, err := podsInto(pods, &rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	expect := func(address string, want attribute.Client) {
		t.Helper()
		var got attribute.Client
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if got = pods.Whose(netip.MustParseAddr(address)); got == want {
				return
			}
		}
		t.Errorf("%s (-want +got)\n%s", address, cmp.Diff(want, got))
	}
	expect("10.0.0.1", attribute.Client{Namespace: "app", Kind: "Deployment", Name: "web"})
	expect("192.168.1.1", attribute.Client{Kind: attribute.KindNode, Name: "node-1"})
	expect("203.0.113.1", attribute.Client{Kind: attribute.KindOutside})
	close(gone)
	expect("192.168.1.1", attribute.Client{Kind: attribute.KindOutside})
}
