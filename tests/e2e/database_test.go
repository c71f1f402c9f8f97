package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/ledger"
)

// readyLimit bounds how long a new Database may take to be ready; the figure that counts is measured, not this.
const readyLimit = 2 * time.Minute

// database is one Database of a test.
type database struct {
	*suite
	t    *testing.T
	key  client.ObjectKey
	host string
}

// orders is the small Database that most tests use.
func orders(namespace string, replicas int32) *v1.Database {
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders"}}
	d.Spec = v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: oldVersion, Replicas: ptr.To(replicas),
		Storage:        v1.StorageSpec{Size: resource.MustParse("1Gi")},
		DeletionPolicy: v1.DeletionDelete,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
	}
	return d
}

// create makes a Database.
func (s *suite) create(t *testing.T, d *v1.Database) *database {
	t.Helper()
	if err := s.Create(t.Context(), d); err != nil {
		t.Fatalf("create Database %s: %v", d.Name, err)
	}
	return &database{suite: s, t: t, key: client.ObjectKeyFromObject(d), host: fmt.Sprintf("%s-rw.%s.svc", d.Name, d.Namespace)}
}

// get reads it.
func (d *database) get(ctx context.Context) (*v1.Database, error) {
	found := &v1.Database{}
	if err := d.Get(ctx, d.key, found); err != nil {
		return nil, err
	}
	return found, nil
}

// ready is nil once the newest spec is carried out in full.
func ready(d *v1.Database) error {
	c := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionReady)
	r := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionReconciling)
	switch {
	case d.Status.ObservedGeneration != d.Generation:
		return fmt.Errorf("generation %d, observed %d", d.Generation, d.Status.ObservedGeneration)
	case c == nil || r == nil:
		return errors.New("no conditions yet")
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("phase %s, ready %s, %s: %s", d.Status.Phase, d.Status.Ready, c.Reason, c.Message)
	case r.Status != metav1.ConditionFalse:
		return fmt.Errorf("phase %s, ready %s, still reconciling, %s: %s", d.Status.Phase, d.Status.Ready, r.Reason, r.Message)
	case d.Status.ReadyReplicas != *d.Spec.Replicas || len(d.Status.Voters) != voters(d):
		return fmt.Errorf("%d of %d ready, voters %v", d.Status.ReadyReplicas, *d.Spec.Replicas, d.Status.Voters)
	}
	return nil
}

// voters is how many there should be: two instances have a witness beside them. The cluster has a node for it.
func voters(d *v1.Database) int {
	n := int(*d.Spec.Replicas)
	if n == 2 && d.Spec.Replication.Witness != v1.WitnessNone {
		n++
	}
	return n
}

// awaitReady waits for it and says how long it took.
func (d *database) awaitReady(limit time.Duration) time.Duration {
	d.t.Helper()
	return d.await(limit, "Database "+d.key.Name+" ready", ready)
}

// await waits for a state of the Database.
func (d *database) await(limit time.Duration, what string, check func(*v1.Database) error) time.Duration {
	d.t.Helper()
	return eventually(d.t.Context(), d.t, limit, what, func() error {
		found, err := d.get(d.t.Context())
		if err != nil {
			return err
		}
		return check(found)
	})
}

// change patches the spec as a user would.
func (d *database) change(edit func(*v1.DatabaseSpec)) {
	d.t.Helper()
	found, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	was := found.DeepCopy()
	edit(&found.Spec)
	if err := d.Patch(d.t.Context(), found, client.MergeFrom(was)); err != nil {
		d.t.Fatalf("change Database %s: %v", d.key.Name, err)
	}
}

