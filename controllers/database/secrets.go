package database

import (
	"crypto/sha256"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Keys of Secrets.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyCert     = "tls.crt"
	keyKey      = "tls.key"
	keyCA       = "ca.crt"
)

// Secrets is what a Database's Secrets said when they were last read.
type Secrets struct {
	// ReadAt is when; zero if never.
	ReadAt time.Time
	// Refs are the names that were read, to see when the spec names others.
	Refs string
	// Failures is the sum of refused logins at that time.
	Failures int64
	// Material of the certificates.
	Material certificate.Material
	// Foreign is the user's own server certificate; nil without spec.tls.
	Foreign *certificate.Foreign
	// Unissued says that the certificate of spec.tls.issuerRef cannot be used yet, is by another issuer, or should have been renewed.
	// Loose is the UID of its Secret if nothing owns that.
	Unissued bool
	Loose    types.UID
	// Owner and Password of the application's account; an empty password is one that is still to be made.
	Owner, Password string
	// Verifier of the password.
	Verifier string
	// Connection is a sum of the data of the Secret that clients read: no more is asked of it than whether it is as it should be.
	Connection [sha256.Size]byte
	// SQL to run in a new database.
	SQL []string
	// Problem says why they cannot be used; nil if they can.
	Problem *Finding
}

// accounts that the database should have.
func (s Secrets) accounts() []engine.Account {
	if s.Verifier == "" {
		return nil
	}
	return []engine.Account{{Name: s.Owner, Verifier: s.Verifier}}
}

// Finding is something to tell in a condition.
type Finding struct{ Reason, Message string }

func (f *Finding) String() string {
	if f == nil {
		return ""
	}
	return f.Reason + ": " + f.Message
}

// rawSecret is one Secret or ConfigMap as it was read.
type rawSecret struct {
	found  bool
	uid    types.UID
	labels map[string]string
	notes  map[string]string // annotations
	owners []metav1.OwnerReference
	data   map[string][]byte
}

// rawSecrets are all that a Database names, by kind and name.
type rawSecrets struct {
	authority, server, app rawSecret
	members                map[string]rawSecret
	credentials, foreign   rawSecret
	sources                []rawSecret
}

// interpret makes sense of Secrets that were read. It is pure.
func interpret(d *v1.Database, raw rawSecrets, now time.Time) Secrets {
	s := Secrets{ReadAt: now, Owner: ownerName(d), Connection: sumOfData(raw.app.data)}
	if s.Problem = conflicts(d, raw); s.Problem != nil {
		return s
	}
	members := map[string]map[string][]byte{}
	for name, m := range raw.members {
		if m.found {
			members[name] = m.data
		}
	}
	var err error
	if s.Material, err = certificate.ParseMaterial(raw.authority.data, raw.server.data, members); err != nil {
		s.Problem = &Finding{v1.ReasonSecretConflict, fmt.Sprintf("Secret %s cannot be used: %v. Restore it, or delete it to get a new authority", desired.AuthorityName(d.Name), err)}
		return s
	}
	s.Material = s.Material.Shared()
	for _, step := range []func(*v1.Database, rawSecrets, time.Time, *Secrets) *Finding{readPassword, readForeign, readSQL} {
		if s.Problem = step(d, raw, now, &s); s.Problem != nil {
			return s
		}
	}
	return s
}

