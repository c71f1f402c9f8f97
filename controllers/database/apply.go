package database

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// Writer writes to the API server; it is ssa.Writer's part that is used.
type Writer interface {
	Apply(ctx context.Context, obj client.Object) error
	Create(ctx context.Context, obj client.Object) error
	Delete(ctx context.Context, obj client.Object) error
	Status(ctx context.Context, seen *v1.Database, status v1.DatabaseStatus) error
}

// retryAgent is when an agent that did not take its aim is asked again. It is no error of the pass: an agent may be starting,
// ending, or know a later epoch already.
const retryAgent = 2 * time.Second

// Acted is what came of a plan.
type Acted struct {
	// Err of what failed and is tried again.
	Err error
	// Foreign is an object that belongs to someone else.
	Foreign *ssa.ForeignError
	// Issuer is what keeps a Certificate from being asked for; nil for nothing.
	Issuer *Finding
	// Expiries of the certificates by name.
	Expiries map[string]time.Time
	// LookAgain at the latest, 0 if nothing asks for it.
	LookAgain time.Duration
}

func (a *Acted) failed(err error) {
	if err == nil {
		return
	}
	if foreign := (*ssa.ForeignError)(nil); errors.As(err, &foreign) {
		// Trying harder does not help: it waits for a person, and the slow look finds out.
		a.Foreign = foreign
		a.LookAgain = soonest(a.LookAgain, retryStalled)
		return
	}
	a.Err = errors.Join(a.Err, err)
}

// apply carries a plan out: the topology first, then objects, then removals. What fails is tried again from a fresh look; removals
// wait until everything before them has succeeded.
func (r *Reconciler) apply(ctx context.Context, s Seen, p Plan) Acted {
	var a Acted
	if s.Database.DeletionTimestamp != nil {
		return a
	}
	r.publish(ctx, s, p, &a)
	material := s.Secrets.Material
	if p.Certificates != nil {
		material = r.secretsOf(ctx, s, p, &a)
	}
	mountable := a.Err == nil && a.Foreign == nil
	for _, obj := range p.Create {
		a.failed(r.write(ctx, r.writer.Create, obj))
	}
	for _, obj := range p.Apply {
		if obj.GetObjectKind().GroupVersionKind() == desired.IssuedKind() {
			r.askForCertificate(ctx, obj, &a)
			continue
		}
		a.failed(r.write(ctx, r.writer.Apply, obj))
	}
	if p.Adopt != nil {
		a.failed(r.write(ctx, r.writer.Apply, p.Adopt))
		r.vault.doubt(s.key())
	}
	// A pod needs its Secrets. That some other object cannot be written is no reason to leave a lost instance away.
	if mountable {
		r.makePods(ctx, s, p, material, &a)
	}
	r.labelPods(ctx, s, p, material, &a)
	if a.Err == nil && a.Foreign == nil {
		r.removals(ctx, s, p, &a)
		r.send(ctx, s, p, &a)
	}
	a.Expiries = material.Expiries()
	a.LookAgain = soonest(a.LookAgain, r.vault.lookAgain(s.Database, s.failures(), r.now()))
	return a
}

// askForCertificate asks cert-manager. That the cluster does not have it is no failure of the pass: it waits for a person, and must not
// hold up what the Database needs besides.
func (r *Reconciler) askForCertificate(ctx context.Context, obj client.Object, a *Acted) {
	err := r.write(ctx, r.writer.Apply, obj)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		a.Issuer = withoutCertManager()
		a.LookAgain = soonest(a.LookAgain, retryStalled)
		return
	}
	a.failed(err)
	if err == nil {
		r.issued.want()
	}
}

func (r *Reconciler) write(ctx context.Context, verb func(context.Context, client.Object) error, obj client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return verb(ctx, obj)
}

