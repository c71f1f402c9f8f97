package policy

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// ownSecrets refuses a reference to a Secret that Plimsoll itself writes for this Database: two writers would fight over it, and
// its first content would be asked of itself.
func ownSecrets(d *v1.Database, spec *field.Path) field.ErrorList {
	var found field.ErrorList
	refuse := func(at *field.Path, name string) {
		if isOwnSecret(d.Name, name) {
			found = append(found, field.Invalid(at, name,
				fmt.Sprintf("Plimsoll writes this Secret for the Database %s itself; name one of your own", d.Name)))
		}
	}
	refuse(spec.Child("tls", "serverSecret"), d.Spec.TLS.ServerSecret)
	refuse(spec.Child("bootstrap", "credentialsSecret"), d.Spec.Bootstrap.CredentialsSecret)
	for i, source := range d.Spec.Bootstrap.SQL {
		if source.SecretKeyRef != nil {
			refuse(spec.Child("bootstrap", "sql").Index(i).Child("secretKeyRef", "name"), source.SecretKeyRef.Name)
		}
	}
	return found
}

func isOwnSecret(database, secret string) bool {
	for _, suffix := range []string{"-app", "-ca", "-server"} {
		if secret == database+suffix {
			return true
		}
	}
	instance, ok := strings.CutSuffix(secret, "-member")
	return ok && isInstance(database, instance)
}

// fences refuses a name that no instance can have. A typing error here would leave a server running that its owner believes
// stopped.
func fences(d *v1.Database, at *field.Path) field.ErrorList {
	var found field.ErrorList
	for i, name := range d.Spec.Maintenance.Fenced {
		if name != "*" && !isInstance(d.Name, name) {
			found = append(found, field.Invalid(at.Index(i), name,
				fmt.Sprintf("is no instance of %s; name one as %s-1, or * for all", d.Name, d.Name)))
		}
	}
	return found
}

// isInstance says whether name is <database>-<ordinal>, the ordinal written as Plimsoll does.
func isInstance(database, name string) bool {
	digits, ok := strings.CutPrefix(name, database+"-")
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == digits
}
