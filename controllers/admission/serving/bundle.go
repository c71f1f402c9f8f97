package serving

import (
	"encoding/base64"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withBundle is what to apply so that a registration trusts the bundle, and no other field of it; nil if it does already, or has
// no webhook.
func withBundle(found *unstructured.Unstructured, bundle []byte) *unstructured.Unstructured {
	encoded := base64.StdEncoding.EncodeToString(bundle)
	content := hooks(found, encoded)
	if found.GroupVersionKind() == crdKind() {
		content = conversion(found, encoded)
	}
	if content == nil {
		return nil
	}
	wanted := &unstructured.Unstructured{Object: content}
	wanted.SetGroupVersionKind(found.GroupVersionKind())
	wanted.SetName(found.GetName())
	// An object that was deleted meanwhile must not be made anew from one field.
	wanted.SetUID(found.GetUID())
	return wanted
}

// hooks reads leniently: a field of another type than it should have is one without our authority.
func hooks(found *unstructured.Unstructured, encoded string) map[string]any {
	all, _, _ := unstructured.NestedSlice(found.Object, "webhooks")
	var wanted []any
	right := true
	for _, each := range all {
		hook, ok := each.(map[string]any)
		if !ok {
			continue
		}
		has, _, _ := unstructured.NestedString(hook, "clientConfig", "caBundle")
		right = right && has == encoded
		wanted = append(wanted, map[string]any{"name": hook["name"], "clientConfig": map[string]any{"caBundle": encoded}})
	}
	if right {
		return nil
	}
	return map[string]any{"webhooks": wanted}
}

// conversion reads leniently, too.
func conversion(found *unstructured.Unstructured, encoded string) map[string]any {
	strategy, _, _ := unstructured.NestedString(found.Object, "spec", "conversion", "strategy")
	has, _, _ := unstructured.NestedString(found.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	if strategy != "Webhook" || has == encoded {
		return nil
	}
	return map[string]any{"spec": map[string]any{"conversion": map[string]any{
		"webhook": map[string]any{"clientConfig": map[string]any{"caBundle": encoded}},
	}}}
}
