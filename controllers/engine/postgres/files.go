package postgres

import (
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Files are the member's configuration. The driver adds what only its pod knows: paths, the upstream, the synchronous standbys.
func (e *Engine) Files(d *v1.Database, m engine.Member, all []engine.Member) map[string]string {
	parameters := e.parameters(d)
	for name, value := range ordered(parameters, m, all) {
		parameters[name] = value
	}
	return map[string]string{
		FileParameters: renderParameters(parameters),
		FileHBA:        renderHBA(d),
		FileIdent:      renderIdent(d),
	}
}

func renderParameters(all map[string]string) string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	b.WriteString("# Written by Plimsoll from the Database's spec. Changes made here are lost.\n")
	for _, name := range names {
		fmt.Fprintf(&b, "%s = %s\n", name, quote(name, all[name]))
	}
	return b.String()
}

// quote writes a value as a string. The prefix alone holds escapes that are meant; elsewhere a backslash is a backslash.
func quote(name, value string) string {
	if name != "log_line_prefix" {
		value = strings.ReplaceAll(value, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(value, "'", "''") + "'"
}

func renderHBA(d *v1.Database) string {
	var b strings.Builder
	b.WriteString(`# Written by Plimsoll. Further lines come from spec.postgres.hba.
# The agent, over the socket inside the pod.
local all all peer map=` + IdentMap + `
# Members among each other: by certificate alone.
hostssl replication ` + ReplicationUser + ` all cert map=` + IdentMap + `
hostssl ` + SystemDatabase + ` ` + ReplicationUser + ` all cert map=` + IdentMap + `
host all ` + ReplicationUser + ` all reject
host replication ` + ReplicationUser + ` all reject
host all ` + Superuser + ` all reject
host replication ` + Superuser + ` all reject
`)
	if d.Spec.Postgres != nil && len(d.Spec.Postgres.HBA) > 0 {
		b.WriteString("# From spec.postgres.hba.\n")
		for _, line := range d.Spec.Postgres.HBA {
			if wrongHBA(line) == "" {
				b.WriteString(strings.TrimSpace(line) + "\n")
			}
		}
	}
	b.WriteString("# Everybody else: over TLS, with a password.\nhostssl all all all scram-sha-256\n")
	return b.String()
}

// renderIdent lets each member's certificate, and no other of the same authority, be the replication role.
func renderIdent(d *v1.Database) string {
	return "# Written by Plimsoll: map, name in the certificate, role.\n" +
		IdentMap + ` /^` + MemberPrefix + regexp.QuoteMeta(d.Name) + `-[0-9]+$ ` + ReplicationUser + "\n"
}

// ordered gives the values of the hot-standby-sensitive parameters that this member should have now: on its way up a primary
// waits for its replicas, on its way down a replica waits for its primary. Unknown is never taken for safe: while the primary is
// silent a replica keeps what it runs with, and a primary is not raised past a replica that does not say.
func ordered(wanted map[string]string, m engine.Member, all []engine.Member) map[string]string {
	out := map[string]string{}
	for _, name := range Sensitive() {
		want, err := strconv.ParseInt(wanted[name], 10, 64)
		if err != nil {
			continue
		}
		value := want
		if m.Leader {
			value = leaderValue(name, want, m, all)
		} else {
			value = replicaValue(name, want, m, all)
		}
		out[name] = strconv.FormatInt(value, 10)
	}
	return out
}

func leaderValue(name string, want int64, m engine.Member, all []engine.Member) int64 {
	runs, known := running(m, name)
	if !known || want <= runs {
		return want
	}
	for _, other := range all {
		if other.Name == m.Name {
			continue
		}
		if has, ok := running(other, name); !ok || has < want {
			return runs
		}
	}
	return want
}

func replicaValue(name string, want int64, m engine.Member, all []engine.Member) int64 {
	for _, other := range all {
		if !other.Leader || other.Name == m.Name {
			continue
		}
		if runs, ok := running(other, name); ok {
			return max(runs, want)
		}
	}
	if runs, ok := running(m, name); ok {
		return max(runs, want)
	}
	return want
}

// running is the value that the member's server runs with.
func running(m engine.Member, name string) (int64, bool) {
	if m.Report == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m.Report.Settings[name], 10, 64)
	return n, err == nil
}
