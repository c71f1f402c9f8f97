package desired

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// DataClaim of an instance. Apply it, also to grow it.
func DataClaim(in Inputs, i Instance) *corev1.PersistentVolumeClaim {
	storage, size := in.Database.Spec.Storage, in.Database.Spec.Storage.Size
	if in.Effective.StorageSize != nil {
		size = *in.Effective.StorageSize
	}
	return claim(in, i, InstanceName(in.Database.Name, i.Ordinal), storage.Class, larger(size, i.HeldData))
}

// WALClaim of an instance; nil where the log has no volume of its own.
func WALClaim(in Inputs, i Instance) *corev1.PersistentVolumeClaim {
	wal := in.Database.Spec.Storage.WAL
	if wal == nil {
		return nil
	}
	name := WALClaimName(InstanceName(in.Database.Name, i.Ordinal))
	return claim(in, i, name, wal.Class, larger(wal.Size, i.HeldWAL))
}

func claim(in Inputs, i Instance, name string, class *string, size resource.Quantity) *corev1.PersistentVolumeClaim {
	m := instanceMeta(in, i, name)
	m.Annotations = map[string]string{v1.AnnotationDatabaseUID: string(in.Database.UID)}
	if in.Database.Spec.DeletionPolicy != v1.DeletionDelete {
		m.OwnerReferences = nil
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: m,
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}
}

func larger(wanted resource.Quantity, held *resource.Quantity) resource.Quantity {
	if held == nil || wanted.Cmp(*held) >= 0 {
		return wanted
	}
	return *held
}
