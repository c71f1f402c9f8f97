package postgres

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

const (
	// maxValue bounds a parameter's value: the server reads lines of any length, people do not.
	maxValue = 4096
	// maxName of a Database: its instances' names are slots (63 bytes) and DNS labels.
	maxName = 50
)

// Validate says what the schema cannot.
func (e *Engine) Validate(old, d *v1.Database) field.ErrorList {
	spec := field.NewPath("spec")
	v, err := parseVersion(d.Spec.Version)
	if err != nil {
		return field.ErrorList{field.Invalid(spec.Child("version"), d.Spec.Version, err.Error())}
	}
	var all field.ErrorList
	all = append(all, validateVersion(spec.Child("version"), old, d, v)...)
	if len(d.Name) > maxName {
		all = append(all, field.TooLong(field.NewPath("metadata", "name"), d.Name, maxName))
	}
	all = append(all, e.validateParameters(spec.Child("parameters"), d, v.major)...)
	all = append(all, e.together(spec.Child("parameters"), d, v.major)...)
	if d.Spec.Postgres != nil {
		for i, line := range d.Spec.Postgres.HBA {
			if problem := wrongHBA(line); problem != "" {
				all = append(all, field.Invalid(spec.Child("postgres", "hba").Index(i), line, problem))
			}
		}
	}
	all = append(all, validateBootstrap(spec.Child("bootstrap"), d)...)
	return all
}

func validateVersion(path *field.Path, old, d *v1.Database, v version) field.ErrorList {
	if v.major < MinMajor || v.major > MaxMajor {
		return field.ErrorList{field.Invalid(path, d.Spec.Version, fmt.Sprintf("PostgreSQL %d to %d are known; choose one of them", MinMajor, MaxMajor))}
	}
	if runs, err := parseVersion(d.Status.Version); err == nil && runs.major != v.major {
		return field.ErrorList{field.Invalid(path, d.Spec.Version, fmt.Sprintf("%s runs, and %s", d.Status.Version, noOtherMajor(runs, v)))}
	}
	if old == nil || neverRan(old) {
		return nil
	}
	was, err := parseVersion(old.Spec.Version)
	if err != nil || was == v {
		return nil
	}
	if was.major != v.major {
		if d.Status.Version != "" {
			return nil // back to what runs
		}
		return field.ErrorList{field.Invalid(path, d.Spec.Version, noOtherMajor(was, v))}
	}
	// "15" means the newest 15, so between it and "15.18" nothing is known to be lower.
	if strings.Contains(old.Spec.Version, ".") && strings.Contains(d.Spec.Version, ".") && v.before(was) {
		return field.ErrorList{field.Invalid(path, d.Spec.Version, fmt.Sprintf("the version may not be lowered; it is %s", old.Spec.Version))}
	}
	return nil
}

func noOtherMajor(from, to version) string {
	return fmt.Sprintf("a change of the major version from %d to %d is not possible yet; create a new Database and move the data with pg_dump or logical replication", from.major, to.major)
}

// neverRan says that no member of a Database was ever chosen to begin it, so that no data is of its version. The leader is chosen first,
// and data comes after.
func neverRan(d *v1.Database) bool { return d.Status.Epoch == 0 && d.Status.Version == "" }

func (e *Engine) validateParameters(path *field.Path, d *v1.Database, major int) field.ErrorList {
	names := make([]string, 0, len(d.Spec.Parameters))
	for name := range d.Spec.Parameters {
		names = append(names, name)
	}
	slices.Sort(names)
	var all field.ErrorList
	seen := map[string]string{}
	for _, name := range names {
		value := d.Spec.Parameters[name]
		if other, ok := seen[lower(name)]; ok {
			all = append(all, field.Invalid(path.Key(name), name, fmt.Sprintf("is the same parameter as %s; keep one", other)))
			continue
		}
		seen[lower(name)] = name
		if problem := e.wrong(lower(name), value, major, replicas(d)); problem != "" {
			all = append(all, field.Invalid(path.Key(name), shorten(value), problem))
		}
	}
	return all
}

func lower(name string) string { return strings.ToLower(name) }

func shorten(value string) string {
	if len(value) <= 100 {
		return value
	}
	return strings.ToValidUTF8(value[:100], "") + "…"
}

