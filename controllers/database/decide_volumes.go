package database

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

const (
	defaultWhenFull = 80
	defaultStep     = 25
	// sizeStep rounds grown sizes, since storage providers count in whole GiB; tiny volumes grow in MiB.
	sizeStep     = int64(1) << 30
	sizeStepTiny = int64(1) << 20
)

// storageSize is the size of the data volumes: what the spec asks for, and what they grew to by themselves. It never shrinks.
func (d *draft) storageSize() resource.Quantity {
	db := d.seen.Database
	size := db.Spec.Storage.Size.DeepCopy()
	if e := db.Status.Effective; e != nil && e.StorageSize != nil && e.StorageSize.Cmp(size) > 0 {
		size = e.StorageSize.DeepCopy()
	}
	if grown, ok := d.grown(size); ok {
		return grown
	}
	return size
}

// grown is the next size, if a volume is full enough and the last growth has come through everywhere.
func (d *draft) grown(size resource.Quantity) (resource.Quantity, bool) {
	growth := d.seen.Database.Spec.Storage.Growth
	if growth == nil || d.seen.Database.Spec.Maintenance.Paused || size.Cmp(growth.MaxSize) >= 0 {
		return size, false
	}
	full := false
	for _, name := range d.Instances {
		claim, report := d.seen.Claims[name], d.seen.report(name)
		if claim == nil {
			continue
		}
		if capacity := claim.Status.Capacity[corev1.ResourceStorage]; claim.Status.Phase == corev1.ClaimBound && capacity.Cmp(size) < 0 {
			return size, false // the last step is still under way
		}
		if report != nil && percent(report.Data) >= int64(or(growth.WhenFullPercent, defaultWhenFull)) {
			full = true
		}
	}
	if !full {
		return size, false
	}
	step := sizeStep
	if size.Value() < 8*sizeStep {
		step = sizeStepTiny
	}
	bytes := size.Value() + size.Value()/100*int64(or(growth.StepPercent, defaultStep))
	bytes = (bytes + step - 1) / step * step
	next := *resource.NewQuantity(bytes, resource.BinarySI)
	if next.Cmp(growth.MaxSize) > 0 {
		next = growth.MaxSize.DeepCopy()
	}
	return next, true
}

func or(v *int32, fallback int32) int32 {
	if v == nil {
		return fallback
	}
	return *v
}

// claims makes and grows the volumes of the instances that may be made.
func (d *draft) claims() bool {
	for _, name := range d.Wanted {
		if !d.mayExist(name) {
			continue
		}
		i := d.instance(name)
		d.claim(name, desired.DataClaim(d.Inputs, i))
		if wal := desired.WALClaim(d.Inputs, i); wal != nil {
			d.claim(wal.Name, wal)
		}
	}
	return true
}

func (d *draft) claim(name string, wanted *corev1.PersistentVolumeClaim) {
	have := d.seen.Claims[name]
	if have != nil && have.DeletionTimestamp != nil {
		d.work(v1.ReasonChanging, "waiting for the deleted volume %s to go", name)
		return // it cannot be saved, and another of its name cannot be made yet
	}
	d.Apply = append(d.Apply, wanted)
	if have == nil || have.Status.Phase != corev1.ClaimBound {
		return
	}
	asked, capacity := wanted.Spec.Resources.Requests[corev1.ResourceStorage], have.Status.Capacity[corev1.ResourceStorage]
	if capacity.Cmp(asked) < 0 {
		d.work(v1.ReasonChanging, "%s", growing(name, asked, have))
	}
}

// growing says how far a volume is on its way to a size.
func growing(name string, asked resource.Quantity, claim *corev1.PersistentVolumeClaim) string {
	for _, c := range claim.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("growing volume %s to %s: waiting for its node to grow the file system", name, asked.String())
		}
	}
	return fmt.Sprintf("growing volume %s to %s", name, asked.String())
}

// mayExist says whether an instance may be made: the first one of a new Database alone, until it leads.
func (d *draft) mayExist(name string) bool {
	return d.Leadership.Epoch > 0 || d.seen.Database.Status.Epoch > 0 || ordinalOf(d.seen.Database.Name, name) == 1
}
