package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
	"github.com/plimsoll-dev/plimsoll-operator/tests/install"
)

// The manager's ports.
const (
	metricsPort = 8443
	probesPort  = 8081
)

// TestAtRest looks at two Databases from outside, one of them with Secrets that its user keeps: strangers do not reach the agents,
// monitoring reads the manager's metrics with a token, and then nothing is written for longer than the manager's slowest cycle.
func TestAtRest(t *testing.T) {
	t.Parallel()
	namespace := shared.namespace(t)
	wish := orders(namespace, 2)
	wish.Spec.Bootstrap.Owner, wish.Spec.Bootstrap.CredentialsSecret = "seller", "seller"
	wish.Spec.TLS.ServerSecret = "orders-tls"
	// In mode preferred a pair on a busy machine goes on with one for a moment now and then, and the Lease says so.
	wish.Spec.Replication.Synchronous = v1.SynchronousRequired
	d := &database{suite: shared, t: t, key: client.ObjectKeyFromObject(wish), host: "orders-rw." + namespace + ".svc"}
	d.keep("seller", map[string]string{"username": "seller", "password": "a-Password"})
	d.keep("orders-tls", issue(t, authority.New(t), d.host, "*.orders-members."+namespace+".svc"))
	shared.create(t, wish)
	plain := orders(namespace, 1)
	plain.Name = "billing"
	other := shared.create(t, plain)
	d.awaitReady(readyLimit)
	other.awaitReady(readyLimit)

	t.Run("FromOutside", func(t *testing.T) {
		elsewhere := shared.namespace(t)
		d.in(t).strangers(elsewhere)
		d.in(t).metrics(elsewhere)
	})
	quiet(t, d, 75*time.Second)
}

// in is the Database as a part of its test sees it.
func (d *database) in(t *testing.T) *database {
	part := *d
	part.t = t
	return &part
}

// strangers knock at what the NetworkPolicies keep from them, and at what they leave open.
func (d *database) strangers(elsewhere string) {
	t := d.t
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "stranger"}}
	pod.Spec = corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "database", Image: "docker.io/library/postgres:" + oldVersion, Command: []string{"sleep", "600"},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
	if err := shared.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	address := d.address(t, d.key.Namespace, "orders-1")
	eventually(t.Context(), t, time.Minute, "a stranger reaches the server of orders-1, which is open to all", func() error {
		return shared.knock(t.Context(), elsewhere, pod.Name, address, 5432)
	})
	manager := ""
	for _, m := range shared.managers(t) {
		manager = m.Status.PodIP
	}
	for _, row := range []struct {
		what, namespace, pod, address string
		port                          int
		open                          bool
	}{
		{"another instance to the agent", d.key.Namespace, "orders-2", address, engine.AgentPort, true},
		{"a pod of another namespace to the agent", elsewhere, pod.Name, address, engine.AgentPort, false},
		{"a pod of another namespace to the health port", elsewhere, pod.Name, address, engine.HealthPort, false},
		{"an instance of another Database to the agent", d.key.Namespace, "billing-1", address, engine.AgentPort, false},
		{"an instance of another Database to the server", d.key.Namespace, "billing-1", address, 5432, true},
		{"a pod of another namespace to the manager's metrics", elsewhere, pod.Name, manager, metricsPort, true},
		{"a pod of another namespace to the manager's probes", elsewhere, pod.Name, manager, probesPort, false},
	} {
		if err := shared.knock(t.Context(), row.namespace, row.pod, row.address, row.port); (err == nil) != row.open {
			t.Errorf("%s: gets in: %t, want %t (%v)", row.what, err == nil, row.open, err)
		}
	}
}

// knock opens a connection from the database container of a pod.
func (s *suite) knock(ctx context.Context, namespace, pod, address string, port int) error {
	_, err := s.cluster.Kubectl(ctx, "", "--namespace="+namespace, "exec", pod, "--container=database", "--",
		"timeout", "3", "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"`, address, strconv.Itoa(port))
	return err
}

func (s *suite) address(t *testing.T, namespace, name string) string {
	t.Helper()
	pod := &corev1.Pod{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	return pod.Status.PodIP
}

// managers are the operator's pods that run.
func (s *suite) managers(t *testing.T) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	if err := s.List(t.Context(), list, client.InNamespace(install.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < 2 {
		t.Fatalf("the operator has %d pods, want two", len(list.Items))
	}
	return list.Items
}

// metrics are scraped as monitoring does: by a ServiceAccount that has the role for it, and by nobody else.
func (d *database) metrics(namespace string) {
	t := d.t
	const reader = "monitoring"
	token, other := shared.token(t, namespace, reader), shared.token(t, namespace, "somebody")
	managers := shared.managers(t)
	for reason, row := range map[string]struct {
		token string
		want  int
	}{
		"without a token": {"", http.StatusUnauthorized}, "without the role": {other, http.StatusForbidden},
		"with a token that nobody gave": {"x" + other, http.StatusUnauthorized},
	} {
		if code, body := scrape(t, managers[0].Status.PodIP, row.token); code != row.want || strings.Contains(body, "plimsoll_") {
			t.Errorf("metrics %s: %d, want %d: %.200s", reason, code, row.want, body)
		}
	}

	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: reader}},
	}
	if err := shared.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Delete(context.WithoutCancel(t.Context()), binding) })
	service := &corev1.Service{}
	if err := shared.Get(t.Context(), client.ObjectKey{Namespace: install.Namespace, Name: "plimsoll-manager-metrics"}, service); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf(`{database="orders",instance="orders-%%d",namespace=%q,role=%%q}`, d.key.Namespace)
	leader, _ := d.roles()
	var want []string
	for n := range 2 {
		role := v1.RoleReplica
		if leader == fmt.Sprintf("orders-%d", n+1) {
			role = v1.RolePrimary
		}
		want = append(want, "plimsoll_instance_role"+fmt.Sprintf(at, n+1, role)+" 1\n")
	}
	want = append(want, "plimsoll_database_instances{", "plimsoll_reconciles_total{", "plimsoll_instance_volume_used_bytes{")
	// Each scrape reaches one of the two, and only the elected one has Databases to tell of.
	eventually(t.Context(), t, time.Minute, "the elected manager tells of both instances", func() error {
		code, body := scrape(t, service.Spec.ClusterIP, token)
		for _, line := range want {
			if code != http.StatusOK || !strings.Contains(body, line) {
				return fmt.Errorf("%d, without %q, in %d bytes", code, line, len(body))
			}
		}
		return nil
	})
}

// token of a ServiceAccount that is made for it.
func (s *suite) token(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := s.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	asked := &authenticationv1.TokenRequest{}
	if err := s.SubResource("token").Create(t.Context(), account, asked); err != nil {
		t.Fatal(err)
	}
	return asked.Status.Token
}

// scrape asks for the metrics on a connection of its own.
func scrape(t *testing.T, address, token string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(address, strconv.Itoa(metricsPort))+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The manager's certificate is its own, as config/prometheus says; the token is what keeps others out.
	way := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	answer, err := way.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 8<<20))
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}
