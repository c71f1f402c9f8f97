package database

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// The verifiers were given to a PostgreSQL 15 server, which then let psql in with each password: a plain one, one that SASLprep
// changes, and one that it forbids and that is used as it is.
func TestVerifiersThatPostgreSQLTook(t *testing.T) {
	for password, want := range map[string]string{
		"secret":                 "SCRAM-SHA-256$4096:spi07ZiAFF14rlBZdIvWzw==$v0iShBQCjUZe7wPvItKa6D4OrNLfPZxJnn5mZb9ipfI=:PV/G3p1Ef7Zfqos/mRkC0drVr3RiLanXrpfNmt96D6M=",
		"p\u00e4 ss\u00a0\u2168": "SCRAM-SHA-256$4096:spi07ZiAFF14rlBZdIvWzw==$4VAMPl3exoBA2keVS8/4nkUVupclDblVhuaw5kLk3Ac=:1BTpuyvPFUVufXgih1Kj6dtFbFYgehGKH5mp+AAz68w=",
		"bad\u0007bell":          "SCRAM-SHA-256$4096:spi07ZiAFF14rlBZdIvWzw==$qY8gn30ZUSiWMSVoGEaCISs6Dt3NTizq8UBkvq9KdbI=:7gKjKg2AJcKtigmmzDb0So7HtyYrujN2sqsUFLNAR60=",
	} {
		got, err := scramVerifier("u1", "app", password)
		if err != nil || got != want {
			t.Errorf("%q: %s (%v), want %s", password, got, err, want)
		}
	}
}

