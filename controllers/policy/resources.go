package policy

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resources refuses what the API server would refuse in every pod: found here, it is an answer to the user rather than a Database
// without pods.
func resources(r corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	found := slices.Concat(amounts(r.Limits, at.Child("limits")), amounts(r.Requests, at.Child("requests")))
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		if limited && request.Cmp(limit) > 0 {
			found = append(found, field.Invalid(at.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("is more than the limit %s; lower the request or raise the limit", limit.String())))
		}
	}
	if len(r.Claims) > 0 {
		found = append(found, field.Forbidden(at.Child("claims"), "the pods of a Database hold no resource claims; remove it"))
	}
	return found
}

func amounts(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var found field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		if amount.Sign() < 0 {
			found = append(found, field.Invalid(at.Key(string(name)), amount.String(), "must not be below zero"))
		}
	}
	return found
}