// ask puts a request's annotation on the Database and waits for the answer.
func (d *database) ask(annotation, target string, limit time.Duration) v1.RequestStatus {
	d.t.Helper()
	id := fmt.Sprintf("e2e-%d", time.Now().UnixNano())
	raw, err := json.Marshal(v1.Request{ID: id, Target: target, Expires: time.Now().Add(limit).UTC().Format(time.RFC3339)})
	if err != nil {
		d.t.Fatal(err)
	}
	found, err := d.get(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	was := found.DeepCopy()
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, annotation, string(raw))
	if err := d.Patch(d.t.Context(), found, client.MergeFrom(was)); err != nil {
		d.t.Fatalf("annotate Database %s: %v", d.key.Name, err)
	}
	var answer v1.RequestStatus
	d.await(limit, "answer to request "+id, func(now *v1.Database) error {
		for _, r := range now.Status.Requests {
			if r.ID == id && r.State != v1.RequestRunning {
				answer = r
				return nil
			}
		}
		return fmt.Errorf("requests %v", now.Status.Requests)
	})
	return answer
}

// secret is the connection Secret.
func (d *database) secret(ctx context.Context) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	if err := d.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: d.key.Name + "-app"}, s); err != nil {
		return nil, err
	}
	return s, nil
}

// connection is how the owner reaches an address, verified as the name in the server's certificate.
func (d *database) connection(ctx context.Context, address, name string) (*pgx.ConnConfig, error) {
	s, err := d.secret(ctx)
	if err != nil {
		return nil, err
	}
	uri, err := url.Parse(string(s.Data["uri"]))
	if err != nil {
		return nil, fmt.Errorf("uri of Secret %s: %w", s.Name, err)
	}
	uri.RawQuery = "sslmode=require&connect_timeout=2" // verified below against the Secret's ca.crt, without a file
	config, err := pgx.ParseConfig(uri.String())
	if err != nil {
		return nil, fmt.Errorf("uri of Secret %s: %w", s.Name, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Data["ca.crt"]) {
		return nil, fmt.Errorf("ca.crt of Secret %s holds no certificate", s.Name)
	}
	config.Password = string(s.Data["password"]) // what a person edits; the uri follows
	config.TLSConfig = &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}
	config.Fallbacks = nil
	config.Host = address
	return config, nil
}

// writable reaches the primary through the -rw Service.
func (d *database) writable(ctx context.Context) (*pgx.ConnConfig, error) {
	svc := &corev1.Service{}
	if err := d.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: d.key.Name + "-rw"}, svc); err != nil {
		return nil, err
	}
	return d.connection(ctx, svc.Spec.ClusterIP, d.host)
}

// instance reaches one instance by its pod's address.
func (d *database) instance(ctx context.Context, name string) (*pgx.ConnConfig, error) {
	pod := &corev1.Pod{}
	if err := d.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: name}, pod); err != nil {
		return nil, err
	}
	return d.connection(ctx, pod.Status.PodIP, fmt.Sprintf("%s.%s-members.%s.svc", name, d.key.Name, d.key.Namespace))
}

