package serving

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owner is the field manager of the bundles.
const owner = "plimsoll-webhook-certificate"

// Options of a Keeper.
type Options struct {
	// Client reads and writes without a cache: four objects by name each half minute are cheaper than four watches, and need no
	// right to list.
	Client client.Client
	// Namespace and Secret that hold the certificate.
	Namespace, Secret string
	// Names are the DNS names of the webhooks' Service, as plimsoll-webhook.plimsoll-system.svc.
	Names []string
	// Validating and Mutating name the webhook configurations, CRDs the custom resource definitions with a conversion webhook.
	// Each must exist; those without a conversion webhook are left alone.
	Validating, Mutating string
	CRDs                 []string
	Clock                clock.WithTicker
	Registry             prometheus.Registerer
}

// New makes a Keeper; add it to the manager, and hand its GetCertificate to admission.NewServer.
func New(o Options) (*Keeper, error) {
	s := &kubeStore{client: o.Client, secret: client.ObjectKey{Namespace: o.Namespace, Name: o.Secret}, seen: map[string]string{}}
	if o.Validating != "" {
		s.targets = append(s.targets, target{kind("ValidatingWebhookConfiguration"), o.Validating})
	}
	if o.Mutating != "" {
		s.targets = append(s.targets, target{kind("MutatingWebhookConfiguration"), o.Mutating})
	}
	for _, name := range o.CRDs {
		s.targets = append(s.targets, target{crdKind(), name})
	}
	return newKeeper(s, o.Names, o.Clock, o.Registry)
}

func kind(name string) schema.GroupVersionKind {
	return admissionregistrationv1.SchemeGroupVersion.WithKind(name)
}

func crdKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

// target is an object that says which authorities API servers trust for a webhook.
type target struct {
	gvk  schema.GroupVersionKind
	name string
}

func (t target) String() string { return t.gvk.Kind + " " + t.name }

// kubeStore is the store in the API server. Only one goroutine uses it.
type kubeStore struct {
	client  client.Client
	secret  client.ObjectKey
	targets []target
	// found is the Secret as load read it last.
	found *corev1.Secret
	// seen are the versions of targets that were found, or made, right, with the bundle: nothing to do until either changes.
	seen map[string]string
}

func (s *kubeStore) load(ctx context.Context) (map[string][]byte, string, error) {
	s.found = &corev1.Secret{}
	err := s.client.Get(ctx, s.secret, s.found)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read Secret %s with the webhooks' certificate: %w", s.secret, err)
	}
	return s.found.Data, s.found.ResourceVersion, nil
}

// save patches what was read rather than replacing it: the manager has no right to update Secrets, only to patch them.
func (s *kubeStore) save(ctx context.Context, data map[string][]byte, version string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.secret.Namespace, Name: s.secret.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "plimsoll", "app.kubernetes.io/managed-by": "plimsoll"},
		},
		Type: corev1.SecretTypeTLS, Data: data,
	}
	write := func() error { return s.client.Create(ctx, secret, client.FieldOwner(owner)) }
	if version != "" {
		secret = s.found.DeepCopy()
		secret.Data = data
		patch := client.MergeFromWithOptions(s.found, client.MergeFromWithOptimisticLock{})
		write = func() error { return s.client.Patch(ctx, secret, patch, client.FieldOwner(owner)) }
	}
	err := write()
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write Secret %s: %w", s.secret, errRaced)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s with the webhooks' certificate: %w", s.secret, err)
	}
	return nil
}

// publish looks at each target's metadata and reads it whole only when it changed since it was last found right: a CRD is large.
func (s *kubeStore) publish(ctx context.Context, bundle []byte) error {
	if len(bundle) == 0 {
		return nil
	}
	for _, t := range s.targets {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(t.gvk)
		if err := s.client.Get(ctx, client.ObjectKey{Name: t.name}, meta); err != nil {
			return fmt.Errorf("read %s to have the webhooks trusted: %w", t, err)
		}
		if s.seen[t.String()] == meta.ResourceVersion+"\n"+string(bundle) {
			continue
		}
		version, err := s.trust(ctx, t, bundle)
		if err != nil {
			return err
		}
		s.seen[t.String()] = version + "\n" + string(bundle)
	}
	return nil
}

func (s *kubeStore) trust(ctx context.Context, t target, bundle []byte) (version string, err error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(t.gvk)
	if err := s.client.Get(ctx, client.ObjectKey{Name: t.name}, found); err != nil {
		return "", fmt.Errorf("read %s to have the webhooks trusted: %w", t, err)
	}
	wanted := withBundle(found, bundle)
	if wanted == nil {
		return found.GetResourceVersion(), nil
	}
	if err := s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return "", fmt.Errorf("have %s trust the webhooks: %w", t, err)
	}
	return wanted.GetResourceVersion(), nil
}
