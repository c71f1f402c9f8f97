package driver

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

const (
	mainFile   = "postgresql.conf"
	memberFile = "member.conf"
)

// install writes the configuration of the role and says whether anything changed. It lies in memory, outside of the data
// directory: a full volume cannot keep it from changing, and neither pg_rewind nor a copy of another member's data brings in that
// member's. What never changes is on the server's command line, where nothing overrides it.
func (d *Driver) install(r engine.Role, quiet bool) (bool, error) {
	for _, name := range []string{postgres.FileParameters, postgres.FileHBA, postgres.FileIdent} {
		if r.Files[name] == "" {
			return false, fmt.Errorf("the aim holds no %s for %s", name, r.Member)
		}
	}
	if err := d.mkdir(d.conf()); err != nil {
		return false, err
	}
	changed, err := d.installTLS()
	if err != nil {
		return false, err
	}
	hba := r.Files[postgres.FileHBA]
	if quiet {
		hba = quietHBA()
	}
	for _, f := range [][2]string{
		{postgres.FileParameters, r.Files[postgres.FileParameters]},
		{postgres.FileHBA, hba},
		{postgres.FileIdent, r.Files[postgres.FileIdent] + d.ident(r)},
		{memberFile, d.memberConf(r, quiet)},
		{mainFile, "# Written by Plimsoll.\ninclude '" + postgres.FileParameters + "'\ninclude '" + memberFile + "'\n"},
	} {
		wrote, err := d.update(filepath.Join(d.conf(), f[0]), []byte(f[1]))
		if err != nil {
			return changed, err
		}
		changed = changed || wrote
	}
	return changed, nil
}

// ident lets this process be the superuser, and the owner of the first database while its SQL runs.
func (d *Driver) ident(r engine.Role) string {
	line := func(role string) string {
		return fmt.Sprintf("%s \"%s\" \"%s\"\n", postgres.IdentMap, d.cfg.OSUser, role)
	}
	text := "# The agent, over the socket.\n" + line(postgres.Superuser)
	if r.Database.Owner != "" {
		text += line(r.Database.Owner)
	}
	return text
}

// quietHBA lets in nobody but the agent and the members: their log must flow to the end.
func quietHBA() string {
	return "# Written by Plimsoll: a hand-over is under way.\n" +
		"local all " + postgres.Superuser + " peer map=" + postgres.IdentMap + "\n" +
		"hostssl replication " + postgres.ReplicationUser + " all cert map=" + postgres.IdentMap + "\n" +
		"hostssl " + postgres.SystemDatabase + " " + postgres.ReplicationUser + " all cert map=" + postgres.IdentMap + "\n" +
		"host all all all reject\n"
}

// memberSettings are the settings that follow from the Lease.
type memberSettings struct{ conninfo, slot, synchronous string }

func (d *Driver) memberSettings(r engine.Role) memberSettings {
	var m memberSettings
	if r.Kind == engine.Replica && r.Upstream != "" {
		m.conninfo = d.conninfo(r, upstreamApplication(r), "")
		m.slot = postgres.SlotName(r.Member)
	}
	if r.Kind == engine.Primary {
		m.synchronous = synchronousNames(r)
	}
	return m
}

// turnTime is for how long after a change of hands new segments of the log are not filled with zeros first. The new timeline begins
// with a new one on every member, and the first commit waits until it is on disk; sixteen megabytes of zeros would be most of that.
// Later they are worth it: commits into a file that has its blocks are quicker. The next look at the role after it turns it back.
const turnTime = 20 * time.Second

// memberConf is what the role says of this member. A primary keeps no upstream.
func (d *Driver) memberConf(r engine.Role, quiet bool) string {
	m := d.memberSettings(r)
	var b strings.Builder
	b.WriteString("# Written by Plimsoll from the Lease.\n")
	fmt.Fprintf(&b, "primary_conninfo = %s\n", literal(m.conninfo))
	fmt.Fprintf(&b, "primary_slot_name = %s\n", literal(m.slot))
	fmt.Fprintf(&b, "synchronous_standby_names = %s\n", literal(m.synchronous))
	if time.Since(d.turned) < turnTime {
		b.WriteString("wal_init_zero = 'off'\n")
	}
	if quiet {
		b.WriteString("default_transaction_read_only = 'on'\n")
	}
	return b.String()
}

// synchronousNames lists who counts explicitly: a stranger under any other name never does.
func synchronousNames(r engine.Role) string {
	if r.SyncCount <= 0 || len(r.SyncPeers) == 0 {
		return ""
	}
	names := make([]string, 0, len(r.SyncPeers))
	for _, name := range r.SyncPeers {
		names = append(names, pgx.Identifier{name}.Sanitize())
	}
	return fmt.Sprintf("ANY %d (%s)", r.SyncCount, strings.Join(names, ", "))
}

// literal of a configuration file.
func literal(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(value) + "'"
}

// Command is the server's process. What it says here, no file and no ALTER SYSTEM overrides.
func (d *Driver) Command(r engine.Role) engine.Command {
	d.setPhase("")
	file := func(name string) string { return filepath.Join(d.conf(), name) }
	cert := func(name string) string { return filepath.Join(d.tlsDir(), name) }
	args := []string{"-D", d.data()}
	for _, s := range []string{
		"config_file=" + file(mainFile), "hba_file=" + file(postgres.FileHBA), "ident_file=" + file(postgres.FileIdent),
		"listen_addresses=" + d.cfg.Listen, fmt.Sprintf("port=%d", d.cfg.Port),
		"unix_socket_directories=" + d.cfg.RunDir, "unix_socket_permissions=0700",
		"cluster_name=" + r.Member,
		"ssl=on", "ssl_cert_file=" + cert(serverCert), "ssl_key_file=" + cert(serverKey), "ssl_ca_file=" + cert(clientCA), "ssl_min_protocol_version=TLSv1.2",
		"logging_collector=off", "log_destination=stderr", "restart_after_crash=off", "archive_mode=off",
	} {
		args = append(args, "-c", s)
	}
	return engine.Command{Path: d.bins.path("postgres"), Args: args, Env: d.env(), Dir: d.cfg.DataDir, FastStop: int(fastStop)}
}