// ledger starts writers on the -rw Service.
func (d *database) ledger() *written {
	d.t.Helper()
	config, err := d.writable(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	store := ledger.Postgres{Config: config}
	eventually(d.t.Context(), d.t, time.Minute, "ledger made through the -rw Service", func() error {
		ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
		defer cancel()
		return store.Create(ctx)
	})
	run := ledger.Start(d.t.Context(), ledger.Config{Store: fresh{d}, Writers: 2, Every: 20 * time.Millisecond, Patience: 3 * time.Second, Most: 1_000_000})
	w := &written{database: d, run: run}
	w.moves(5 * time.Second)
	return w
}

// fresh opens each session with the Secret's password of that moment, as a client does that reads it again after a refusal.
type fresh struct{ *database }

// Open implements ledger.Store.
func (f fresh) Open(ctx context.Context) (ledger.Session, error) {
	config, err := f.writable(ctx)
	if err != nil {
		return nil, err
	}
	return ledger.Postgres{Config: config}.Open(ctx)
}

// written is a Database under a ledger.
type written struct {
	*database
	run *ledger.Run
}

// moves waits until twenty more writes are acknowledged.
func (w *written) moves(limit time.Duration) {
	w.t.Helper()
	before, _ := w.run.Acknowledged()
	eventually(w.t.Context(), w.t, limit, "twenty acknowledged writes", func() error {
		now, last := w.run.Acknowledged()
		if now-before >= 20 {
			return nil
		}
		return fmt.Errorf("%d so far; last refusal: %w", now-before, last)
	})
}

// settle stops the ledger and holds every instance against it. It returns the longest gap after a time.
func (w *written) settle(after time.Time) (ledger.Account, time.Duration) {
	w.t.Helper()
	w.moves(10 * time.Second)
	account, err := w.run.Stop()
	if err != nil {
		w.t.Fatal(err)
	}
	now, err := w.get(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	// A write in doubt may reach one instance after another: they are read until all hold the same.
	eventually(w.t.Context(), w.t, 30*time.Second, "every instance holds every acknowledged write, and all hold the same", func() error {
		hashes := map[string][]string{}
		for _, i := range now.Status.Instances {
			verdict, err := w.judge(account, i.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", i.Name, err)
			}
			hashes[verdict.Hash] = append(hashes[verdict.Hash], i.Name)
		}
		if len(hashes) != 1 {
			return fmt.Errorf("the instances hold different ledgers: %v", hashes)
		}
		return nil
	})
	gap := account.LongestGap(after)
	w.t.Logf("%d writes acknowledged, %d in doubt, %d refusals, %d changes of the writer, longest gap %s", len(account.Acks), len(account.InDoubt), account.Refused, account.Hands(), gap.Length().Round(time.Millisecond))
	return account, gap.Length()
}

// judge holds one instance against the account.
func (d *database) judge(account ledger.Account, instance string) (ledger.Verdict, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
	defer cancel()
	config, err := d.instance(ctx, instance)
	if err != nil {
		return ledger.Verdict{}, err
	}
	held, err := ledger.Postgres{Config: config}.Read(ctx)
	if err != nil {
		return ledger.Verdict{}, err
	}
	verdict := account.Judge(held)
	return verdict, verdict.Err()
}

// plimsoll runs the kubectl plugin.
func (d *database) plimsoll(args ...string) (string, error) {
	out, err := d.call(d.t.Context(), args...).CombinedOutput()
	return string(out), err
}

// switchover by the plugin, to a target or to whom the leader chooses. On a slow machine an heir may be late for longer than is borne; the
// hand-over is called off then, and a person asks again.
func (d *database) switchover(target ...string) {
	d.t.Helper()
	for tries := slowness(); ; tries-- {
		out, err := d.plimsoll(append([]string{"switchover", d.key.Name}, target...)...)
		if err == nil {
			return
		}
		if tries < 2 || !strings.Contains(out, "no longer fit") {
			d.t.Fatalf("switchover to %q: %v\n%s", target, err, out)
		}
		d.t.Logf("asked again: %s", out)
		d.awaitReady(time.Minute)
	}
}

// call of the kubectl plugin, not started.
func (d *database) call(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, d.binary, append([]string{"--kubeconfig=" + d.cluster.InsideKubeconfig(), "--namespace=" + d.key.Namespace}, args...)...)
}

// condition is nil where a condition has a status and reason and its message holds every word.
func condition(d *v1.Database, kind string, status metav1.ConditionStatus, reason string, words ...string) error {
	c := meta.FindStatusCondition(d.Status.Conditions, kind)
	if c == nil {
		return fmt.Errorf("no condition %s among %v", kind, d.Status.Conditions)
	}
	if c.Status != status || c.Reason != reason {
		return fmt.Errorf("condition %s is %s, %s: %s", kind, c.Status, c.Reason, c.Message)
	}
	for _, w := range words {
		if !strings.Contains(c.Message, w) {
			return fmt.Errorf("condition %s says %q, not %q", kind, c.Message, w)
		}
	}
	return nil
}
