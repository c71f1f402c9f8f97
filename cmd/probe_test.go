package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

func TestProbeOptionsThatCannotWork(t *testing.T) {
	good := probeOptions{node: "node-1", statements: 100, clients: clientsByWorkload, clientSeries: 50, logLevel: "info"}
	if err := good.check(); err != nil {
		t.Errorf("good options: %v", err)
	}
	for want, change := range map[string]func(*probeOptions){
		"--node is empty":                                    func(o *probeOptions) { o.node = "" },
		"--statements is 0":                                  func(o *probeOptions) { o.statements = 0 },
		"--statements is 10000":                              func(o *probeOptions) { o.statements = 10000 },
		"--slow-statements is -1s":                           func(o *probeOptions) { o.slow = -time.Second },
		"--otlp-endpoint: \"collector:4318\" is no endpoint": func(o *probeOptions) { o.otlpEndpoint = "collector:4318" },
		`--log-level is "loud"`:                              func(o *probeOptions) { o.logLevel = "loud" },
		`--operator is "manager": give the namespace`:        func(o *probeOptions) { o.operator = "manager" },
		`--clients is "ip"`:                                  func(o *probeOptions) { o.clients = "ip" },
		"--client-series is 0":                               func(o *probeOptions) { o.clientSeries = 0 },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// instancePod is the pod that the manager makes, with what the kubelet says of it.
func instancePod(t *testing.T) *corev1.Pod {
	t.Helper()
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "8d6e0a4c-3a52-4f6e-9d60-1f2b7c1f0a11"}, Spec: v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: "15", Replicas: new(int32(1)), Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")},
	}}
	in := desired.Inputs{
		Database: d, Parts: postgres.New(postgres.Options{}).Parts(d), Effective: v1.EffectiveSpec{Image: "registry.test/postgres:15"},
		AgentImage: "registry.test/plimsoll:v1", OperatorNamespace: "plimsoll-system",
	}
	pod := desired.Pod(in, desired.Instance{Ordinal: 1})
	pod.Labels[v1.LabelRole] = string(v1.RolePrimary)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: desired.DatabaseContainer, ContainerID: "containerd://" + strings.Repeat("1a", 32), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return pod
}

func TestTheProbeKnowsThePodsThatTheManagerMakes(t *testing.T) {
	pod := instancePod(t)
	pod.UID = "0f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34"
	got, ok := attribute.OfPod(pod)
	want := attribute.Instance{
		Namespace: "shop", Database: "orders", Name: "orders-1", Role: "primary", Engine: attribute.PostgreSQL, Port: 5432,
		Container: attribute.Container{Pod: string(pod.UID), ID: strings.Repeat("1a", 32)},
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v (-want +got)\n%s", ok, diff)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a witness":               func(p *corev1.Pod) { p.Labels[v1.LabelKind] = v1.KindWitness },
		"no pod of a Database":    func(p *corev1.Pod) { delete(p.Labels, v1.LabelDatabase) },
		"a container that waits":  func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} },
		"another container alone": func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "sidecar" },
	} {
		other := pod.DeepCopy()
		change(other)
		if i, ok := attribute.OfPod(other); ok {
			t.Errorf("%s is taken for %+v", name, i)
		}
	}
}

// TestProbeWithItsOwnRights runs the probe as its service account on a real API server: it finds the instances of its node, and shows its
// metrics to those alone who may see them.
func TestProbeWithItsOwnRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading programs into the kernel needs root")
	}
	dir := t.TempDir()
	api, err := cluster.StartAPI(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Stop()
	admin := prepare(t, api)
	in := desired.ProbeInputs{Probe: &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeName}}}
	for _, obj := range []client.Object{desired.ProbeNamespace(in), desired.ProbeServiceAccount(in)} {
		obj.SetOwnerReferences(nil)
		if err := admin.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"rbac/probe_role.yaml", "rbac/probe_role_binding.yaml", "rbac/metrics_reader_role.yaml"} {
		install(t, admin, filepath.Join("..", "config", filepath.FromSlash(file)))
	}
	for _, node := range []string{"node-1", "node-2"} {
		makePod(t, admin, node)
	}
	t.Setenv("KUBECONFIG", as(t, api.Kubeconfig, dir, "plimsoll-probe", "plimsoll-probe"))
	health, served := freeAddress(t), freeAddress(t)
	manager := makeManager(t, admin)
	ended := make(chan error, 1)
	go func() {
		ended <- runProbe(t.Context(), probeOptions{
			node: "node-1", cgroups: "/sys/fs/cgroup", proc: "/proc", statements: 10, clients: clientsByWorkload, clientSeries: 10, logLevel: "info",
			metricsAddress: served, metricsSecure: true, healthAddress: health, operator: manager.Namespace + "/" + manager.Name, operatorEvery: 100 * time.Millisecond,
		})
	}()
	within(t, "the probe to be ready", func() error {
		select {
		case err := <-ended:
			t.Fatalf("the probe ended at once: %v", err)
		default:
		}
		return ready("http://" + health + "/readyz")
	})
	scraper, stranger := scraperToken(t, admin, "scraper", true), scraperToken(t, admin, "stranger", false)
	// The instance of this node alone; its container is not on this machine, so that it waits.
	within(t, "the instance to be known", func() error {
		status, page := metricsAt(t, served, scraper)
		if want := `plimsoll_probe_instances{state="waiting"} 1`; status != http.StatusOK || !strings.Contains(page, want+"\n") {
			return fmt.Errorf("status %d, without %s", status, want)
		}
		return nil
	})
	for token, want := range map[string]int{"": http.StatusUnauthorized, stranger: http.StatusForbidden} {
		if status, _ := metricsAt(t, served, token); status != want {
			t.Errorf("a scrape without the right is answered %d, want %d", status, want)
		}
	}
	if err := admin.Delete(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	within(t, "nothing to be measured without the operator", func() error {
		status, page := metricsAt(t, served, scraper)
		if status != http.StatusOK || strings.Contains(page, "plimsoll_probe_instances") {
			return fmt.Errorf("status %d, instances are shown", status)
		}
		if ready("http://"+health+"/readyz") == nil {
			return errors.New("it is ready")
		}
		return ready("http://" + health + "/healthz")
	})
	makeManager(t, admin)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the probe ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the probe did not end within 30 s, so that it began anew")
	}
}

// makeManager makes the Deployment of the manager, by which a probe knows that its operator is there.
func makeManager(t *testing.T, admin client.Client) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": "manager"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plimsoll-manager"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "manager", Image: "registry.test/plimsoll:v1"}},
		}},
	}}
	if err := admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// makePod makes the pod of an instance that runs on a node.
func makePod(t *testing.T, admin client.Client, node string) {
	t.Helper()
	pod := instancePod(t)
	status := pod.Status
	pod.Name, pod.Spec.NodeName = "orders-on-"+node, node
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	if err := admin.Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.ContainerStatuses = status.ContainerStatuses
	if err := admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// scraperToken is that of a ServiceAccount, with the right to see metrics or without.
func scraperToken(t *testing.T, admin client.Client, name string, may bool) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if err := admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if may {
		bound := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-metrics-reader"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: name}},
		}
		if err := admin.Create(t.Context(), bound); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// metricsAt asks for the metrics. The certificate is the probe's own.
func metricsAt(t *testing.T, address, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := c.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(page)
}
