package policy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Warnings says what is allowed in next and may yet not be meant; old is nil on creation. The same spec gets the same words every
// time; what is about a change is said once.
func Warnings(old, next *v1.Database, engines Engines) []string {
	found := replicas(next)
	if next.Spec.Image != "" && !pinned(next.Spec.Image) {
		found = append(found, fmt.Sprintf("spec.image: %s names neither a tag nor a digest, so that two instances may run different servers; add one", next.Spec.Image))
	}
	if next.Spec.DeletionPolicy == v1.DeletionDelete && (old == nil || old.Spec.DeletionPolicy != v1.DeletionDelete) {
		found = append(found, "spec.deletionPolicy: Delete means that the volumes, and all data, go when the Database is deleted, and those of an instance at once when it is scaled away")
	}
	if old != nil && old.Spec.Maintenance.Paused && next.Spec.Maintenance.Paused && !equality.Semantic.DeepEqual(old.Spec, next.Spec) {
		found = append(found, "spec.maintenance.paused: the operator changes nothing while it is true; this change waits until it is false")
	}
	if known, ok := engines[next.Spec.Engine]; ok {
		found = append(found, known.Warnings(next)...)
	}
	return append(found, FenceWarnings(old, next)...)
}

// DeletionWarning says what becomes of the volumes of a Database that is being deleted.
func DeletionWarning(d *v1.Database) string {
	if d.Spec.DeletionPolicy == v1.DeletionDelete {
		return fmt.Sprintf("the volumes of %s are deleted with it, as spec.deletionPolicy says", d.Name)
	}
	return fmt.Sprintf("the volumes of %s are kept; to delete them as well: kubectl -n %s delete pvc -l %s=%s",
		d.Name, d.Namespace, v1.LabelDatabase, d.Name)
}

func replicas(d *v1.Database) []string {
	if d.Spec.Replicas == nil {
		return nil
	}
	n, mode := *d.Spec.Replicas, d.Spec.Replication.Synchronous
	var found []string
	switch {
	case n == 2 && d.Spec.Replication.Witness == v1.WitnessNone:
		found = append(found, "spec.replicas: with 2 instances and no witness, writes stop when either is lost, because a majority of 2 is both; use 3")
	case n == 2 && mode == v1.SynchronousRequired:
		found = append(found, "spec.replication.synchronous: required on 2 instances means that writes wait while either is lost; use preferred, or 3 instances")
	case n == 2:
		found = append(found, "spec.replicas: 2 instances want a third node for their witness; until it votes, writes stop when either is lost")
	case n%2 == 0:
		found = append(found, fmt.Sprintf("spec.replicas: %d instances survive the loss of %d, as %d would, because a majority is %d; use an odd number", n, n/2-1, n-1, n/2+1))
	}
	if n > 1 && mode == v1.SynchronousNone {
		found = append(found, "spec.replication.synchronous: none means that the newest acknowledged writes can be lost with the primary")
	}
	return found
}

// pinned says whether an image names a tag or a digest. A colon before the last slash belongs to a registry's port.
func pinned(image string) bool {
	return strings.ContainsAny(image[strings.LastIndex(image, "/")+1:], ":@")
}
