package policy

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// scheduling refuses what the API server would refuse in every pod.
func scheduling(s v1.SchedulingSpec, at *field.Path) field.ErrorList {
	var found field.ErrorList
	selector := at.Child("nodeSelector")
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			found = append(found, field.Invalid(selector, key, "is no label key: "+strings.Join(problems, "; ")))
		}
		value := s.NodeSelector[key]
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			found = append(found, field.Invalid(selector.Key(key), value, "is no label value: "+strings.Join(problems, "; ")))
		}
	}
	for i, t := range s.Tolerations {
		found = append(found, toleration(t, at.Child("tolerations").Index(i))...)
	}
	return found
}

func toleration(t corev1.Toleration, at *field.Path) field.ErrorList {
	var found field.ErrorList
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		found = append(found, field.Invalid(at.Child("operator"), t.Operator, "must be Exists where the key is empty; set it, or name a key"))
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		found = append(found, field.Invalid(at.Child("value"), t.Value, "must be empty where the operator is Exists; remove it"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		found = append(found, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute where tolerationSeconds is set; set it, or remove tolerationSeconds"))
	}
	return found
}
