package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// everyField is a Database of the oldest version of the API with every field that can stand beside the others.
const everyField = `apiVersion: plimsoll.dev/v1alpha1
kind: Database
metadata:
  name: orders
spec:
  engine: postgres
  version: "15.18"
  image: registry.plimsoll.test:5000/postgres:15.18
  imagePullSecrets: [{name: pull}]
  runAsUser: 100
  replicas: 3
  maxReplicas: 5
  storage:
    size: 1024Mi
    class: local
    wal: {size: 536870912, class: local}
    growth: {whenFullPercent: 90, stepPercent: 50, maxSize: 2Gi}
  resources:
    requests: {cpu: "0.05", memory: 128Mi}
    limits: {memory: 512Mi}
  parameters: {work_mem: 6MB}
  postgres: {hba: ["hostssl shop seller 192.0.2.0/24 reject"]}
  replication: {synchronous: required}
  tls: {serverSecret: orders-tls}
  bootstrap:
    database: shop
    owner: seller
    credentialsSecret: seller
    sql:
    - configMapKeyRef: {name: schema, key: tables.sql}
    - secretKeyRef: {name: rows, key: rows.sql}
  region: eu-north
  scheduling:
    spread: required
    nodeSelector: {kubernetes.io/os: linux}
    tolerations: [{key: databases, operator: Exists, effect: NoSchedule}]
    priorityClassName: %s
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [zone-a, zone-b, zone-c]}]
  observability: {statements: {slow: 1500ms, failed: false, literals: true}}
  maintenance: {paused: false, hibernated: false, fenced: []}
  deletionPolicy: Delete
`

// TestEveryField brings a Database with every field to life: what is missing or wrong is named, each field does what it says, and
// the Secrets that its user keeps are changed while clients write, with no restart.
func TestEveryField(t *testing.T) {
	t.Parallel()
	namespace := shared.namespace(t)
	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Value: 1000}
	if err := shared.Create(t.Context(), priority); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shared.Delete(context.Background(), priority) })
	out, err := shared.cluster.Kubectl(t.Context(), fmt.Sprintf(everyField, priority.Name), "--namespace="+namespace, "apply", "-f", "-")
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	d := &database{suite: shared, t: t, key: client.ObjectKey{Namespace: namespace, Name: "orders"}, host: "orders-rw." + namespace + ".svc"}
	names := []string{d.host, "*.orders-members." + namespace + ".svc"}

	d.lacks("Secret seller", "create it")
	d.keep("rows", map[string]string{"rows.sql": "INSERT INTO items VALUES (1, 'anchor'), (2, 'rope');"})
	d.keep("pull", map[string]string{"unused": "the registry lets everybody in"})
	schema := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "schema"}, Data: map[string]string{"tables.sql": "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL);"}}
	if err := d.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	d.keep("seller", map[string]string{"username": "somebody", "password": "first-Password"})
	d.lacks(`"somebody"`, `"seller"`)
	first := authority.New(t)
	d.keep("orders-tls", issue(t, first, "orders.example.com"))
	d.keep("seller", map[string]string{"username": "seller", "password": "first-Password"})
	d.lacks("orders-tls", "not for "+d.host)
	d.keep("orders-tls", issue(t, first, names...))
	d.awaitReady(readyLimit)
	d.everyFieldHolds(priority.Name)
	stockPsql(t, namespace, "orders-app")

	w := d.ledger()
	before := d.pods()
	session := d.session()
	second := authority.New(t)
	d.brokenCertificate(issue(t, second, "orders.example.com"))
	d.newCertificate(issue(t, second, names...))
	d.newPassword("second-Password")
	d.growLog(resource.MustParse("640Mi"))
	if err := session.Ping(t.Context()); err != nil {
		t.Errorf("a session from before the new certificate and password: %v", err)
	}
	w.moves(10 * time.Second)
	if after := d.pods(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were replaced or restarted: %v before, %v after", before, after)
	}
	_, replicas := d.roles()
	d.switchover(replicas[0])
	d.awaitReady(time.Minute)
	account, gap := w.settle(time.Time{})
	if account.Hands() != 1 {
		t.Errorf("the writer changed %d times in one switchover", account.Hands())
	}
	t.Logf("longest gap, with a switchover on volumes of their own for the log: %s", gap.Round(time.Millisecond))
}

