package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestProvision is what a new user does first: ten lines of YAML, three instances, psql with the Secret's uri.
func TestProvision(t *testing.T) {
	t.Parallel()
	namespace := shared.namespace(t)
	began := time.Now()
	manifest := fmt.Sprintf(`apiVersion: plimsoll.dev/v1
kind: Database
metadata:
  name: orders
spec:
  engine: postgres
  version: %q
  replicas: 3
  storage:
    size: 1Gi
`, oldVersion)
	if out, err := shared.cluster.Kubectl(t.Context(), manifest, "--namespace="+namespace, "apply", "-f", "-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	d := &database{suite: shared, t: t, key: client.ObjectKey{Namespace: namespace, Name: "orders"}, host: "orders-rw." + namespace + ".svc"}
	d.awaitReady(readyLimit)
	t.Logf("create to Ready: %s", time.Since(began).Round(10*time.Millisecond))

	now, err := d.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roles := map[v1.Role]int{}
	nodes := map[string]bool{}
	for _, i := range now.Status.Instances {
		roles[i.Role]++
		nodes[i.Node] = true
		if i.Position == "" || i.Version != oldVersion {
			t.Errorf("instance %s: position %q, version %q", i.Name, i.Position, i.Version)
		}
	}
	if roles[v1.RolePrimary] != 1 || roles[v1.RoleReplica] != 2 || len(nodes) != 3 {
		t.Errorf("roles %v on nodes %v, want one primary and two replicas on three nodes", roles, nodes)
	}
	if now.Status.Phase != v1.PhaseRunning || now.Status.Epoch < 1 || now.Status.Leader == "" || len(now.Status.Certificates) == 0 {
		t.Errorf("status %+v", now.Status)
	}
	if err := condition(now, v1.ConditionDurable, metav1.ConditionTrue, v1.ReasonMajority); err != nil {
		t.Error(err)
	}
	s, err := d.secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"username", "password", "host", "port", "dbname", "uri", "ca.crt"} {
		if len(s.Data[key]) == 0 {
			t.Errorf("Secret %s has no %s", s.Name, key)
		}
	}
	stockPsql(t, namespace, "orders-app", "orders-ro", "orders-r")
	out, err := d.plimsoll("status", "orders")
	if err != nil || !strings.Contains(out, now.Status.Leader) {
		t.Errorf("kubectl plimsoll status (%v):\n%s", err, out)
	}
	out, err = d.plimsoll("psql", "orders", "--", "-Atc", "select count(*) from pg_stat_replication")
	if err != nil || strings.TrimSpace(out) != "2" {
		t.Errorf("kubectl plimsoll psql (%v): %q, want 2 replicas", err, out)
	}
	quiet(t, d, 10*time.Second)
}

// stockPsql connects as an application does: a stock image, the Secret mounted where its uri says, nothing else. It goes on to the
// Services for reads by their names, which the same certificate must hold.
func stockPsql(t *testing.T, namespace, secret string, reads ...string) {
	t.Helper()
	const script = `case $URI in *sslmode=verify-full*) ;; *) echo "the uri does not ask for verify-full"; exit 1;; esac
		write=${URI#*@}; write=${write%%.*}
		for service in "$write" "$@"; do
			for try in 1 2 3 4 5 6 7 8 9 ten; do # a node sends connections to a new pod a moment after that is ready
				psql "$(echo "$URI" | sed "s/@$write\./@$service./")" -Atc "select '$service through TLS ' || ssl || ', replays ' || pg_is_in_recovery() from pg_stat_ssl where pid = pg_backend_pid()" && break
				[ $try != ten ] || exit 1
				sleep 1
			done
		done`
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "client"}}
	pod.Spec = corev1.PodSpec{
		RestartPolicy:   corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "psql", Image: "docker.io/library/postgres:" + oldVersion,
			Command:         append([]string{"/bin/sh", "-c", script, "sh"}, reads...),
			Env:             []corev1.EnvVar{{Name: "URI", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "uri"}}}},
			VolumeMounts:    []corev1.VolumeMount{{Name: "credentials", MountPath: "/etc/plimsoll/" + secret, ReadOnly: true}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
		Volumes: []corev1.Volume{{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
	}
	if err := shared.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	eventually(t.Context(), t, time.Minute, "psql in a stock image ends well", func() error {
		if err := shared.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		out, _ := shared.cluster.Kubectl(t.Context(), "", "--namespace="+namespace, "logs", pod.Name)
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("pod %s: %s", pod.Status.Phase, out)
		}
		if !strings.Contains(out, "-rw through TLS true, replays false") || strings.Count(out, "through TLS true") != 1+len(reads) {
			return fmt.Errorf("it said %q", out)
		}
		for _, service := range reads {
			if strings.HasSuffix(service, "-ro") && !strings.Contains(out, service+" through TLS true, replays true") {
				return fmt.Errorf("it said %q", out)
			}
		}
		return nil
	})
}

// quiet checks that an idle Database causes no write: no object of its namespace changes its resourceVersion for a time.
// Neither the manager nor an agent may write to say that nothing has happened, and a log that a server moves by itself is nothing.
// A manager that begins to act, as happens where the machine is too busy to renew a Lease, may write each status once: then it is tried again.
func quiet(t *testing.T, d *database, during time.Duration) {
	t.Helper()
	for range 3 {
		acting := d.acting(t)
		// What was done before settles first: the client's pod ends, the endpoints of the last instance are published.
		eventually(t.Context(), t, 20*time.Second, "what was done before has settled", func() error {
			before := d.objects(t)
			time.Sleep(2 * time.Second)
			return differs(before, d.objects(t))
		})
		before := d.objects(t)
		time.Sleep(during)
		err := differs(before, d.objects(t))
		if err == nil {
			return
		}
		if d.acting(t) == acting {
			t.Errorf("in %s in which nothing happened %v", during, err)
			return
		}
		t.Logf("another manager acts since, and %v", err)
	}
	t.Errorf("no manager acted for as long as %s", during)
}

// acting is which manager acts, and since when.
func (d *database) acting(t *testing.T) string {
	t.Helper()
	l, err := d.election(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(ptr.Deref(l.Spec.HolderIdentity, ""), l.Spec.AcquireTime)
}

// objects of the Database's namespace, by kind and name.
func (d *database) objects(t *testing.T) map[string]client.Object {
	t.Helper()
	found := map[string]client.Object{}
	for _, list := range []client.ObjectList{
		&v1.DatabaseList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{},
		&corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &coordinationv1.LeaseList{}, &discoveryv1.EndpointSliceList{},
		&networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
		&corev1.EventList{},
	} {
		if err := d.List(t.Context(), list, client.InNamespace(d.key.Namespace)); err != nil {
			t.Fatal(err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			object, ok := o.(client.Object)
			if !ok {
				return fmt.Errorf("%T is no object of the API", o)
			}
			found[fmt.Sprintf("%T %s", o, object.GetName())] = object
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// differs tells what was written, and how; of a Secret only that.
func differs(before, after map[string]client.Object) error {
	var written []string
	for key, object := range after {
		was, had := before[key]
		if had && was.GetResourceVersion() == object.GetResourceVersion() {
			continue
		}
		if _, secret := object.(*corev1.Secret); !secret {
			key += "\n" + cmp.Diff(was, object)
		}
		written = append(written, key)
	}
	if len(written) > 0 {
		slices.Sort(written)
		return fmt.Errorf("these were written: %s", strings.Join(written, ", "))
	}
	return nil
}
