package database

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// TestIssuer goes through the life of spec.tls.issuerRef with a real cert-manager. Its parts build on each other: it is the only test
// that installs cert-manager on this API server, and it takes it away again.
func TestIssuer(t *testing.T) {
	w := newWorld(t)
	issued := func(name string) func(*v1.Database) {
		return func(d *v1.Database) { d.Spec.TLS.IssuerRef = &v1.IssuerReference{Name: name, Kind: "Issuer"} }
	}

	plain := newWorld(t) // a namespace holds one Database here
	plain.database("plain", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	plain.until("plain", "one instance", running)
	w.database("orders", issued("ca"))
	const absent = "spec.tls.issuerRef: this cluster has no cert-manager"
	w.until("orders", "the missing cert-manager to be told", stalledBy(v1.ReasonIssuerNotReady, absent))
	plain.edit("plain", issued("ca"))
	plain.until("plain", "the missing cert-manager to be told", func(d *v1.Database) bool {
		return stalledBy(v1.ReasonIssuerNotReady, absent)(d) && running(d)
	})
	time.Sleep(time.Second)
	asked := w.requests.count()
	time.Sleep(5 * time.Second)
	if got := w.requests.since(asked); len(got) > 20 { // it looks again every 10 s, with a dozen requests
		t.Errorf("waiting for cert-manager asked for %d things in 5 s: %v", len(got), got)
	}
	plain.edit("plain", func(d *v1.Database) { d.Spec.TLS.IssuerRef = nil })
	plain.until("plain", "nothing to wait for", unstalled)

	w.installCertManager()
	w.until("orders", "the missing issuer to be told", stalledBy(v1.ReasonIssuerNotReady, "spec.tls.issuerRef: there is no Issuer ca in namespace "+w.namespace+"; create it"))
	w.apply(`{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: self}, spec: {selfSigned: {}}}`)
	w.apply(`{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: ca}, spec: {ca: {secretName: root}}}`)
	w.until("orders", "the idle controller to be told", stalledBy(v1.ReasonIssuerNotReady, "cert-manager has not looked at Issuer ca"))

	cm := w.startCertManager()
	w.until("orders", "the issuer's missing Secret to be told", stalledBy(v1.ReasonIssuerNotReady, `Issuer ca in namespace `+w.namespace+` is not ready: Error getting keypair for CA issuer: secrets "root" not found`))
	w.apply(`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: root}, spec: {isCA: true, commonName: The root, secretName: root, issuerRef: {name: self}, privateKey: {algorithm: ECDSA, size: 256}}}`)
	w.until("orders", "three running instances", func(d *v1.Database) bool { return running(d) && unstalled(d) })
	root := w.secret("root").Data["tls.crt"]

	t.Run("the issuer's certificate serves, and clients are given its authority", func(t *testing.T) {
		w.served(t, "orders", root, root)
		if ready := w.certificateCondition("orders", "Ready"); ready["status"] != "True" {
			t.Errorf("the Certificate is not ready: %v", ready)
		}
	})

	t.Run("the Secret that cert-manager wrote goes with the Database", func(t *testing.T) {
		w.until("orders", "the Secret to be owned", func(d *v1.Database) bool {
			return ownedBy(w.secret("orders-issued").OwnerReferences, d.UID)
		})
	})

	quick := newWorld(t)
	t.Run("a new Database waits for its certificate no longer than that takes", func(t *testing.T) {
		w.clusterIssuer(t, "everywhere", "root")
		began := time.Now()
		quick.database("quick", func(d *v1.Database) {
			d.Spec.Replicas, d.Spec.TLS.IssuerRef = new(int32(1)), &v1.IssuerReference{Name: "everywhere", Kind: "ClusterIssuer"}
		})
		quick.until("quick", "one instance", running)
		took := time.Since(began)
		t.Logf("ready after %s", took)
		if took >= retrySecrets {
			t.Errorf("it took %s: the Secret was polled for, not woken for", took)
		}
		quick.served(t, "quick", root, root)
	})

	t.Run("a renewal is picked up at once, and no pod is replaced", func(t *testing.T) {
		pods, before := w.uids("orders"), w.secret("orders-server").Data["tls.crt"]
		w.renew("orders")
		began := time.Now()
		w.until("orders", "the new certificate", func(*v1.Database) bool { return !bytes.Equal(before, w.secret("orders-server").Data["tls.crt"]) })
		took := time.Since(began)
		t.Logf("picked up after %s", took)
		if took >= retrySecrets {
			t.Errorf("it took %s: it was polled for, not woken for", took)
		}
		w.served(t, "orders", root, root)
		w.until("orders", "the pods to be told", func(d *v1.Database) bool {
			return running(d) && w.pod("orders-1").Annotations[v1.AnnotationSecretsHash] != "" && unstalled(d)
		})
		if now := w.uids("orders"); !slices.Equal(pods, now) {
			t.Errorf("pods were replaced: %v, then %v", pods, now)
		}
	})

	t.Run("a wrong issuer is told with the field, and the old certificate serves on", func(t *testing.T) {
		before := w.secret("orders-server").Data["tls.crt"]
		w.edit("orders", func(d *v1.Database) { d.Spec.TLS.IssuerRef.Name = "typo" })
		w.until("orders", "the wrong issuer to be told", func(d *v1.Database) bool {
			return stalledBy(v1.ReasonIssuerNotReady, "spec.tls.issuerRef: there is no Issuer typo in namespace "+w.namespace)(d) && running(d)
		})
		w.edit("orders", func(d *v1.Database) { d.Spec.TLS.IssuerRef.Kind = "ClusterIssuer" })
		w.until("orders", "the wrong kind to be told", stalledBy(v1.ReasonIssuerNotReady, "spec.tls.issuerRef: there is no ClusterIssuer typo;"))
		if !bytes.Equal(before, w.secret("orders-server").Data["tls.crt"]) {
			t.Error("the server's certificate was changed")
		}
		w.edit("orders", issued("ca"))
		w.until("orders", "nothing to wait for", func(d *v1.Database) bool { return running(d) && unstalled(d) })
	})

	t.Run("another issuer takes over", func(t *testing.T) {
		w.apply(`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: root2}, spec: {isCA: true, commonName: Another root, secretName: root2, issuerRef: {name: self}}}`)
		w.apply(`{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: ca2}, spec: {ca: {secretName: root2}}}`)
		w.edit("orders", issued("ca2"))
		w.until("orders", "its certificate", func(d *v1.Database) bool {
			var s corev1.Secret
			return w.exists(&s, "root2") && bytes.Equal(w.secret("orders-app").Data["ca.crt"], s.Data["tls.crt"]) && running(d) && unstalled(d)
		})
		root2 := w.secret("root2").Data["tls.crt"]
		w.served(t, "orders", root2, root2)
	})

	t.Run("without issuerRef the own authority serves again, and the Certificate goes", func(t *testing.T) {
		w.edit("orders", func(d *v1.Database) { d.Spec.TLS.IssuerRef = nil })
		w.until("orders", "the Certificate to go", func(*v1.Database) bool { return !w.exists(emptyCertificate(), "orders-issued") })
		w.until("orders", "nothing to wait for", func(d *v1.Database) bool { return running(d) && unstalled(d) })
		own := w.secret("orders-ca").Data["ca.crt"]
		w.served(t, "orders", own, own)
	})

	t.Run("a Database runs on when cert-manager is taken away", func(t *testing.T) {
		before := quick.secret("quick-server").Data["tls.crt"]
		cm.Stop()
		w.removeCertManager()
		lost := quick.pod("quick-1")
		if err := w.person.Delete(t.Context(), lost, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		quick.until("quick", "its lost pod, and what waits", func(d *v1.Database) bool {
			var p corev1.Pod
			return quick.exists(&p, "quick-1") && p.UID != lost.UID && running(d) && stalledBy(v1.ReasonIssuerNotReady, absent)(d)
		})
		if !bytes.Equal(before, quick.secret("quick-server").Data["tls.crt"]) {
			t.Error("the server's certificate was changed")
		}
	})

	t.Run("it goes on when cert-manager is back", func(t *testing.T) {
		quick.until("quick", "the watch to have ended", func(*v1.Database) bool { return quick.issued.following() == nil })
		w.installCertManager()
		w.startCertManager()
		w.clusterIssuer(t, "everywhere", "root")
		quick.until("quick", "nothing to wait for", func(d *v1.Database) bool { return running(d) && unstalled(d) })
		quick.until("quick", "the Certificate to be followed", func(d *v1.Database) bool { return quick.issued.certificate(t.Context(), d) != nil })
	})
}

func unstalled(d *v1.Database) bool {
	c := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionStalled)
	return c != nil && c.Status == metav1.ConditionFalse
}

// served fails unless the server's Secret holds a certificate for the Database by the authority, and clients are given trusted.
func (w *world) served(t *testing.T, name string, authority, trusted []byte) {
	t.Helper()
	data := w.secret(desired.ServerName(name)).Data
	block, _ := pem.Decode(data["tls.crt"])
	if block == nil {
		t.Fatalf("no certificate in %q", data["tls.crt"])
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	for _, host := range []string{name + "-rw." + w.namespace + ".svc", name + "-ro", name + "-1." + name + "-members." + w.namespace + ".svc.cluster.local"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if given := w.secret(desired.ConnectionName(name)).Data["ca.crt"]; !bytes.Equal(given, trusted) || !bytes.Equal(data["ca.crt"], trusted) {
		t.Errorf("clients are given\n%s\nand the server\n%s\nwant\n%s", given, data["ca.crt"], trusted)
	}
}

func (w *world) uids(name string) []types.UID {
	w.Helper()
	var pods corev1.PodList
	if err := w.person.List(w.Context(), &pods, client.InNamespace(w.namespace), client.MatchingLabels{v1.LabelDatabase: name}); err != nil {
		w.Fatal(err)
	}
	var out []types.UID
	for _, p := range pods.Items {
		out = append(out, p.UID)
	}
	slices.Sort(out)
	return out
}

func (w *world) apply(text string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		w.Fatal(err)
	}
	u.SetNamespace(w.namespace)
	if err := w.person.Create(w.Context(), u); err != nil {
		w.Fatal(err)
	}
}

// clusterIssuer gives the whole cluster an issuer with the authority in a Secret of the namespace.
func (w *world) clusterIssuer(t *testing.T, name, secret string) {
	t.Helper()
	const where = "cert-manager" // where cert-manager keeps what belongs to the cluster
	if err := w.person.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: where}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	root := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: where, Name: secret}, Type: corev1.SecretTypeTLS, Data: w.secret(secret).Data}
	if err := w.person.Create(t.Context(), root); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	issuer := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"ca": map[string]any{"secretName": secret}},
	}}
	if err := w.person.Create(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
}

