package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"sync"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
)

// AnnotationEpoch on the EndpointSlice says whose leadership it routes to.
const AnnotationEpoch = "plimsoll.dev/epoch"

// Endpoint is where clients reach this member's database.
type Endpoint struct {
	Address string // of the pod, in the slice's address family
	Node    string
	Pod     string
}

// KubeStore is the Store in the Kubernetes API. The manager makes both objects
// as empty shells: the agent may get and update these two, and create none.
type KubeStore struct {
	client    *kube.Client
	namespace string
	lease     string
	slice     string
	endpoint  Endpoint

	mu   sync.Mutex
	last kube.Object // the Lease as last read or written; a swap changes a copy of it
}

// NewKubeStore returns the store of the Lease and EndpointSlice with these names.
func NewKubeStore(c *kube.Client, namespace, leaseName, sliceName string, e Endpoint) *KubeStore {
	return &KubeStore{client: c, namespace: namespace, lease: leaseName, slice: sliceName, endpoint: e}
}

func (s *KubeStore) leasePath() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + s.namespace + "/leases/" + s.lease
}

func (s *KubeStore) slicePath() string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + s.namespace + "/endpointslices/" + s.slice
}

// Read returns the record in the Lease. A missing Lease is an answer, not an
// error: Seen without a ResourceVersion.
func (s *KubeStore) Read(ctx context.Context) (Seen, error) {
	o, err := s.client.Get(ctx, s.leasePath())
	if kube.IsNotFound(err) {
		return Seen{}, nil
	}
	if err != nil {
		return Seen{}, err
	}
	seen := Seen{ResourceVersion: o.ResourceVersion(), Bootstrap: o.Annotation(AnnotationBootstrap)}
	if text := o.Annotation(AnnotationRecord); text != "" {
		seen.Record, err = DecodeRecord([]byte(text))
		if err != nil {
			return Seen{}, fmt.Errorf("lease %s: %w: %w", s.lease, ErrUnreadable, err)
		}
		seen.HasRecord = true
	}
	s.remember(o)
	return seen, nil
}

func (s *KubeStore) remember(o kube.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = o
}

func (s *KubeStore) base(resourceVersion string) (kube.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resourceVersion == "" || s.last.ResourceVersion() != resourceVersion {
		return nil, false
	}
	return s.last.Clone(), true
}

// Swap writes the record over the Lease that was read at resourceVersion.
func (s *KubeStore) Swap(ctx context.Context, resourceVersion string, r Record) (string, error) {
	text, err := r.Encode()
	if err != nil {
		return "", err
	}
	o, ok := s.base(resourceVersion)
	if !ok {
		return "", fmt.Errorf("swap lease %s: %w", s.lease, ErrConflict)
	}
	o.SetAnnotation(AnnotationRecord, string(text))
	o.SetAnnotation(AnnotationBootstrap, "") // used up
	spec := o.Map("spec")
	spec["holderIdentity"] = r.Leader
	spec["leaseTransitions"] = min(r.Epoch, math.MaxInt32)
	got, err := s.client.Update(ctx, s.leasePath(), o)
	if kube.IsConflict(err) {
		return "", fmt.Errorf("swap lease %s: %w", s.lease, ErrConflict)
	}
	if err != nil {
		return "", err
	}
	s.remember(got)
	return got.ResourceVersion(), nil
}

// Route makes this member the slice's only endpoint, and writes nothing if it
// is. The resourceVersion keeps a late write of an earlier leader from undoing
// a later one's.
func (s *KubeStore) Route(ctx context.Context, epoch uint64) error {
	o, err := s.client.Get(ctx, s.slicePath())
	if err != nil {
		return err
	}
	if text := o.Annotation(AnnotationEpoch); text != "" {
		there, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("endpoint slice %s: annotation %s: %w", s.slice, AnnotationEpoch, err)
		}
		if there > epoch {
			return fmt.Errorf("endpoint slice %s names epoch %d: %w", s.slice, there, ErrConflict)
		}
	}
	wanted, endpoints := strconv.FormatUint(epoch, 10), []any{s.endpoint.json(s.namespace)}
	if o.Annotation(AnnotationEpoch) == wanted && reflect.DeepEqual(o["endpoints"], endpoints) {
		return nil
	}
	o.SetAnnotation(AnnotationEpoch, wanted)
	o["endpoints"] = endpoints
	if _, err := s.client.Update(ctx, s.slicePath(), o); kube.IsConflict(err) {
		return errors.New("endpoint slice " + s.slice + " was written at the same time") // try again, and look at the epoch again
	} else if err != nil {
		return err
	}
	return nil
}

func (e Endpoint) json(namespace string) map[string]any {
	out := map[string]any{
		"addresses":  []any{e.Address},
		"conditions": map[string]any{"ready": true, "serving": true, "terminating": false},
		"targetRef":  map[string]any{"kind": "Pod", "namespace": namespace, "name": e.Pod},
	}
	if e.Node != "" {
		out["nodeName"] = e.Node // an empty one is refused
	}
	return out
}
