package postgres

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// together refuses values that are good alone and with which, together with others or in the memory that there is, no server starts. The
// others may be the server's own defaults: both of these rules are asked only where the user set one of them.
func (e *Engine) together(path *field.Path, d *v1.Database, major int) field.ErrorList {
	given := map[string]string{} // by the server's name, as the user wrote it
	for name := range d.Spec.Parameters {
		given[lower(name)] = name
	}
	all := e.parameters(d)
	value := func(name string) (float64, bool) {
		n, err := inUnit(all[name], e.catalogue[name].unit)
		return n, err == nil
	}
	var found field.ErrorList
	limit := d.Spec.Resources.Limits.Memory()
	if name, set := given["shared_buffers"]; set && !limit.IsZero() {
		if n, ok := value("shared_buffers"); ok && n*bytesPer(e.catalogue["shared_buffers"].unit) > limit.AsApproximateFloat64() {
			found = append(found, field.Invalid(path.Key(name), shorten(d.Spec.Parameters[name]), fmt.Sprintf(
				"is more than spec.resources.limits.memory, which is %s; a quarter of it is the default", limit.String())))
		}
	}
	reserve, names := 0.0, "superuser_reserved_connections"
	if n, ok := value("superuser_reserved_connections"); ok {
		reserve = n
	}
	if n, ok := value("reserved_connections"); ok && major >= 16 {
		reserve, names = reserve+n, names+" and reserved_connections together"
	}
	most, ok := value("max_connections")
	if !ok {
		most = defaultConnections
	}
	for _, candidate := range []string{"max_connections", "superuser_reserved_connections", "reserved_connections"} {
		if name, set := given[candidate]; set && most <= reserve {
			return append(found, field.Invalid(path.Key(name), shorten(d.Spec.Parameters[name]), fmt.Sprintf(
				"max_connections, which is %s, must be more than %s, which is %s", number(most), names, number(reserve))))
		}
	}
	return found
}

// defaultConnections is PostgreSQL's own default of max_connections.
const defaultConnections = 100
