package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
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

// mount writes a certificate for loopback into dir, as cert-manager or OLM would mount one, and returns who signed it. Tests have
// tests/authority for that; before the first of them begins there is no t.
func mount(dir string) ([]byte, error) {
	by, err := certificate.NewAuthority(rand.Reader, time.Now(), 2*time.Hour, "webhooks", "webhooks")
	if err != nil {
		return nil, err
	}
	leaf, err := by.Issue(rand.Reader, time.Now(), time.Hour, certificate.Leaf{CommonName: "webhooks", Organization: "webhooks", Loopback: true, Server: true})
	if err != nil {
		return nil, err
	}
	return by.Pair().Certificate, errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "tls.crt"), leaf.Certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), leaf.Key, 0o600),
	)
}
