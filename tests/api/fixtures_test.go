package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
)

// engines are those that the webhooks under test know: the real ones.
func engines() policy.Engines {
	return policy.Engines{v1.EnginePostgres: postgres.New(postgres.Options{})}
}

// minimal is the smallest spec.
func minimal() v1.DatabaseSpec {
	return v1.DatabaseSpec{Engine: v1.EnginePostgres, Version: "15.4", Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")}}
}

// namespace makes one for a test.
func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "api-", Labels: labels}}
	if err := shared.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// edit changes a document.
type edit func(map[string]any)

// set writes a value at a dotted path; a segment that holds dots stands in brackets, and a nil removes.
func set(path string, value any) edit {
	return func(doc map[string]any) {
		parts := strings.Split(path, ".")
		if value == nil {
			unstructured.RemoveNestedField(doc, parts...)
			return
		}
		if err := unstructured.SetNestedField(doc, value, parts...); err != nil {
			panic(err)
		}
	}
}

// document is a Database in a version, edited.
func document(version, namespace, name string, edits ...edit) *unstructured.Unstructured {
	doc := map[string]any{
		"apiVersion": "plimsoll.dev/" + version, "kind": "Database",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"engine": "postgres", "version": "15.4", "storage": map[string]any{"size": "1Gi"}},
	}
	for _, e := range edits {
		e(doc)
	}
	return &unstructured.Unstructured{Object: doc}
}

// fresh is a name that no other test has.
func fresh() string { return fmt.Sprintf("db%d", shared.names.Add(1)) }

func freePort() (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// selfSigned writes a certificate for 127.0.0.1 into dir, as cert-manager or OLM would mount one.
func selfSigned(dir string) (authority []byte, pair tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, pair, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, pair, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, pair, err
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	if pair, err = tls.X509KeyPair(authority, keyPEM); err != nil {
		return nil, pair, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, pair, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), authority, 0o600); err != nil {
		return nil, pair, err
	}
	return authority, pair, os.WriteFile(filepath.Join(dir, "tls.key"), keyPEM, 0o600)
}