// parameterName is what PostgreSQL takes for a name in a file: its own, or an extension's with dots.
func parameterName() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z_][a-z0-9_$]{0,62}(\.[a-z_][a-z0-9_$]{0,62}){0,2}$`)
}

// wrong says why a parameter is not taken, and what to do, or "".
func (e *Engine) wrong(name, value string, major int, replicas int32) string {
	if !e.name.MatchString(name) {
		return "is no name of a parameter: letters, digits and _, and a dot in those of extensions"
	}
	if strings.ContainsAny(value, "\n\r\x00") {
		return "must be one line"
	}
	if len(value) > maxValue {
		return fmt.Sprintf("must be at most %d bytes", maxValue)
	}
	if reason := managed(name); reason != "" {
		return name + " is managed by Plimsoll: " + reason
	}
	if strings.Contains(name, ".") {
		return ""
	}
	p, ok := e.catalogue[name]
	if !ok {
		return "PostgreSQL knows no such parameter; one of an extension is written as extension.name"
	}
	if !p.known(major) {
		return fmt.Sprintf("PostgreSQL %d does not know %s", major, name)
	}
	if err := p.check(value); err != nil {
		return name + " " + err.Error()
	}
	if reason := refused(name, value, replicas); reason != "" {
		return name + " " + reason
	}
	return ""
}

// wrongHBA says what is wrong with a line of spec.postgres.hba, or "". The server ignores a whole file with one bad line.
func wrongHBA(line string) string {
	if strings.ContainsAny(line, "\n\r\x00\\") {
		return "must be one line without a backslash"
	}
	if strings.HasPrefix(strings.TrimSpace(line), "#") || strings.TrimSpace(line) == "" {
		return ""
	}
	f, err := splitHBA(line)
	if err != nil {
		return err.Error()
	}
	need := 5
	switch f[0] {
	case "local":
		return "local lines are Plimsoll's own: nobody but the agent shares the pod's socket"
	case "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc":
	default:
		return "must begin with host, hostssl, hostnossl, hostgssenc or hostnogssenc"
	}
	if len(f) < need {
		return "must be: type database user address method [options]"
	}
	if problem := wrongAddress(f[3]); problem != "" {
		return problem
	}
	method := f[4]
	if strings.Count(f[3], ".") == 3 && !strings.Contains(f[3], "/") || strings.Contains(f[3], ":") && !strings.Contains(f[3], "/") {
		if len(f) < 6 {
			return "an address needs a mask: write 10.0.0.0/8"
		}
		if problem := wrongMask(f[3], f[4]); problem != "" {
			return problem
		}
		method = f[5]
	}
	if method == "cert" && f[0] != "hostssl" {
		return "method cert needs hostssl: only a TLS connection has a certificate"
	}
	return wrongMethod(method)
}

// wrongAddress: the server takes host names and words, too, but a "/" always is of a prefix.
func wrongAddress(address string) string {
	if !strings.Contains(address, "/") {
		return ""
	}
	if _, err := netip.ParsePrefix(address); err != nil {
		return fmt.Sprintf("%q is no range of addresses; write 10.0.0.0/8 or fd00::/8", address)
	}
	return ""
}

func wrongMask(address, mask string) string {
	a, err1 := netip.ParseAddr(address)
	m, err2 := netip.ParseAddr(mask)
	if err1 != nil || err2 != nil || a.Is4() != m.Is4() {
		return fmt.Sprintf("%q with the mask %q is no range of addresses; write 10.0.0.0/8", address, mask)
	}
	return ""
}

func wrongMethod(method string) string {
	switch method {
	case "scram-sha-256", "reject", "cert", "ldap", "radius", "gss", "pam", "oauth":
		return ""
	case "trust":
		return "method trust lets anyone in without a password; use scram-sha-256 or cert"
	case "md5", "password":
		return "method " + method + " is not safe; use scram-sha-256 (passwords are kept in no other form)"
	case "peer", "ident":
		return "method " + method + " has no meaning between pods; use scram-sha-256 or cert"
	}
	return fmt.Sprintf("method %q is not known; use scram-sha-256, cert or reject", method)
}

// splitHBA splits as the server does: blanks outside of quotes. "@file" would read a file of the pod.
func splitHBA(line string) ([]string, error) {
	var all []string
	var word strings.Builder
	inside, quoted := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, inside = !quoted, true
		case !quoted && r == '#':
			return nil, fmt.Errorf("must have no comment after it")
		case !quoted && (r == ' ' || r == '\t'):
			if inside {
				all = append(all, word.String())
				word.Reset()
				inside = false
			}
			continue
		default:
			inside = true
		}
		if r != '"' {
			word.WriteRune(r)
		}
	}
	if quoted {
		return nil, fmt.Errorf("has a quotation mark that is not closed")
	}
	if inside {
		all = append(all, word.String())
	}
	for _, w := range all {
		if strings.HasPrefix(w, "@") || strings.Contains(w, ",@") {
			return nil, fmt.Errorf("must not read further files (@)")
		}
	}
	if strings.Contains(line, "include") && strings.HasPrefix(all[0], "include") {
		return nil, fmt.Errorf("must not read further files (%s)", all[0])
	}
	return all, nil
}

func validateBootstrap(path *field.Path, d *v1.Database) field.ErrorList {
	var all field.ErrorList
	b := d.Spec.Bootstrap
	if reserved(b.Owner) {
		all = append(all, field.Invalid(path.Child("owner"), b.Owner, "is a role of the server or of Plimsoll; choose another name"))
	}
	switch b.Database {
	case "postgres", "template0", "template1":
		all = append(all, field.Invalid(path.Child("database"), b.Database, "is a database of the server itself; choose another name"))
	}
	return all
}

func reserved(role string) bool {
	return role == Superuser || role == "public" || role == "none" || strings.HasPrefix(role, "pg_") || strings.HasPrefix(role, "plimsoll")
}

// Warnings are what is allowed and rarely meant.
func (e *Engine) Warnings(d *v1.Database) []string {
	if d.Spec.Replication.Synchronous == v1.SynchronousNone {
		return nil // said of that
	}
	var all []string
	for name, value := range d.Spec.Parameters {
		if lower(name) == "synchronous_commit" && !slices.Contains(fullCommits(), strings.ToLower(value)) {
			all = append(all, fmt.Sprintf("spec.parameters[%s]: with %q an acknowledged write can be lost with the primary", name, shorten(value)))
		}
	}
	slices.Sort(all)
	return all
}

// fullCommits are the values of synchronous_commit with which a commit is acknowledged once replicas have it on disk.
func fullCommits() []string { return []string{"on", "true", "yes", "1", "remote_apply"} }
