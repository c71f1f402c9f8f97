// Package policy holds the rules of what a Database may be that its schema cannot say, with the reason and the fix in each answer.
package policy

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Engines are the engines that this operator knows, by name.
type Engines = map[v1.EngineName]engine.Engine

// Check says why next may not be; old is nil on creation. It holds with and without the webhook: admission asks it before a
// Database is stored, the reconciler before it acts on one.
func Check(old, next *v1.Database, engines Engines) field.ErrorList {
	return nil
}

// Warnings says what is allowed in next and yet may not be meant; old is nil on creation.
func Warnings(old, next *v1.Database) []string {
	return nil
}
