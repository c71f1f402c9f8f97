package database

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

// issuePatience is how long cert-manager may take for a Certificate before a person should look: it takes a second or two.
const issuePatience = 30 * time.Second

// Issuing is how far cert-manager is with the certificate of spec.tls.issuerRef.
type Issuing struct {
	// Trouble waits for a person, and Waiting goes on by itself; nil for neither. Both are looked for only while the Secret that
	// cert-manager writes cannot be used.
	Trouble, Waiting *Finding
	// Left is a Certificate of a Database that asks for none any more.
	Left *metav1.PartialObjectMetadata
}

// issuing asks cert-manager's objects why there is no certificate yet. In the good case it asks nothing.
func (r *Reconciler) issuing(ctx context.Context, d *v1.Database, s Secrets) Issuing {
	if d.Spec.TLS.IssuerRef == nil {
		return Issuing{Left: r.issued.certificate(ctx, d)}
	}
	if !s.Unissued {
		return Issuing{}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if trouble := r.issuerTrouble(ctx, d); trouble != nil {
		return Issuing{Trouble: trouble}
	}
	c, err := r.ask(ctx, desired.IssuedKind(), d.Namespace, desired.IssuedName(d.Name))
	if err != nil {
		return Issuing{} // not made yet, or a moment's trouble: what the Secret lacks is told
	}
	return awaited(c, r.now())
}

// issuerTrouble says what is wrong with the issuer; nil if it could issue.
func (r *Reconciler) issuerTrouble(ctx context.Context, d *v1.Database) *Finding {
	kind := desired.IssuerKind(*d.Spec.TLS.IssuerRef)
	name, namespace, where := d.Spec.TLS.IssuerRef.Name, "", ""
	if kind.Kind == "Issuer" {
		namespace, where = d.Namespace, " in namespace "+d.Namespace
	}
	issuer, err := r.ask(ctx, kind, namespace, name)
	switch {
	case meta.IsNoMatchError(err):
		return withoutCertManager()
	case apierrors.IsNotFound(err):
		return &Finding{v1.ReasonIssuerNotReady, fmt.Sprintf("spec.tls.issuerRef: there is no %s %s%s; create it, or correct the name or the kind", kind.Kind, name, where)}
	case err != nil:
		return nil
	}
	ready := conditionOf(issuer, "Ready")
	switch {
	case ready == nil:
		return &Finding{v1.ReasonIssuerNotReady, fmt.Sprintf("spec.tls.issuerRef: cert-manager has not looked at %s %s%s yet; see whether its controller runs", kind.Kind, name, where)}
	case ready["status"] != "True":
		return &Finding{v1.ReasonIssuerNotReady, fmt.Sprintf("spec.tls.issuerRef: %s %s%s is not ready: %v; mend it, or name another", kind.Kind, name, where, ready["message"])}
	}
	return nil
}

// withoutCertManager is told where the cluster does not know cert-manager's kinds.
func withoutCertManager() *Finding {
	return &Finding{v1.ReasonIssuerNotReady, "spec.tls.issuerRef: this cluster has no cert-manager (kind Certificate of cert-manager.io/v1); install it, or remove the field to use Plimsoll's own authority"}
}

// awaited reads how far a Certificate is.
func awaited(c *unstructured.Unstructured, now time.Time) Issuing {
	if issuing := conditionOf(c, "Issuing"); issuing != nil && issuing["reason"] == "Failed" {
		return Issuing{Trouble: &Finding{v1.ReasonIssuerNotReady, fmt.Sprintf("spec.tls.issuerRef: cert-manager could not issue Certificate %s: %v; it tries again by itself, an hour later or more", c.GetName(), issuing["message"])}}
	}
	since, ready := c.GetCreationTimestamp().Time, conditionOf(c, "Ready")
	if ready != nil {
		if turned, err := time.Parse(time.RFC3339, fmt.Sprint(ready["lastTransitionTime"])); err == nil && turned.After(since) {
			since = turned
		}
	}
	if now.Sub(since) < issuePatience {
		return Issuing{Waiting: &Finding{v1.ReasonChanging, fmt.Sprintf("waiting for cert-manager to issue Certificate %s", c.GetName())}}
	}
	text := "nothing"
	if ready != nil {
		text = fmt.Sprint(ready["message"])
	}
	return Issuing{Trouble: &Finding{v1.ReasonIssuerNotReady, fmt.Sprintf(
		"spec.tls.issuerRef: cert-manager has not issued Certificate %s; it says: %s; see its CertificateRequests, and whether its controller runs", c.GetName(), text)}}
}

func conditionOf(u *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

func (r *Reconciler) ask(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, u)
	return u, err
}

// issuing tells what the certificates wait for, and tidies up after cert-manager.
func (d *draft) issuing(problem *Finding) {
	i, unissued := d.seen.Issuing, d.seen.Secrets.Unissued
	switch {
	case unissued && i.Trouble != nil:
		d.stall(i.Trouble.Reason, "%s", i.Trouble.Message)
	case unissued && i.Waiting != nil:
		d.work(i.Waiting.Reason, "%s", i.Waiting.Message)
	case problem != nil:
		d.stall(problem.Reason, "%s", problem.Message)
	}
	if i.Left != nil && problem == nil {
		d.Remove = append(d.Remove, Removal{Object: i.Left, Why: "spec.tls.issuerRef asks for none any more"})
	}
	if uid := d.seen.Secrets.Loose; uid != "" {
		d.Adopt = desired.IssuedSecret(d.Inputs, uid)
	}
}
