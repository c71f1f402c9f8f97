package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestEveryStatementIsCounted: what clients send through the Service, over TLS, is at the metrics of the node's probe to the last one.
func TestEveryStatementIsCounted(t *testing.T) {
	t.Parallel()
	namespace := shared.namespace(t)
	shared.deployProbes(t)
	token := shared.scraper(t, namespace)
	d := shared.create(t, orders(namespace, 1))
	d.awaitReady(3 * time.Minute)
	pod := &corev1.Pod{}
	if err := shared.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "orders-1"}, pod); err != nil {
		t.Fatal(err)
	}
	var counted func(family, text string) (float64, error)
	eventually(t.Context(), t, 2*time.Minute, "a probe on "+pod.Spec.NodeName, func() error {
		address, err := shared.probeOn(t.Context(), pod.Spec.NodeName)
		counted = func(family, text string) (float64, error) {
			return countedOf(t.Context(), address, token, namespace, family, text)
		}
		return err
	})
	eventually(t.Context(), t, time.Minute, "clients to be sent to it", func() error {
		config, err := d.writable(t.Context())
		if err != nil {
			return err
		}
		return ping(t.Context(), config)
	})
	eventually(t.Context(), t, time.Minute, "the instance to be measured", func() error {
		d.sends(t, 1, "SELECT 1 AS first_of_all", pgx.QueryExecModeSimpleProtocol)
		n, err := counted("plimsoll_statements_total", "SELECT ? AS first_of_all")
		if err == nil && n == 0 {
			err = fmt.Errorf("none is counted")
		}
		return err
	})
	shared.awaitMeasured(t, pod.Spec.NodeName, 1)
	// Literals differ, and so do the protocols; two fail.
	d.sends(t, 100, "SELECT %d AS sent", pgx.QueryExecModeSimpleProtocol)
	d.sends(t, 37, "SELECT $1 AS sent", pgx.QueryExecModeExec)
	d.sends(t, 2, "SELECT 1/0 AS failed -- %d", pgx.QueryExecModeSimpleProtocol)
	for _, want := range []struct {
		family, text string
		n            float64
	}{
		{"plimsoll_statements_total", "SELECT ? AS sent", 137},
		{"plimsoll_statement_rows_total", "SELECT ? AS sent", 137},
		{"plimsoll_statements_total", "SELECT ? / ? AS failed", 2},
		{"plimsoll_statement_errors_total", "SELECT ? / ? AS failed", 2},
	} {
		eventually(t.Context(), t, 10*time.Second, want.family+" of "+want.text, func() error {
			n, err := counted(want.family, want.text)
			if err == nil && n != want.n {
				err = fmt.Errorf("%v are counted, want %v", n, want.n)
			}
			return err
		})
	}
	d.isWatched(t)
}

// isWatched looks at the statements as a person does who may run commands in the namespace's pods.
func (d *database) isWatched(t *testing.T) {
	t.Helper()
	eventually(t.Context(), t, time.Minute, "kubectl plimsoll top to show what was sent", func() error {
		call := d.call(t.Context(), "top", d.key.Name, "--total", "-o", "json")
		var words bytes.Buffer
		call.Stderr = &words
		out, err := call.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, &words)
		}
		var top struct {
			Statements []struct {
				Text   string
				Calls  uint64
				Errors map[string]uint64
			}
		}
		if err := json.Unmarshal(out, &top); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		sent, failed := uint64(0), map[string]uint64{}
		for _, row := range top.Statements {
			if row.Text == "SELECT ? AS sent" {
				sent += row.Calls
			}
			if row.Text == "SELECT ? / ? AS failed" {
				failed = row.Errors
			}
		}
		if sent != 137 || failed["22"] != 2 {
			return fmt.Errorf("%d were sent and %v failed:\n%s", sent, failed, out)
		}
		return nil
	})
	tail := d.call(t.Context(), "queries", d.key.Name, "-o", "json")
	said := &transcript{}
	tail.Stdout, tail.Stderr = said, said
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t.Context(), t, time.Minute, "kubectl plimsoll queries to show what fails", func() error {
		d.sends(t, 1, "SELECT 1/0 AS watched", pgx.QueryExecModeSimpleProtocol)
		time.Sleep(time.Second)
		if all := said.String(); !strings.Contains(all, `"db.query.text":"SELECT ? / ? AS watched"`) || !strings.Contains(all, `"db.response.status_code":"22012"`) {
			return fmt.Errorf("it says %q", all)
		}
		return nil
	})
	if err := tail.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := tail.Wait(); err != nil {
		t.Errorf("queries ended with %v, and said %s", err, said)
	}
	eventually(t.Context(), t, 30*time.Second, "no program to be left in the pod", func() error {
		out, err := d.cluster.Kubectl(t.Context(), "", "--namespace="+d.key.Namespace, "exec", "orders-1", "--container=database", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
		if err == nil && strings.Contains(out, " view told") {
			err = fmt.Errorf("there runs %s", out)
		}
		return err
	})
}