// publish hands the aims out side by side, so that one agent that hangs holds up none of the others.
func (r *Reconciler) publish(ctx context.Context, s Seen, p Plan, a *Acted) {
	errs := make([]error, len(p.Aims))
	var all sync.WaitGroup
	for i, aim := range p.Aims {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			errs[i] = r.agents.SetAim(ctx, aim.To, aim.Aim)
		})
	}
	all.Wait()
	for i, err := range errs {
		r.metrics.published(err)
		if err != nil {
			log.FromContext(ctx).Info("an agent did not take its aim", "instance", p.Aims[i].To.Instance, "error", err.Error())
			a.LookAgain = soonest(a.LookAgain, retryAgent)
			continue
		}
		log.FromContext(ctx).Info("published an aim", "instance", p.Aims[i].To.Instance, "revision", p.Aims[i].Revision, "epoch", p.Aims[i].Aim.Epoch)
		r.asked.note(s.key(), p.Aims[i].To.Instance, p.Aims[i].Aim.Restart)
	}
}

// secretsOf keeps the certificates and the connection Secret right, and returns the material that holds now.
func (r *Reconciler) secretsOf(ctx context.Context, s Seen, p Plan, a *Acted) certificate.Material {
	now := r.now()
	next, changed, look, err := certificate.Plan(rand.Reader, now, r.policy, s.Secrets.Material, *p.Certificates)
	if err != nil {
		a.failed(fmt.Errorf("plan the certificates of Database %s: %w", s.key(), err))
		return s.Secrets.Material
	}
	a.LookAgain = soonest(a.LookAgain, look.Sub(now))
	if changed {
		if err := r.writeMaterial(ctx, s, p, next); err != nil {
			a.failed(err)
			r.vault.doubt(s.key())
			return s.Secrets.Material
		}
		r.vault.wrote(s.key(), func(held *Secrets) { held.Material = next.Shared() })
		a.LookAgain = soonest(a.LookAgain, time.Millisecond)
	}
	a.failed(r.writeConnection(ctx, s, p, next, a))
	return next
}

// writeMaterial writes the Secrets that differ. The authority goes first: no leaf is ever used whose authority is not kept.
func (r *Reconciler) writeMaterial(ctx context.Context, s Seen, p Plan, next certificate.Material) error {
	old := s.Secrets.Material
	if !sameData(old.AuthorityData(), next.AuthorityData()) {
		if err := r.write(ctx, r.writer.Apply, desired.AuthoritySecret(p.Inputs, next.AuthorityData())); err != nil {
			return err
		}
	}
	if !sameData(old.ServerData(), next.ServerData()) {
		if err := r.write(ctx, r.writer.Apply, desired.ServerSecret(p.Inputs, next.ServerData())); err != nil {
			return err
		}
	}
	for _, name := range p.Certificates.Instances {
		if sameData(old.MemberData(name), next.MemberData(name)) {
			continue
		}
		secret := desired.WitnessSecret(p.Inputs, name, next.MemberData(name))
		if n := ordinalOf(s.Database.Name, name); n > 0 {
			secret = desired.MemberSecret(p.Inputs, desired.Instance{Ordinal: n}, next.MemberData(name))
		}
		if err := r.write(ctx, r.writer.Apply, secret); err != nil {
			return err
		}
	}
	return nil
}

