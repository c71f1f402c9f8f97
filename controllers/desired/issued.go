package desired

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// IssuedName is the name of the Certificate that cert-manager is asked for, and of the Secret that it writes.
func IssuedName(database string) string { return database + "-issued" }

// IssuedKind is cert-manager's Certificate. The kind is cert-manager's own, so the object is built without its Go types.
func IssuedKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}
}

// IssuerKind is the kind of the issuer that a reference names.
func IssuerKind(ref v1.IssuerReference) schema.GroupVersionKind {
	kind := IssuedKind()
	if kind.Kind = ref.Kind; kind.Kind == "" {
		kind.Kind = "Issuer"
	}
	return kind
}

// IssuedCertificate asks cert-manager for the server's certificate under the names by which clients reach it; nil unless
// spec.tls.issuerRef does.
func IssuedCertificate(in Inputs, names []string) *unstructured.Unstructured {
	ref := in.Database.Spec.TLS.IssuerRef
	if ref == nil {
		return nil
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
		"issuerRef":  map[string]any{"name": ref.Name, "kind": IssuerKind(*ref).Kind, "group": IssuedKind().Group},
		// The Secret is cert-manager's; by this label IssuedSecret knows it again.
		"secretTemplate": map[string]any{"labels": map[string]any{v1.LabelDatabase: in.Database.Name}},
	}}}
	u.SetGroupVersionKind(IssuedKind())
	u.SetName(m.Name)
	u.SetNamespace(m.Namespace)
	u.SetLabels(m.Labels)
	u.SetOwnerReferences(m.OwnerReferences)
	return u
}

// IssuedSecret lets the Secret that cert-manager wrote go with the Database: cert-manager itself leaves it behind, with the key in it.
// The Database is no controller of it: cert-manager may be told to make its Certificate that. The UID keeps an apply that comes too late
// from making an empty Secret.
func IssuedSecret(in Inputs, uid types.UID) *corev1.Secret {
	held := owner(in)
	held.Controller, held.BlockOwnerDeletion = nil, nil
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: IssuedName(in.Database.Name), Namespace: in.Database.Namespace, UID: uid,
		Labels: map[string]string{v1.LabelDatabase: in.Database.Name}, OwnerReferences: []metav1.OwnerReference{held},
	}}
}
