package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// TestManagerWithItsOwnRights runs the operator as its service account on a real API server: it becomes ready, makes what a Database
// needs with the rights that config/rbac gives and no others, and ends in time.
func TestManagerWithItsOwnRights(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	api, err := cluster.StartAPI(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Stop()
	admin := prepare(t, api)
	for _, file := range []string{
		"rbac/role.yaml", "rbac/role_binding.yaml", "rbac/leader_election.yaml", "rbac/service_account.yaml",
	} {
		install(t, admin, filepath.Join("..", "config", filepath.FromSlash(file)))
	}
	t.Setenv("KUBECONFIG", as(t, api.Kubeconfig, dir, "plimsoll-system", "plimsoll-manager"))

	probes := freeAddress(t)
	o := options{
		agentImage: "registry.test/plimsoll:v1", operatorNamespace: "plimsoll-system", concurrent: 2, rotationTrust: 10 * time.Minute, logLevel: "info",
		elect: true, electionID: "plimsoll-manager", leaseDuration: 3 * time.Second, renewDeadline: 2 * time.Second, retryEvery: 400 * time.Millisecond,
		metricsAddress: "0", probeAddress: probes, webhookSelfManaging: "false",
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(running, o) }()
	within(t, "the manager to be ready", func() error {
		select {
		case err := <-ended:
			t.Fatalf("the manager ended at once: %v", err)
		default:
		}
		return ready("http://" + probes + "/readyz")
	})

	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}, Spec: v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: "15", Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")},
	}}
	within(t, "the Database to be taken", func() error { return client.IgnoreAlreadyExists(admin.Create(ctx, d)) })
	within(t, "the first pod and a status without an error", func() error {
		key := types.NamespacedName{Namespace: "shop", Name: "orders-1"}
		if err := admin.Get(ctx, key, &corev1.Pod{}); err != nil {
			return err
		}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == v1.ConditionReconciling && c.Reason == v1.ReasonCreating {
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", d.Status.Conditions)
	})

	measure := &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeName}}
	within(t, "the Probe to be taken", func() error { return client.IgnoreAlreadyExists(admin.Create(ctx, measure)) })
	within(t, "its DaemonSet, and a status without an error", func() error {
		key := types.NamespacedName{Namespace: v1.ProbeNamespace, Name: "plimsoll-probe"}
		if err := admin.Get(ctx, key, &appsv1.DaemonSet{}); err != nil {
			return err
		}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(measure), measure); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(measure.Status.Conditions, v1.ConditionReconciling); c == nil || strings.Contains(c.Message, "trying again") {
			return fmt.Errorf("the status is %+v", measure.Status.Conditions)
		}
		return nil
	})
	measure.Spec.Mode = v1.ProbeOff
	within(t, "the Probe to be switched off", func() error { return admin.Patch(ctx, measure, client.Merge) })
	within(t, "the DaemonSet to go", func() error {
		err := admin.Get(ctx, types.NamespacedName{Namespace: v1.ProbeNamespace, Name: "plimsoll-probe"}, &appsv1.DaemonSet{})
		if err == nil {
			return errors.New("it is there still")
		}
		return client.IgnoreNotFound(err)
	})

	began := time.Now()
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the manager ended with %v", err)
		}
		t.Logf("drained in %s", time.Since(began))
	case <-time.After(30 * time.Second):
		t.Error("the manager did not end within 30 s")
	}
}

// as writes a kubeconfig that acts as a service account.
func as(t *testing.T, kubeconfig, dir, namespace, account string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":" + account
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	file := filepath.Join(dir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func install(t *testing.T, c client.Client, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := documents.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && len(u.Object) > 0 {
			err = c.Create(t.Context(), u)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func ready(url string) error {
	resp, err := http.Get(url) //nolint:gosec // of this test's own making
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%d: %s", resp.StatusCode, body)
	}
	return nil
}

func within(t *testing.T, what string, is func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatalf("waited for %s: %v", what, err)
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"":                                 "--agent-image is empty",
		"--agent-image=x --log-level=loud": `--log-level is "loud"`,
		"--agent-image=x --max-concurrent-reconciles=0":                                             "--max-concurrent-reconciles is 0",
		"--agent-image=x --rotation-trust=1s":                                                       "--rotation-trust is 1s: give 10s to 168h0m0s",
		"--agent-image=x --leader-elect-lease-duration=2s":                                          "leader election: the lease duration 2s",
		"--agent-image=x --leader-elect-lease-duration=2900ms --leader-elect-renew-deadline=2500ms": "leader election: the lease duration 2.9s must, in whole seconds", // the others count 2 s
		"--agent-image=x --pprof-bind-address=:6060":                                                `--pprof-bind-address is ":6060": give a loopback address`,
		"--agent-image=x --webhook-self-managed=sometimes":                                          "--webhook-self-managed is",
	} {
		t.Setenv("RELATED_IMAGE_AGENT", "")
		t.Setenv("RELATED_IMAGE_OPERATOR", "")
		cmd := root()
		cmd.SetArgs(append([]string{"manager"}, strings.Fields(args)...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestTheElectionsTimeoutIsItsOwn : a watch by the manager's own configuration would end with every request that may take no longer.
func TestTheElectionsTimeoutIsItsOwn(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	o := options{elect: true, electionID: "plimsoll-manager", operatorNamespace: "plimsoll-system", renewDeadline: 2 * time.Second}
	if _, err := newLock(config, o, func(error) {}); err != nil {
		t.Fatal(err)
	}
	if config.Timeout != 0 || config.UserAgent != "" {
		t.Errorf("the manager's requests may take %s, by %q", config.Timeout, config.UserAgent)
	}
}
