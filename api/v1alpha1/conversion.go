package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// ToV1 is d as plimsoll.dev/v1. The conversions of spec and status compile only while both versions have the same fields: what is
// added to one must be added to all (decision 0004). So nothing is lost with the conversion webhook, nor without it.
func (d *Database) ToV1() *v1.Database {
	c := d.DeepCopy()
	return &v1.Database{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Database"},
		ObjectMeta: c.ObjectMeta,
		Spec:       v1.DatabaseSpec(c.Spec),
		Status:     v1.DatabaseStatus(c.Status),
	}
}

// FromV1 is hub in this version.
func FromV1(hub *v1.Database) *Database {
	c := hub.DeepCopy()
	return &Database{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "Database"},
		ObjectMeta: c.ObjectMeta,
		Spec:       DatabaseSpec(c.Spec),
		Status:     DatabaseStatus(c.Status),
	}
}
