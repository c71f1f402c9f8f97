package database

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// whole are the kinds that a pass reads, beside Databases.
func whole() []client.Object {
	return []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &coordinationv1.Lease{}}
}

// ByMetadata are the kinds that the manager makes and keeps right, and reads nothing of: it watches their metadata alone, in which
// managedFields and the annotation v1.AnnotationApplied tell whether they are as they should be.
func ByMetadata() []client.Object {
	return []client.Object{
		&corev1.Service{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &networkingv1.NetworkPolicy{},
		&policyv1.PodDisruptionBudget{}, &discoveryv1.EndpointSlice{},
	}
}

// CacheOptions keep what the manager holds in memory to what is its own and is read: everything but Databases and a few
// words of each node by label, Secrets and ConfigMaps not at all. Without namespaces it is those of the whole cluster.
func CacheOptions(namespaces []string) (cache.Options, error) {
	ours, err := labels.NewRequirement(v1.LabelDatabase, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select our own objects: %w", err)
	}
	slim := &slimmer{}
	out := cache.Options{
		DefaultLabelSelector: labels.NewSelector().Add(*ours),
		DefaultTransform:     slim.object,
		ByObject: map[client.Object]cache.ByObject{
			&v1.Database{}:                  {Label: labels.Everything(), Transform: slim.database},
			&coordinationv1.Lease{}:         {Transform: slim.lease},
			&corev1.Node{}:                  {Label: labels.Everything(), Transform: leanNode},
			&corev1.Pod{}:                   {Transform: slim.pod},
			&corev1.PersistentVolumeClaim{}: {Transform: slim.claim},
		},
	}
	for _, namespace := range namespaces {
		if out.DefaultNamespaces == nil {
			out.DefaultNamespaces = map[string]cache.Config{}
		}
		out.DefaultNamespaces[namespace] = cache.Config{}
	}
	return out, nil
}

// byDatabase is the field of the cached pods and claims by which those of one Database are found: a namespace may hold thousands.
const byDatabase = ".metadata.labels." + v1.LabelDatabase

// index the pods and the claims by their Database.
func index(ctx context.Context, fields client.FieldIndexer) error {
	for _, obj := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
		err := fields.IndexField(ctx, obj, byDatabase, func(o client.Object) []string { return []string{o.GetLabels()[v1.LabelDatabase]} })
		if err != nil {
			return fmt.Errorf("index %T by its Database: %w", obj, err)
		}
	}
	return nil
}

// ClientOptions let Secrets and ConfigMaps be read by name, and never listed or watched.
func ClientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}}
}