// transcript is what a program says while it runs.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is all of it until now.
func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// sends a statement so many times in one connection through the Service for writes: with its number in place of %d, or with a value for $1.
func (d *database) sends(t *testing.T, times int, text string, mode pgx.QueryExecMode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient(time.Minute))
	defer cancel()
	config, err := d.writable(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var c *pgx.Conn
	eventually(ctx, t, 15*time.Second, "a connection", func() error {
		c, err = pgx.ConnectConfig(ctx, config)
		return err
	})
	defer c.Close(context.WithoutCancel(ctx))
	for i := range times {
		args := []any{mode}
		if strings.Contains(text, "$1") {
			args = append(args, "x")
		}
		if _, err := c.Exec(ctx, strings.ReplaceAll(text, "%d", fmt.Sprint(i)), args...); err != nil && !strings.Contains(text, "1/0") {
			t.Fatal(err)
		}
	}
}

// deployProbes asks for a Probe until the test ends, and wants all that it made to go with it.
func (s *suite) deployProbes(t *testing.T) {
	t.Helper()
	probe := &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeName}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			out, err := s.cluster.Kubectl(ctx, "", "--namespace="+v1.ProbeNamespace, "logs", "--selector=app.kubernetes.io/component=probe", "--tail=100", "--prefix")
			t.Logf("the probes' log (%v):\n%s", err, out)
			out, err = s.cluster.Kubectl(ctx, "", "get", "probe", "cluster", "--output=yaml")
			t.Logf("the Probe (%v):\n%s", err, out)
		}
		if err := s.Delete(ctx, probe); err != nil {
			t.Errorf("delete the Probe: %v", err)
		}
		eventually(ctx, t, time.Minute, "the probes' namespace to go", func() error {
			err := s.Get(ctx, client.ObjectKey{Name: v1.ProbeNamespace}, &corev1.Namespace{})
			if err == nil {
				return errors.New("it is there still")
			}
			return client.IgnoreNotFound(err)
		})
	})
	if err := s.Create(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
}

// awaitMeasured waits until the Probe says that so many instances of a node are measured; others may come and go there.
func (s *suite) awaitMeasured(t *testing.T, node string, instances int32) {
	t.Helper()
	eventually(t.Context(), t, 2*time.Minute, "the Probe to say that "+node+" is measured", func() error {
		p := &v1.Probe{}
		if err := s.Get(t.Context(), client.ObjectKey{Name: v1.ProbeName}, p); err != nil {
			return err
		}
		i := slices.IndexFunc(p.Status.Nodes, func(n v1.NodeStatus) bool { return n.Name == node })
		if i < 0 {
			return fmt.Errorf("the status names no such node: %+v", p.Status)
		}
		n := p.Status.Nodes[i]
		if n.Instances.Measured < instances || !slices.Equal(n.Hooks, []string{"connections", "programs", "syscalls"}) {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
}

// probeOn is where the probe of a node serves its metrics.
func (s *suite) probeOn(ctx context.Context, node string) (string, error) {
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(v1.ProbeNamespace), client.MatchingLabels{"app.kubernetes.io/component": "probe"}); err != nil {
		return "", err
	}
	for _, p := range pods.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if p.Spec.NodeName == node && ready {
			return p.Status.PodIP + ":8443", nil
		}
	}
	return "", fmt.Errorf("none of %d is ready there", len(pods.Items))
}

// scraper is the token of a ServiceAccount that may see metrics.
func (s *suite) scraper(t *testing.T, namespace string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scraper"}}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	}
	for _, obj := range []client.Object{account, bound} {
		if err := s.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := s.Delete(context.Background(), bound); err != nil {
			t.Error(err)
		}
	})
	request := &authenticationv1.TokenRequest{}
	if err := s.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// countedOf sums a family over the statements of a namespace with a text.
func countedOf(ctx context.Context, address, token, namespace, family, text string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	// The probe's certificate is its own.
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := c.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the probe answers %s", answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return 0, err
	}
	ids := map[string]bool{}
	for _, m := range families["plimsoll_statement_info"].GetMetric() {
		if l := labelsOf(m); l["namespace"] == namespace && l["text"] == text {
			ids[l["query_id"]] = true
		}
	}
	var sum float64
	for _, m := range families[family].GetMetric() {
		if l := labelsOf(m); l["namespace"] == namespace && ids[l["query_id"]] {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum, nil
}

func labelsOf(m *dto.Metric) map[string]string {
	all := map[string]string{}
	for _, l := range m.GetLabel() {
		all[l.GetName()] = l.GetValue()
	}
	return all
}
