package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/scrape"
)

// TestWhoMaySeeTheMetrics asks as ServiceAccounts of a real API server, with tokens that it signed.
func TestWhoMaySeeTheMetrics(t *testing.T) {
	calls := 0
	config := rest.CopyConfig(shared.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { calls++; return next.RoundTrip(r) })
	})
	own, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := scrape.Filter(config, own)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if err != nil {
		t.Fatal(err)
	}
	all, err := kubernetes.NewForConfig(shared.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	token := func(name string, audiences ...string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if _, err := all.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		made, err := all.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.Status.Token
	}
	scraper, stranger := token("scraper"), token("stranger")
	elsewhere := token("elsewhere", "https://vault.test")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if _, err := all.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}, {Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "elsewhere"},
		},
	}
	if _, err := all.RbacV1().ClusterRoleBindings().Create(ctx, bound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, method, path, header string) int {
		r := httptest.NewRequestWithContext(ctx, method, path, nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		return w.Code
	}
	for _, row := range []struct {
		what, method, path, header string
		want                       int
	}{
		{"nobody", http.MethodGet, "/metrics", "", http.StatusUnauthorized},
		{"a password", http.MethodGet, "/metrics", "Basic c2NyYXBlcjp4", http.StatusUnauthorized},
		{"a token that nobody signed", http.MethodGet, "/metrics", "Bearer " + stranger + "x", http.StatusUnauthorized},
		{"a token for another audience", http.MethodGet, "/metrics", "Bearer " + elsewhere, http.StatusUnauthorized},
		{"a token without the right", http.MethodGet, "/metrics", "Bearer " + stranger, http.StatusForbidden},
		{"one with the right", http.MethodGet, "/metrics", "Bearer " + scraper, http.StatusTeapot},
		{"which is for this verb alone", http.MethodPost, "/metrics", "Bearer " + scraper, http.StatusForbidden},
		{"and for this path alone", http.MethodGet, "/debug", "Bearer " + scraper, http.StatusForbidden},
	} {
		if got := ask(ctx, row.method, row.path, row.header); got != row.want {
			t.Errorf("%s: %d, want %d", row.what, got, row.want)
		}
	}
	before := calls
	for range 10 {
		ask(ctx, http.MethodGet, "/metrics", "Bearer "+scraper)
	}
	if calls != before {
		t.Errorf("ten scrapes asked the API server %d times", calls-before)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if got := ask(ended, http.MethodGet, "/metrics", "Bearer another"); got != http.StatusInternalServerError {
		t.Errorf("while the API server does not answer: %d, want %d", got, http.StatusInternalServerError)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
