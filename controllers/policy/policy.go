// Package policy holds the rules of what a Database may be that its schema cannot say, with the reason and the fix in each answer.
package policy

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Engines are the engines that an operator knows, by name.
type Engines = map[v1.EngineName]engine.Engine

// Check says why next may not be; old is nil on creation. Admission asks it before a Database is stored, and the reconciler before
// it acts on one, so that the rules hold with the webhook and without. What the schema refuses is not repeated here.
func Check(old, next *v1.Database, engines Engines) field.ErrorList {
	spec := field.NewPath("spec")
	found := slices.Concat(
		resources(next.Spec.Resources, spec.Child("resources")),
		ownSecrets(next, spec),
		fences(next, spec.Child("maintenance", "fenced")),
		scheduling(next.Spec.Scheduling, spec.Child("scheduling")),
	)
	known, ok := engines[next.Spec.Engine]
	if !ok {
		names := slices.Sorted(maps.Keys(engines))
		return append(found, field.NotSupported(spec.Child("engine"), next.Spec.Engine, names))
	}
	return append(found, known.Validate(old, next)...)
}
