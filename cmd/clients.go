package main

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/node"
)

// How a probe tells clients of connections apart: the values of --clients.
const (
	clientsByWorkload = "workload"
	clientsByAddress  = "address-class"
	clientsOff        = "off"
)

// mostClientSeries bounds the clients of an instance that have series: the kernel's side tells as many apart on a whole node.
const mostClientSeries = 4096

// clientsOf tells who has an address, in one of the ways above.
func clientsOf(mgr manager.Manager, how string) (node.Clients, error) {
	switch how {
	case clientsByAddress:
		return attribute.ByAddress, nil
	case clientsByWorkload:
		pods := attribute.NewPods()
		reflector, err := podsInto(pods, mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return nil, fmt.Errorf("watch the pods of the cluster, to tell clients apart: %w", err)
		}
		err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			reflector.RunWithContext(ctx)
			return nil
		}))
		return pods.Whose, err
	}
	return nil, nil //nolint:nilnil // no way to tell them apart is an answer, and a Node takes it
}

// podsInto keeps a store of the pods of all namespaces that have not ended, and of each no more than the store wants: not the cache of a manager, which
// would keep what it is given.
func podsInto(store cache.TransformingStore, config *rest.Config, through *http.Client) (*cache.Reflector, error) {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	c, err := apiutil.RESTClientForGVK(kind, false, false, config, clientgoscheme.Codecs, through)
	if err != nil {
		return nil, err
	}
	running := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	lw := cache.NewListWatchFromClient(c, "pods", metav1.NamespaceAll, running)
	return cache.NewReflectorWithOptions(lw, &corev1.Pod{}, store, cache.ReflectorOptions{Name: "clients"}), nil
}