func sameData(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// writeConnection keeps what clients read, and makes a password where there is none.
func (r *Reconciler) writeConnection(ctx context.Context, s Seen, p Plan, m certificate.Material, a *Acted) error {
	if s.Secrets.Problem != nil {
		return nil
	}
	password, verifier := s.Secrets.Password, s.Secrets.Verifier
	if password == "" {
		password = rand.Text() // 26 characters that need no quoting anywhere, 130 bits
		var err error
		if verifier, err = scramVerifier(string(s.Database.UID), s.Secrets.Owner, password); err != nil {
			return err
		}
	}
	secret := desired.ConnectionSecret(p.Inputs, desired.Connection{Username: s.Secrets.Owner, Password: password, Authority: m.ServerTrusted})
	sum := sumOfData(secret.Data)
	if s.Secrets.Connection == sum {
		return nil
	}
	if err := r.write(ctx, r.writer.Apply, secret); err != nil {
		r.vault.doubt(s.key())
		return err
	}
	r.vault.wrote(s.key(), func(held *Secrets) { held.Password, held.Verifier, held.Connection = password, verifier, sum })
	a.LookAgain = soonest(a.LookAgain, time.Millisecond)
	return nil
}

func (r *Reconciler) makePods(ctx context.Context, s Seen, p Plan, m certificate.Material, a *Acted) {
	for _, pod := range p.Pods {
		pod.Annotations[v1.AnnotationSecretsHash] = m.SecretsHash(pod.Name)
		err := r.write(ctx, r.writer.Create, pod)
		a.failed(err)
		if err == nil {
			log.FromContext(ctx).Info("made a pod", "instance", pod.Name)
			r.tell(ctx, s.Database, []occurrence{{corev1.EventTypeNormal, "InstanceStarted", "Start", "made the pod of " + pod.Name}})
		}
	}
}

// labelPods keeps what changes on a live pod: its role, what its probe is to tell, and the hash that makes the kubelet refresh its certificates.
func (r *Reconciler) labelPods(ctx context.Context, s Seen, p Plan, m certificate.Material, a *Acted) {
	for _, name := range sortedKeys(p.Roles) {
		pod := desired.PodRole(p.Inputs, desired.Instance{Ordinal: ordinalOf(s.Database.Name, name)}, p.Roles[name])
		hash := m.SecretsHash(name)
		if s.Secrets.Problem != nil {
			hash = s.Pods[name].Annotations[v1.AnnotationSecretsHash]
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[v1.AnnotationSecretsHash] = hash
		if kept(s.Pods[name], pod) {
			continue
		}
		a.failed(r.write(ctx, r.writer.Apply, pod))
	}
}

// kept says whether a live pod has what may change on it as it is wanted.
func kept(have, want *corev1.Pod) bool {
	for _, label := range []string{v1.LabelRole, v1.LabelKind} {
		if have.Labels[label] != want.Labels[label] {
			return false
		}
	}
	for _, note := range []string{v1.AnnotationSecretsHash, v1.AnnotationStatements} {
		if have.Annotations[note] != want.Annotations[note] {
			return false
		}
	}
	return true
}

func (r *Reconciler) removals(ctx context.Context, s Seen, p Plan, a *Acted) {
	for _, gone := range p.Remove {
		err := r.write(ctx, r.writer.Delete, gone.Object)
		a.failed(err)
		if err != nil {
			continue
		}
		what, reason := "pod", "InstanceRemoved"
		switch gone.Object.(type) {
		case *corev1.PersistentVolumeClaim:
			what = "volume"
		case *metav1.PartialObjectMetadata:
			what, reason = "Certificate", "CertificateRemoved"
		}
		log.FromContext(ctx).Info("removed an object", "kind", what, "name", gone.Object.GetName(), "why", gone.Why)
		r.tell(ctx, s.Database, []occurrence{{corev1.EventTypeNormal, reason, "Remove", fmt.Sprintf("deleted the %s %s: %s", what, gone.Object.GetName(), gone.Why)}})
	}
}

// asked remembers the restarts that were published, while they are not done.
type asked struct {
	mu     sync.Mutex
	tokens map[types.NamespacedName]map[string]string
}

func newAsked() *asked { return &asked{tokens: map[types.NamespacedName]map[string]string{}} }

func (a *asked) note(key types.NamespacedName, instance, token string) {
	if token == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens[key] == nil {
		a.tokens[key] = map[string]string{}
	}
	a.tokens[key][instance] = token
}

// open are those that are not done by the reports; the others are forgotten, as are those of silent instances that came back new.
func (a *asked) open(key types.NamespacedName, heard map[string]Heard) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for instance, token := range a.tokens[key] {
		h, ok := heard[instance]
		if ok && h.Report.RestartDone == token {
			delete(a.tokens[key], instance)
			continue
		}
		out[instance] = token
	}
	return out
}

func (a *asked) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tokens, key)
}
