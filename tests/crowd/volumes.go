package crowd

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Volumes gives each claim that appears a volume that nobody mounts; the cluster's own controller binds the two. The claims have no class
// (spec.storage.class is the empty string), so that nobody else makes them one.
type Volumes struct{ Client client.Client }

// Attend looks after the claims that the cache shows, until the context ends.
func (v Volumes) Attend(ctx context.Context, claims cache.Cache) error {
	unbound := func(o client.Object) bool {
		claim, ok := o.(*corev1.PersistentVolumeClaim)
		return ok && claim.Status.Phase != corev1.ClaimBound && claim.DeletionTimestamp == nil
	}
	return attend(ctx, claims, &corev1.PersistentVolumeClaim{}, unbound, v.provide)
}

func (v Volumes) provide(ctx context.Context, key client.ObjectKey) error {
	var claim corev1.PersistentVolumeClaim
	if err := v.Client.Get(ctx, key, &claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if class := claim.Spec.StorageClassName; class == nil || *class != "" || claim.Spec.VolumeName != "" {
		return nil // another's business, or done
	}
	if err := v.Client.Create(ctx, volumeOf(&claim)); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// volumeOf a claim: it is reserved for this very one.
func volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName + "-" + string(claim.UID), Labels: map[string]string{label: "true"}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, VolumeMode: claim.Spec.VolumeMode,
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}
}

// Remove all volumes, once their claims are gone. It returns when none is left.
func (v Volumes) Remove(ctx context.Context) error {
	ours := client.MatchingLabels{label: "true"}
	for {
		// Of thousands the API server may not get through with all within the time that a request has.
		failed := v.Client.DeleteAllOf(ctx, &corev1.PersistentVolume{}, ours)
		left := &metav1.PartialObjectMetadataList{}
		left.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeList"))
		err := v.Client.List(ctx, left, ours)
		if err == nil && len(left.Items) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the crowd's volumes, %d of which are left: %w", len(left.Items), errors.Join(ctx.Err(), failed, err))
		case <-time.After(2 * time.Second):
		}
	}
}