// lacks waits for the word about what is missing or wrong.
func (d *database) lacks(words ...string) {
	d.t.Helper()
	d.await(90*time.Second, fmt.Sprintf("stalled, and %q named", words), func(now *v1.Database) error {
		return condition(now, v1.ConditionStalled, metav1.ConditionTrue, v1.ReasonSecretMissing, words...)
	})
}

// keep writes a Secret as its user does.
func (d *database) keep(name string, data map[string]string) {
	d.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: name}, StringData: data}
	err := d.Create(d.t.Context(), s)
	if client.IgnoreAlreadyExists(err) == nil && err != nil {
		err = d.Update(d.t.Context(), s)
	}
	if err != nil {
		d.t.Fatalf("write Secret %s: %v", name, err)
	}
}

// everyFieldHolds looks at what the fields of everyField made, as a user can.
func (d *database) everyFieldHolds(priority string) {
	d.t.Helper()
	now, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	nodes := map[string]bool{}
	for _, i := range now.Status.Instances {
		nodes[i.Node] = true
		d.logOnItsVolume(i.Name)
	}
	if len(nodes) != 3 {
		d.t.Errorf("instances on nodes %v, want three", nodes)
	}
	d.shows("work_mem", "6MB")
	pods := &corev1.PodList{}
	if err := d.List(d.t.Context(), pods, client.InNamespace(d.key.Namespace), client.HasLabels{v1.LabelDatabase}); err != nil {
		d.t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.PriorityClassName != priority || len(p.Spec.ImagePullSecrets) != 1 || p.Spec.NodeSelector["kubernetes.io/os"] != "linux" {
			d.t.Errorf("pod %s: priority %q, pull Secrets %v, node selector %v", p.Name, p.Spec.PriorityClassName, p.Spec.ImagePullSecrets, p.Spec.NodeSelector)
		}
	}
	session := d.session()
	var database, owner, items, rule string
	err = session.QueryRow(d.t.Context(), `SELECT current_database(), (SELECT tableowner FROM pg_tables WHERE tablename = 'items'),
		(SELECT string_agg(name, ' ' ORDER BY id) FROM items), session_user`).Scan(&database, &owner, &items, &rule)
	if err != nil {
		d.t.Fatal(err)
	}
	if got := strings.Join([]string{database, owner, items, rule}, ", "); got != "shop, seller, anchor rope, seller" {
		d.t.Errorf("database, owner of the table, rows and user are %s", got)
	}
	out, err := d.plimsoll("psql", "orders", "--", "-Atc", "select count(*) from pg_hba_file_rules where auth_method = 'reject' and address = '192.0.2.0'")
	if err != nil || strings.TrimSpace(out) != "1" {
		d.t.Errorf("the line of pg_hba.conf is there %q times (%v)", out, err)
	}
}

// logOnItsVolume checks that pg_wal leads to a file system other than the data's, and that the log is there.
func (d *database) logOnItsVolume(instance string) {
	d.t.Helper()
	out, err := d.plimsoll("psql", d.key.Name, "--instance="+instance, "--", "-Atc", "show data_directory")
	data := strings.TrimSpace(out)
	if err != nil || !path.IsAbs(data) {
		d.t.Fatalf("data directory of %s: %q (%v)", instance, out, err)
	}
	const script = `cd "$1" && test "$(stat -c %d pg_wal/.)" != "$(stat -c %d .)" && ls pg_wal/ | grep -c '^[0-9A-F]\{24\}$'`
	out, err = d.cluster.Kubectl(d.t.Context(), "", "--namespace="+d.key.Namespace, "exec", instance, "--container=database", "--", "sh", "-c", script, "sh", data)
	if err != nil {
		d.t.Errorf("the log of %s is not on a volume of its own: %v\n%s", instance, err, out)
	}
}

