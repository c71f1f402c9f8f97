package policy

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// ownSecrets refuses a reference to a Secret that Plimsoll itself writes for this Database, or has cert-manager write: two writers would fight over it, and
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
	for _, suffix := range []string{"-app", "-ca", "-server", "-issued"} {
		if secret == database+suffix {
			return true
		}
	}
	instance, ok := strings.CutSuffix(secret, "-member")
	return ok && isInstance(database, instance)
}

// isInstance says whether name is <database>-<ordinal>, the ordinal written as Plimsoll does.
func isInstance(database, name string) bool { return ordinal(database, name) > 0 }

// ordinal of an instance by its name; zero if it is none's.
func ordinal(database, name string) int {
	digits, ok := strings.CutPrefix(name, database+"-")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return 0
	}
	return int(n)
}
