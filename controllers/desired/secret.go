package desired

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConnectionDir is where clients mount connection Secrets, each in a directory of the Secret's name: the addresses in it name
// the authority's certificate there.
const ConnectionDir = "/etc/plimsoll"

// ConnectionSecret is all that a client needs.
func ConnectionSecret(in Inputs, c Connection) *corev1.Secret {
	name := ConnectionName(in.Database.Name)
	host := WriteHost(in.Database.Namespace, in.Database.Name)
	port := strconv.Itoa(int(in.Parts.Port.ContainerPort))
	database := in.Database.Spec.Bootstrap.Database
	trust := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ConnectionDir + "/" + name + "/ca.crt"}}
	address := url.URL{
		Scheme: "postgresql", User: url.UserPassword(c.Username, c.Password),
		Host: host + ":" + port, Path: "/" + database, RawQuery: query(trust),
	}
	trust.Set("user", c.Username)
	trust.Set("password", c.Password)
	secret := opaque(in, name, map[string][]byte{
		"username": []byte(c.Username),
		"password": []byte(c.Password),
		"host":     []byte(host),
		"port":     []byte(port),
		"dbname":   []byte(database),
		"uri":      []byte(address.String()),
		"jdbc-uri": fmt.Appendf(nil, "jdbc:postgresql://%s:%s/%s?%s", host, port, url.PathEscape(database), query(trust)),
		"pgpass":   []byte(pgpass(host, port, database, c.Username, c.Password)),
		"ca.crt":   c.Authority,
	})
	return secret
}

// query keeps the slashes of a path, which are legal in a query, and writes a space as %20: libpq does not read "+" as one.
func query(values url.Values) string {
	return strings.NewReplacer("%2F", "/", "+", "%20").Replace(values.Encode())
}

// pgpass is a line of a password file; a colon or a backslash in a field is escaped by a backslash.
func pgpass(fields ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`)
	for i := range fields {
		fields[i] = escape.Replace(fields[i])
	}
	return strings.Join(fields, ":") + "\n"
}

// AuthoritySecret holds the certificate authority: data of certificate.Material.
func AuthoritySecret(in Inputs, data map[string][]byte) *corev1.Secret {
	return opaque(in, AuthorityName(in.Database.Name), data)
}

// ServerSecret holds the server's certificate for clients: data of certificate.Material. A certificate of the user's is copied
// into it, so that every pod always mounts the Secret of this name and spec.tls can change without a restart.
func ServerSecret(in Inputs, data map[string][]byte) *corev1.Secret {
	s := opaque(in, ServerName(in.Database.Name), data)
	s.Type = corev1.SecretTypeTLS
	return s
}

// MemberSecret holds the certificate by which an instance is known: data of certificate.Material.
func MemberSecret(in Inputs, i Instance, data map[string][]byte) *corev1.Secret {
	s := opaque(in, MemberName(InstanceName(in.Database.Name, i.Ordinal)), data)
	s.Type, s.Labels = corev1.SecretTypeTLS, instanceLabels(in, i)
	return s
}

func opaque(in Inputs, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(in, name),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}
