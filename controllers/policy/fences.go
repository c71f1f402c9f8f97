package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

const (
	// everyInstance fences all.
	everyInstance = "*"
	// maxFence bounds what is read of the annotation: sixteen names of the longest fit.
	maxFence = 1024
	// maxTold bounds how many wrong names are told, and maxToldName how much of one.
	maxTold     = 4
	maxToldName = 63
)

// Fenced are the names of instances that run no server on purpose, by spec.maintenance.fenced or by the annotation, in order; "*"
// among them means all. A name that no instance can have is left out: it stops nothing, and Check or WrongFences tells of it.
func Fenced(d *v1.Database) []string {
	named, _ := annotated(d)
	names := slices.DeleteFunc(slices.Concat(d.Spec.Maintenance.Fenced, named), func(n string) bool { return !fenceable(d.Name, n) })
	slices.Sort(names)
	return slices.Compact(names)
}

// WrongFences says what is wrong with the annotation that lists instances to fence; empty if nothing is. An annotation is never
// refused, as a manifest's field is, so that this is told where people look.
func WrongFences(d *v1.Database) string {
	named, cut := annotated(d)
	if cut {
		return fmt.Sprintf("the annotation %s is longer than %d bytes, and what comes after is not read; shorten it", v1.AnnotationFence, maxFence)
	}
	wrong := slices.DeleteFunc(named, func(n string) bool { return fenceable(d.Name, n) })
	if len(wrong) == 0 {
		return ""
	}
	for i, name := range wrong {
		wrong[i] = fmt.Sprintf("%q", name[:min(len(name), maxToldName)])
	}
	return fmt.Sprintf("the annotation %s names what is no instance of %s, and fences nothing by it: %s; name one as %s-1, or * for all",
		v1.AnnotationFence, d.Name, some(wrong), d.Name)
}

// AbsentFences are the fenced instances that would be, by the number of replicas, and by what status knows, no instance today. That may
// be meant, since one that was scaled away and comes back stays fenced; or it is the wrong number.
func AbsentFences(d *v1.Database) []string {
	return slices.DeleteFunc(Fenced(d), func(name string) bool {
		return name == everyInstance || ordinal(d.Name, name) <= int(wanted(d)) ||
			slices.ContainsFunc(d.Status.Instances, func(i v1.InstanceStatus) bool { return i.Name == name })
	})
}

// FenceWarnings says what of the fences is allowed in next and may yet not be meant; old is nil on creation. They are said when the
// fences change, and not again.
func FenceWarnings(old, next *v1.Database) []string {
	var found []string
	if wrong := WrongFences(next); wrong != "" && (old == nil || old.Annotations[v1.AnnotationFence] != next.Annotations[v1.AnnotationFence]) {
		found = append(found, wrong)
	}
	if old != nil && slices.Equal(Fenced(old), Fenced(next)) {
		return found
	}
	if absent := AbsentFences(next); len(absent) > 0 {
		found = append(found, fmt.Sprintf("there is no instance %s to fence now; if it ever comes, it will run no server", some(absent)))
	}
	return found
}

// fences refuses a name in the spec that no instance can have. A typing error there would leave a server running that its owner
// believes stopped.
func fences(d *v1.Database, at *field.Path) field.ErrorList {
	var found field.ErrorList
	for i, name := range d.Spec.Maintenance.Fenced {
		if !fenceable(d.Name, name) {
			found = append(found, field.Invalid(at.Index(i), name,
				fmt.Sprintf("is no instance of %s; name one as %s-1, or * for all", d.Name, d.Name)))
		}
	}
	return found
}

// annotated are the names of the annotation, and whether some were left unread. Only whole names are read: the beginning of one may be
// another's name.
func annotated(d *v1.Database) (names []string, cut bool) {
	raw := d.Annotations[v1.AnnotationFence]
	if len(raw) > maxFence {
		raw, cut = raw[:strings.LastIndex(raw[:maxFence], ",")+1], true
	}
	for name := range strings.SplitSeq(raw, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names, cut
}

func fenceable(database, name string) bool {
	return name == everyInstance || isInstance(database, name)
}

func wanted(d *v1.Database) int32 {
	if d.Spec.Replicas == nil {
		return 3 // the schema's default
	}
	return *d.Spec.Replicas
}

// some are the first few of the names.
func some(names []string) string {
	if more := len(names) - maxTold; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxTold], ", "), more)
	}
	return strings.Join(names, ", ")
}