// growLog grows the volumes of the log, and of nothing else.
func (d *database) growLog(size resource.Quantity) {
	d.t.Helper()
	before := d.claims()
	d.change(func(s *v1.DatabaseSpec) { s.Storage.WAL.Size = size })
	d.awaitReady(time.Minute)
	for name, c := range d.claims() {
		want := before[name].Status.Capacity[corev1.ResourceStorage]
		if strings.HasSuffix(name, "-wal") {
			want = size
		}
		if has := c.Status.Capacity[corev1.ResourceStorage]; has.Cmp(want) != 0 {
			d.t.Errorf("volume %s has %s, want %s", name, has.String(), want.String())
		}
	}
	for name := range d.pods() {
		out, err := d.cluster.Kubectl(d.t.Context(), "", "--namespace="+d.key.Namespace, "exec", name, "--container=database", "--", "df", "--block-size=1M", "--output=size", "/var/lib/plimsoll/wal")
		words := strings.Fields("nothing " + out)
		if seen, unread := strconv.Atoi(words[len(words)-1]); err != nil || unread != nil || seen < 550 {
			d.t.Errorf("%s sees of its volume for the log, in MiB: %q (%v)", name, out, err)
		}
	}
}

// brokenCertificate writes one that no client would take: it is named, and the servers show the one from before.
func (d *database) brokenCertificate(data map[string]string) {
	d.t.Helper()
	before := d.served()
	d.keep("orders-tls", data)
	d.lacks("orders-tls", "not for "+d.host)
	for name, now := range d.served() { // verified against ca.crt in the handshake
		if !now.leaf.Equal(before[name].leaf) {
			d.t.Errorf("%s shows another certificate than before", name)
		}
	}
	now, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	if err := condition(now, v1.ConditionReady, metav1.ConditionTrue, v1.ReasonAllReady); err != nil {
		d.t.Error(err)
	}
}

// newCertificate gives the servers another certificate, of another authority, and waits until each shows it.
func (d *database) newCertificate(data map[string]string) {
	d.t.Helper()
	block, _ := pem.Decode([]byte(data["tls.crt"]))
	want, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		d.t.Fatal(err)
	}
	d.keep("orders-tls", data)
	took := eventually(d.t.Context(), d.t, 150*time.Second, "every server shows the new certificate, and ca.crt its authority", func() error {
		for name := range d.pods() {
			leaf, err := d.leaf(name) // verified against ca.crt in the handshake
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if !leaf.Equal(want) {
				return fmt.Errorf("%s shows another certificate", name)
			}
		}
		return nil
	})
	d.t.Logf("new server certificate shown after %s", took.Round(time.Second))
}

// newPassword changes the password in the user's own Secret: who reads the connection Secret again gets in.
func (d *database) newPassword(password string) {
	d.t.Helper()
	old, err := d.writable(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	next := old.Copy()
	next.Password = password
	d.keep("seller", map[string]string{"username": "seller", "password": password})
	took := eventually(d.t.Context(), d.t, 30*time.Second, "the new password works", func() error { return ping(d.t.Context(), next) })
	d.t.Logf("new password works after %s", took.Round(time.Millisecond))
	eventually(d.t.Context(), d.t, 10*time.Second, "the old password is refused, and the connection Secret holds the new one", func() error {
		if ping(d.t.Context(), old) == nil {
			return fmt.Errorf("the old one still works")
		}
		s, err := d.secret(d.t.Context())
		if err != nil {
			return err
		}
		if string(s.Data["password"]) != password {
			return fmt.Errorf("the connection Secret holds another")
		}
		return nil
	})
}

// issue returns the data of a Secret with a server certificate for names.
func issue(t *testing.T, by *authority.Authority, names ...string) map[string]string {
	t.Helper()
	leaf := by.Leaf(t, "company", names[0], authority.Names(names...))
	return map[string]string{"tls.crt": string(leaf.Cert), "ca.crt": string(leaf.CA), "tls.key": string(leaf.Key)}
}