func TestProblemsOfSecretsAreNamed(t *testing.T) {
	mine := []metav1.OwnerReference{{UID: "u1", Kind: "Database", Name: "orders"}}
	for sentence, row := range map[string]struct {
		spec func(*v1.Database)
		raw  rawSecrets
		want string
	}{
		"nothing there yet is no problem": {},
		"a Secret of nobody": {
			raw:  rawSecrets{app: rawSecret{found: true}},
			want: "SecretConflict: Secret orders-app exists and belongs to nobody that Plimsoll knows; delete it, or choose another name for the Database",
		},
		"a Secret of another": {
			raw:  rawSecrets{members: map[string]rawSecret{"orders-1": {found: true, owners: []metav1.OwnerReference{{UID: "u2", Kind: "Certificate", Name: "c"}}}}},
			want: "SecretConflict: Secret orders-1-member exists and belongs to Certificate c; delete it, or choose another name for the Database",
		},
		"a Secret of another Database": {
			raw:  rawSecrets{authority: rawSecret{found: true, owners: []metav1.OwnerReference{{UID: "u2", Kind: "Database", Name: "billing"}}}},
			want: "SecretConflict: Secret orders-ca exists and belongs to Database billing; delete it, or choose another name for the Database",
		},
		"credentials that belong to another Database are only read": {
			spec: func(d *v1.Database) { d.Spec.Bootstrap.CredentialsSecret = "billing-app" },
			raw: rawSecrets{credentials: rawSecret{
				found: true, owners: []metav1.OwnerReference{{UID: "u2", Kind: "Database", Name: "billing"}},
				data: map[string][]byte{"username": []byte("app"), "password": []byte("x")},
			}},
		},
		"a broken authority": {
			raw:  rawSecrets{authority: rawSecret{found: true, owners: mine, data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("y")}}},
			want: "SecretConflict",
		},
		"credentials that are missing": {
			spec: func(d *v1.Database) { d.Spec.Bootstrap.CredentialsSecret = "login" },
			want: "SecretMissing: Secret login of spec.bootstrap.credentialsSecret does not exist; create it",
		},
		"credentials without a password": {
			spec: func(d *v1.Database) { d.Spec.Bootstrap.CredentialsSecret = "login" },
			raw:  rawSecrets{credentials: rawSecret{found: true, data: map[string][]byte{"username": []byte("app")}}},
			want: "SecretMissing: Secret login of spec.bootstrap.credentialsSecret has no key password; add it",
		},
		"credentials of another user": {
			spec: func(d *v1.Database) { d.Spec.Bootstrap.CredentialsSecret = "login" },
			raw:  rawSecrets{credentials: rawSecret{found: true, data: map[string][]byte{"username": []byte("bob"), "password": []byte("x")}}},
			want: `SecretMissing: key username of Secret login is "bob", but spec.bootstrap.owner is "app"; make them the same`,
		},
		"SQL whose key is missing": {
			spec: func(d *v1.Database) {
				d.Spec.Bootstrap.SQL = []v1.SQLSource{{ConfigMapKeyRef: &v1.KeyReference{Name: "sql", Key: "init.sql"}}}
			},
			raw:  rawSecrets{sources: []rawSecret{{found: true}}},
			want: "SecretMissing: ConfigMap sql of spec.bootstrap.sql[0] has no key init.sql; add it",
		},
		"SQL that is gone once it has run is no problem": {
			spec: func(d *v1.Database) {
				d.Status.Version = "15.18"
				d.Spec.Bootstrap.SQL = []v1.SQLSource{{ConfigMapKeyRef: &v1.KeyReference{Name: "sql", Key: "init.sql"}}}
			},
		},
		"a certificate that cert-manager has not issued": {
			spec: func(d *v1.Database) { d.Spec.TLS.IssuerRef = &v1.IssuerReference{Name: "ca", Kind: "Issuer"} },
			want: "SecretMissing: cert-manager has not written Secret orders-issued of spec.tls.issuerRef yet; see its Certificate of that name, and whether the issuer exists",
		},
		"a server certificate that is none": {
			spec: func(d *v1.Database) { d.Spec.TLS.ServerSecret = "tls" },
			raw: rawSecrets{foreign: rawSecret{found: true, data: map[string][]byte{
				"tls.crt": []byte("x"), "tls.key": []byte("y"), "ca.crt": []byte("z"),
			}}},
			want: "SecretMissing: Secret tls of spec.tls.serverSecret",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := empty(1).Database
			if row.spec != nil {
				row.spec(d)
			}
			got := interpret(d, row.raw, noon()).Problem.String()
			if row.want == "" && got != "" || len(got) < len(row.want) || got[:len(row.want)] != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestSecretsAreReadAgainOnlyForAReason(t *testing.T) {
	d := empty(1).Database
	app := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-app", OwnerReferences: []metav1.OwnerReference{{APIVersion: "plimsoll.dev/v1", Kind: "Database", Name: "orders", UID: "u1"}}},
		Data:       map[string][]byte{"password": []byte("old")},
	}
	reads := 0
	live := interceptor.NewClient(fake.NewClientBuilder().WithObjects(app).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if key.Name == "orders-app" {
				reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	v := NewVault(live)
	now := noon()
	look := func(after time.Duration, failures int64) Secrets {
		t.Helper()
		now = now.Add(after)
		s, err := v.secrets(t.Context(), d, []string{"orders-1"}, failures, now)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	expect := func(what string, want int) {
		t.Helper()
		if reads != want {
			t.Errorf("%s: read %d times, want %d", what, reads, want)
		}
		reads = want
	}
	look(0, 0)
	expect("at first", 1)
	look(9*time.Minute, 0)
	expect("while nothing happens", 1)
	look(time.Minute, 0)
	expect("after ten minutes", 2)
	app.Data["password"] = []byte("new")
	if err := live.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if s := look(time.Minute, 1); s.Password != "new" {
		t.Errorf("after a refused login the password is %q", s.Password)
	}
	expect("after a refused login", 3)
	look(500*time.Millisecond, 2)
	expect("after another within a second", 3)
	if again := v.lookAgain(d, 2, now); again != 500*time.Millisecond {
		t.Errorf("look again after %s", again)
	}
	before := reads
	for n := range 600 { // ten minutes of refusals that bring no news
		look(time.Second, int64(n+10))
	}
	if got := reads - before; got > 20 {
		t.Errorf("ten minutes of refused logins caused %d reads", got)
	}
}

// Nothing hints at a new server certificate: who trusts only its authority does not come as far as a refused login.
func TestGivenSecretsAreLookedAtEachMinute(t *testing.T) {
	d := empty(1).Database
	d.Spec.Bootstrap.CredentialsSecret = "login"
	login := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login"},
		Data:       map[string][]byte{"username": []byte("app"), "password": []byte("old")},
	}
	reads := map[string]int{}
	live := interceptor.NewClient(fake.NewClientBuilder().WithObjects(login).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads[key.Name]++
			return c.Get(ctx, key, obj, opts...)
		},
	})
	v := NewVault(live)
	now := noon()
	look := func(after time.Duration) string {
		t.Helper()
		now = now.Add(after)
		s, err := v.secrets(t.Context(), d, []string{"orders-1"}, 0, now)
		if err != nil {
			t.Fatal(err)
		}
		return s.Password
	}
	look(0)
	if again := v.lookAgain(d, 0, now); again != time.Minute {
		t.Errorf("look again after %s", again)
	}
	for range 5 {
		look(time.Minute)
		look(time.Second)
	}
	if diff := cmp.Diff(map[string]int{"login": 6, "orders-app": 1, "orders-ca": 1, "orders-server": 1, "orders-1-member": 1}, reads); diff != "" {
		t.Errorf("five minutes in which nothing happens (-want +got):\n%s", diff)
	}
	login.Data["password"] = []byte("new")
	if err := live.Update(t.Context(), login); err != nil {
		t.Fatal(err)
	}
	if got := look(30 * time.Second); got != "old" {
		t.Errorf("within the minute the password is %q", got)
	}
	if got := look(30 * time.Second); got != "new" {
		t.Errorf("a minute later the password is %q", got)
	}
}

func TestTheSumOfASecretTellsItsData(t *testing.T) {
	data := func(pairs ...string) map[string][]byte {
		out := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = []byte(pairs[i+1])
		}
		return out
	}
	seen := map[[32]byte]string{}
	for name, row := range map[string]map[string][]byte{
		"none": nil, "an empty value": data("a", ""), "a value": data("a", "b"), "another key": data("b", "b"), "two": data("a", "b", "c", "d"),
		"one that looks like two": data("a", "b\"\n\"c\" \"d"),
	} {
		if other, known := seen[sumOfData(row)]; known {
			t.Errorf("%s has the sum of %s", name, other)
		}
		seen[sumOfData(row)] = name
	}
	if sumOfData(data("a", "b", "c", "d")) != sumOfData(data("c", "d", "a", "b")) {
		t.Error("the order counts")
	}
}