// sumOfData of a Secret.
func sumOfData(data map[string][]byte) [sha256.Size]byte {
	sum := sha256.New()
	for _, name := range sortedKeys(data) {
		sum.Write(fmt.Appendf(nil, "%q %q\n", name, data[name]))
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// conflicts finds a Secret of one of our names that is not this Database's.
func conflicts(d *v1.Database, raw rawSecrets) *Finding {
	all := map[string]rawSecret{
		desired.AuthorityName(d.Name): raw.authority, desired.ServerName(d.Name): raw.server, desired.ConnectionName(d.Name): raw.app,
	}
	for instance, m := range raw.members {
		all[desired.MemberName(instance)] = m
	}
	for _, name := range sortedKeys(all) {
		if s := all[name]; s.found && !ownedBy(s.owners, d.UID) {
			return &Finding{v1.ReasonSecretConflict, fmt.Sprintf("Secret %s exists and %s; delete it, or choose another name for the Database", name, holder(s.owners))}
		}
	}
	return nil
}

func ownedBy(owners []metav1.OwnerReference, uid types.UID) bool {
	for _, o := range owners {
		if o.UID == uid {
			return true
		}
	}
	return false
}

func holder(owners []metav1.OwnerReference) string {
	for _, o := range owners {
		return fmt.Sprintf("belongs to %s %s", o.Kind, o.Name)
	}
	return "belongs to nobody that Plimsoll knows"
}

func ownerName(d *v1.Database) string {
	if d.Spec.Bootstrap.Owner != "" {
		return d.Spec.Bootstrap.Owner
	}
	return "app"
}

// readPassword takes the password from the user's Secret, or else from ours: once made, that Secret is the truth, and an edit of
// it is a rotation.
func readPassword(d *v1.Database, raw rawSecrets, _ time.Time, s *Secrets) *Finding {
	s.Password = string(raw.app.data[keyPassword])
	if name := d.Spec.Bootstrap.CredentialsSecret; name != "" {
		if problem := needKeys("spec.bootstrap.credentialsSecret", name, raw.credentials, keyUsername, keyPassword); problem != nil {
			return problem
		}
		if user := string(raw.credentials.data[keyUsername]); user != s.Owner {
			return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("key %s of Secret %s is %q, but spec.bootstrap.owner is %q; make them the same", keyUsername, name, user, s.Owner)}
		}
		s.Password = string(raw.credentials.data[keyPassword])
	}
	if s.Password == "" {
		return nil
	}
	var err error
	if s.Verifier, err = scramVerifier(string(d.UID), s.Owner, s.Password); err != nil {
		return &Finding{v1.ReasonSecretMissing, err.Error()}
	}
	return nil
}

func readForeign(d *v1.Database, raw rawSecrets, now time.Time, s *Secrets) *Finding {
	field, name := foreignName(d)
	if name == "" {
		return nil
	}
	s.Unissued = d.Spec.TLS.ServerSecret == "" // until all below is well
	if !raw.foreign.found && s.Unissued {
		return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("cert-manager has not written Secret %s of %s yet; see its Certificate of that name, and whether the issuer exists", name, field)}
	}
	if len(raw.foreign.data[keyCert]) > 0 && len(raw.foreign.data[keyCA]) == 0 && s.Unissued {
		return &Finding{v1.ReasonIssuerNotReady, fmt.Sprintf("%s: the issuer puts no ca.crt into Secret %s, so clients could not verify the server; name an issuer that does, as those of the kinds CA and Vault do", field, name)}
	}
	if problem := needKeys(field, name, raw.foreign, keyCert, keyKey, keyCA); problem != nil {
		return problem
	}
	data := raw.foreign.data
	f := certificate.Foreign{Pair: certificate.Pair{Certificate: data[keyCert], Key: data[keyKey]}, Trusted: data[keyCA]}
	host := desired.WriteServiceName(d.Name) + "." + d.Namespace + ".svc"
	if err := certificate.CheckServer(now, f, host); err != nil {
		return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("Secret %s of %s: %v", name, field, err)}
	}
	if s.Unissued && len(raw.foreign.owners) == 0 && raw.foreign.labels[v1.LabelDatabase] == d.Name {
		s.Loose = raw.foreign.uid
	}
	s.Foreign, s.Unissued = &f, s.Unissued && (byAnother(d, raw.foreign) || f.Late(now))
	return nil
}

// byAnother says that the Secret holds a certificate of another issuer than the one that is asked for now, by cert-manager's own note.
func byAnother(d *v1.Database, s rawSecret) bool {
	ref := d.Spec.TLS.IssuerRef
	name, kind := s.notes["cert-manager.io/issuer-name"], s.notes["cert-manager.io/issuer-kind"]
	return ref != nil && name != "" && (name != ref.Name || kind != desired.IssuerKind(*ref).Kind)
}

// foreignName is the field and the Secret of a server certificate that is not ours; empty without one. cert-manager writes the
// Secret of an issuer's certificate under the name that we ask for.
func foreignName(d *v1.Database) (field, name string) {
	switch {
	case d.Spec.TLS.ServerSecret != "":
		return "spec.tls.serverSecret", d.Spec.TLS.ServerSecret
	case d.Spec.TLS.IssuerRef != nil:
		return "spec.tls.issuerRef", desired.IssuedName(d.Name)
	default:
		return "", ""
	}
}

func readSQL(d *v1.Database, raw rawSecrets, _ time.Time, s *Secrets) *Finding {
	if bootstrapped(d) {
		return nil // the sources may be gone by now: they are read once
	}
	for i, source := range d.Spec.Bootstrap.SQL {
		kind, ref := sourceOf(source)
		field := fmt.Sprintf("spec.bootstrap.sql[%d]", i)
		if i >= len(raw.sources) || !raw.sources[i].found {
			return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("%s %s of %s does not exist; create it", kind, ref.Name, field)}
		}
		text, ok := raw.sources[i].data[ref.Key]
		if !ok {
			return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("%s %s of %s has no key %s; add it", kind, ref.Name, field, ref.Key)}
		}
		s.SQL = append(s.SQL, string(text))
	}
	return nil
}

func sourceOf(s v1.SQLSource) (kind string, ref v1.KeyReference) {
	switch {
	case s.ConfigMapKeyRef != nil:
		return "ConfigMap", *s.ConfigMapKeyRef
	case s.SecretKeyRef != nil:
		return "Secret", *s.SecretKeyRef
	default:
		return "Secret", v1.KeyReference{}
	}
}

func needKeys(field, name string, s rawSecret, keys ...string) *Finding {
	if !s.found {
		return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("Secret %s of %s does not exist; create it", name, field)}
	}
	for _, key := range keys {
		if len(s.data[key]) == 0 {
			return &Finding{v1.ReasonSecretMissing, fmt.Sprintf("Secret %s of %s has no key %s; add it", name, field, key)}
		}
	}
	return nil
}

// bootstrapped says that a primary of this Database once served: what only a new database needs is not looked at any more.
func bootstrapped(d *v1.Database) bool { return d.Status.Version != "" }
