package desired

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IssuedName is the name of the Certificate that cert-manager is asked for, and of the Secret that it writes.
func IssuedName(database string) string { return database + "-issued" }

// IssuedKind is cert-manager's Certificate. The kind is cert-manager's own, so the object is built without its Go types.
func IssuedKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}
}

// IssuedCertificate asks cert-manager for the server's certificate under the names by which clients reach it; nil unless
// spec.tls.issuerRef does.
func IssuedCertificate(in Inputs, names []string) *unstructured.Unstructured {
	ref := in.Database.Spec.TLS.IssuerRef
	if ref == nil {
		return nil
	}
	kind := ref.Kind
	if kind == "" {
		kind = "Issuer"
	}
	hosts := make([]any, 0, len(names))
	for _, n := range names {
		hosts = append(hosts, n)
	}
	m := meta(in, IssuedName(in.Database.Name))
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"secretName": m.Name,
		"dnsNames":   hosts,
		"usages":     []any{"digital signature", "key encipherment", "server auth"},
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "rotationPolicy": "Always"},
		"issuerRef":  map[string]any{"name": ref.Name, "kind": kind, "group": IssuedKind().Group},
	}}}
	u.SetGroupVersionKind(IssuedKind())
	u.SetName(m.Name)
	u.SetNamespace(m.Namespace)
	u.SetLabels(m.Labels)
	u.SetOwnerReferences(m.OwnerReferences)
	return u
}