func (w *world) issuedCertificate(name string) *unstructured.Unstructured {
	w.Helper()
	c := &unstructured.Unstructured{}
	c.SetGroupVersionKind(desired.IssuedKind())
	if err := w.person.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: desired.IssuedName(name)}, c); err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) certificateCondition(name, kind string) map[string]any {
	w.Helper()
	return conditionOf(w.issuedCertificate(name), kind)
}

// renew asks for a new certificate as cert-manager's own command line does.
func (w *world) renew(name string) {
	w.Helper()
	c := w.issuedCertificate(name)
	all, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
	all = append(all, map[string]any{
		"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by the test", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	})
	if err := unstructured.SetNestedSlice(c.Object, all, "status", "conditions"); err != nil {
		w.Fatal(err)
	}
	if err := w.person.Status().Update(w.Context(), c); err != nil {
		w.Fatal(err)
	}
}

func (w *world) crds() []client.Object {
	w.Helper()
	documents, err := cluster.CertManagerCRDs()
	if err != nil {
		w.Fatal(err)
	}
	var out []client.Object
	for _, document := range documents {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			w.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

func (w *world) installCertManager() {
	w.Helper()
	for _, crd := range w.crds() {
		if err := w.person.Create(w.Context(), crd); err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = w.person.Delete(context.Background(), crd) })
	}
	kinds := []string{"Certificate", "CertificateRequest", "Issuer", "ClusterIssuer"}
	deadline := time.Now().Add(20 * time.Second)
	for len(kinds) > 0 {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("cert-manager.io/v1")
		list.SetKind(kinds[0] + "List")
		err := w.person.List(w.Context(), list)
		if err == nil {
			kinds = kinds[1:]
			continue
		}
		if time.Now().After(deadline) {
			w.Fatalf("the API server does not serve kind %s: %v", kinds[0], err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (w *world) removeCertManager() {
	w.Helper()
	for _, crd := range w.crds() {
		if err := client.IgnoreNotFound(w.person.Delete(w.Context(), crd)); err != nil {
			w.Fatal(err)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for _, crd := range w.crds() {
		for w.person.Get(w.Context(), client.ObjectKeyFromObject(crd), crd) == nil {
			if time.Now().After(deadline) {
				w.Fatalf("%s of cert-manager does not go", crd.GetName())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func (w *world) startCertManager() *cluster.CertManager {
	w.Helper()
	cm, err := cluster.StartCertManager(context.Background(), w.TempDir(), shared.kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		cm.Stop()
		if w.Failed() {
			w.Log(strings.TrimSpace(cm.Log()))
		}
	})
	return cm
}
