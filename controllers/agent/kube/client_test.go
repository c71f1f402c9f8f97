package kube

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestInClusterReadsTheTokenAgain(t *testing.T) {
	var token string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1","generation":9007199254740993}}`))
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	write("token", []byte("one\n"))
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": at.Hostname(), "KUBERNETES_SERVICE_PORT": at.Port()}
	c, err := InCluster(dir, func(k string) string { return env[k] }, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.http.CloseIdleConnections()
	o, err := c.Get(t.Context(), "/x")
	if err != nil {
		t.Fatal(err)
	}
	if token != "Bearer one" {
		t.Errorf("token %q", token)
	}
	if got := o.Map("metadata")["generation"]; got == nil || got.(interface{ String() string }).String() != "9007199254740993" {
		t.Errorf("a large number became %v", got)
	}
	now := time.Now()
	tokens := &tokenFile{path: filepath.Join(dir, "token"), now: func() time.Time { return now }}
	for _, want := range []string{"one", "one", "two"} {
		got, err := tokens.read()
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		write("token", []byte("two"))
		now = now.Add(31 * time.Second)
	}
}

func TestInClusterSaysWhatIsMissing(t *testing.T) {
	if _, err := InCluster(t.TempDir(), func(string) string { return "" }, ""); err == nil || !strings.Contains(err.Error(), "KUBERNETES_SERVICE_HOST") {
		t.Errorf("got %v", err)
	}
	if _, err := InCluster(t.TempDir(), func(string) string { return "x" }, ""); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("got %v", err)
	}
}

func TestClientErrors(t *testing.T) {
	tests := map[string]struct {
		code               int
		body               string
		conflict, notFound bool
		want               string
	}{
		"a conflict":            {409, `{"reason":"Conflict","message":"modified"}`, true, false, "get /x: 409 Conflict: modified"},
		"not found":             {404, `{"reason":"NotFound","message":"gone"}`, false, true, "get /x: 404 NotFound: gone"},
		"a proxy's page":        {502, `<html>`, false, false, "get /x: 502 Bad Gateway: no status in the answer"},
		"a redirect":            {302, `{}`, false, false, "get /x: 302 Found: "},
		"no object":             {200, `[]`, false, false, "get /x: the answer is no object: json: cannot unmarshal array into Go value of type kube.Object"},
		"more than we ever ask": {200, strings.Repeat(" ", maxObject+1), false, false, "get /x: the answer has more than 2097152 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			c := New(server.URL, newHTTPClient(nil), func() (string, error) { return "", nil }, "test")
			defer c.http.CloseIdleConnections()
			_, err := c.Get(t.Context(), "/x")
			if err == nil || err.Error() != test.want {
				t.Fatalf("got %v, want %s", err, test.want)
			}
			if IsConflict(err) != test.conflict || IsNotFound(err) != test.notFound {
				t.Errorf("conflict %v, not found %v", IsConflict(err), IsNotFound(err))
			}
		})
	}
}

func TestUpdateWantsAResourceVersion(t *testing.T) {
	c := New("http://127.0.0.1:1", newHTTPClient(nil), func() (string, error) { return "", nil }, "test")
	if _, err := c.Update(context.Background(), "/x", Object{}); err == nil || !strings.Contains(err.Error(), "resourceVersion") {
		t.Errorf("got %v", err)
	}
}

func TestCloneIsDeep(t *testing.T) {
	o := Object{"a": map[string]any{"b": []any{map[string]any{"c": "1"}}}}
	c := o.Clone()
	c.SetAnnotation("x", "y")
	c.Map("a")["b"].([]any)[0].(map[string]any)["c"] = "2"
	want := Object{"a": map[string]any{"b": []any{map[string]any{"c": "1"}}}}
	if d := cmp.Diff(want, o); d != "" {
		t.Error(d)
	}
	if c.Annotation("x") != "y" || o.Annotation("x") != "" {
		t.Error("annotations are shared")
	}
}
