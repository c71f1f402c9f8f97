package postgres

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestValidate(t *testing.T) {
	at := func(version string) func(*v1.Database) { return func(d *v1.Database) { d.Spec.Version = version } }
	led := func(d *v1.Database) { d.Status.Epoch = 1 }
	ran := func(version string) func(*v1.Database) {
		return func(d *v1.Database) { d.Status.Epoch, d.Status.Version = 1, version }
	}
	hba := func(line string) func(*v1.Database) {
		return func(d *v1.Database) { d.Spec.Postgres = &v1.PostgresSpec{HBA: []string{line}} }
	}
	rows := map[string]struct {
		old  *v1.Database
		d    *v1.Database
		want string // a part of the only error; empty for none
	}{
		"the smallest":                       {nil, orders(), ""},
		"a release that is too old":          {nil, orders(at("13.4")), "PostgreSQL 14 to 18 are known"},
		"a release that is too new":          {nil, orders(at("19")), "PostgreSQL 14 to 18 are known"},
		"a higher minor":                     {orders(at("15.17")), orders(at("15.18")), ""},
		"a lower minor":                      {orders(at("15.18"), led), orders(at("15.9"), led), "may not be lowered"},
		"from a minor to any":                {orders(at("15.18")), orders(at("15")), ""},
		"from any to a minor":                {orders(at("15")), orders(at("15.18")), ""},
		"a higher major":                     {orders(at("15"), led), orders(at("16"), led), "from 15 to 16 is not possible"},
		"a lower major":                      {orders(at("16"), led), orders(at("15"), led), "from 16 to 15 is not possible"},
		"another major of what never ran":    {orders(at("16")), orders(at("15.4")), ""},
		"a lower minor of what never ran":    {orders(at("15.18")), orders(at("15.9")), ""},
		"another major than the data's":      {nil, orders(at("16"), ran("15.18")), "15.18 runs, and a change of the major version from 15 to 16 is not possible"},
		"the major of the data":              {orders(at("16.1"), ran("15.18")), orders(at("15.18"), ran("15.18")), ""},
		"a name that is too long":            {nil, orders(func(d *v1.Database) { d.Name = strings.Repeat("x", 51) }), "metadata.name"},
		"the superuser as owner":             {nil, orders(func(d *v1.Database) { d.Spec.Bootstrap.Owner = "postgres" }), "spec.bootstrap.owner"},
		"a role of the server as owner":      {nil, orders(func(d *v1.Database) { d.Spec.Bootstrap.Owner = "pg_monitor" }), "spec.bootstrap.owner"},
		"a database of the server":           {nil, orders(func(d *v1.Database) { d.Spec.Bootstrap.Database = "template1" }), "spec.bootstrap.database"},
		"a parameter":                        {nil, orders(set("work_mem", "64MB")), ""},
		"one in capitals":                    {nil, orders(set("WORK_MEM", "64MB")), ""},
		"one of an extension":                {nil, orders(set("pg_stat_statements.max", "100")), ""},
		"the same one twice":                 {nil, orders(set("work_mem", "64MB"), set("Work_Mem", "1MB")), "is the same parameter as"},
		"one that nobody knows":              {nil, orders(set("work_memory", "64MB")), "knows no such parameter"},
		"one of another release":             {nil, orders(at("16"), set("transaction_timeout", "1s")), "PostgreSQL 16 does not know transaction_timeout"},
		"one that was taken away":            {nil, orders(at("17"), set("old_snapshot_threshold", "1h")), "does not know"},
		"a name with a line end":             {nil, orders(set("work_mem = 1\nfsync", "off")), "is no name"},
		"a value with a line end":            {nil, orders(set("work_mem", "1MB\nfsync = off")), "must be one line"},
		"a value that is too long":           {nil, orders(set("search_path", strings.Repeat("x", 5000))), "at most 4096 bytes"},
		"a number that is none":              {nil, orders(set("work_mem", "much")), "is a number"},
		"a unit that is none":                {nil, orders(set("work_mem", "1 parsec")), "has no unit"},
		"a unit of time for memory":          {nil, orders(set("work_mem", "1min")), "has no unit"},
		"a number out of bounds":             {nil, orders(set("checkpoint_timeout", "1s")), "is between 30 and 86400"},
		"bounds in other units":              {nil, orders(set("checkpoint_timeout", "1h")), ""},
		"a switch that is none":              {nil, orders(set("jit", "maybe")), "is a switch"},
		"a choice that is none":              {nil, orders(set("wal_compression", "rar")), "is one of"},
		"a switch's word for a choice":       {nil, orders(set("synchronous_commit", "off")), ""},
		"fsync off":                          {nil, orders(set("fsync", "no")), "a crash destroys the data"},
		"fsync on":                           {nil, orders(set("fsync", "on")), ""},
		"full_page_writes off":               {nil, orders(set("full_page_writes", "off")), "a crash destroys the data"},
		"wal_level minimal":                  {nil, orders(set("wal_level", "minimal")), "must be replica or logical"},
		"wal_level logical":                  {nil, orders(set("wal_level", "logical")), ""},
		"too few senders":                    {nil, orders(set("max_wal_senders", "4")), "spec.replicas + 2"},
		"too few connections":                {nil, orders(set("max_connections", "5")), "must be 10 or more"},
		"more buffers than memory":           {nil, orders(limit("1Gi"), set("shared_buffers", "1TB")), "is more than spec.resources.limits.memory, which is 1Gi"},
		"more blocks than memory":            {nil, orders(limit("1Gi"), set("shared_buffers", "131073")), "is more than spec.resources.limits.memory"},
		"buffers within memory":              {nil, orders(limit("1Gi"), set("shared_buffers", "512MB")), ""},
		"buffers without a limit":            {nil, orders(set("shared_buffers", "1TB")), ""},
		"all connections reserved":           {nil, orders(set("max_connections", "20"), set("superuser_reserved_connections", "20")), "must be more than superuser_reserved_connections"},
		"connections below the reserve":      {nil, orders(at("16"), set("max_connections", "20"), set("reserved_connections", "15")), "and reserved_connections together, which is 20"},
		"connections above the reserve":      {nil, orders(at("16"), set("max_connections", "21"), set("reserved_connections", "15")), ""},
		"a line of pg_hba":                   {nil, orders(hba("hostssl app reader 10.0.0.0/8 scram-sha-256")), ""},
		"one with a mask":                    {nil, orders(hba("host app reader 10.0.0.0 255.0.0.0 reject")), ""},
		"one with quotes":                    {nil, orders(hba(`hostssl "my app" "the reader" all cert clientcert=verify-full`)), ""},
		"one with a prefix that is too long": {nil, orders(hba("hostssl all all 10.0.0.0/99 scram-sha-256")), "no range of addresses"},
		"one with a range of IPv6":           {nil, orders(hba("hostssl all all fd00::/8 scram-sha-256")), ""},
		"one with a mask that is none":       {nil, orders(hba("hostssl all all 10.0.0.0 fd00:: scram-sha-256")), "no range of addresses"},
		"one with a host name":               {nil, orders(hba("hostssl all all .example.com scram-sha-256")), ""},
		"certificates without TLS":           {nil, orders(hba("host all all 10.0.0.0/8 cert")), "needs hostssl"},
		"one that trusts":                    {nil, orders(hba("host all all all trust")), "lets anyone in"},
		"one that trusts behind a mask":      {nil, orders(hba("host all all 10.0.0.0 255.0.0.0 trust")), "lets anyone in"},
		"one of the socket":                  {nil, orders(hba("local all all trust")), "local lines"},
		"one that is too short":              {nil, orders(hba("host all all")), "must be: type"},
		"one with md5":                       {nil, orders(hba("host all all all md5")), "is not safe"},
		"one that reads a file":              {nil, orders(hba("host @/etc/passwd all all cert")), "must not read further files"},
		"one that includes":                  {nil, orders(hba("include /etc/passwd")), "must not read further files"},
		"one that goes on in the next line":  {nil, orders(hba(`host all all all cert \`)), "without a backslash"},
		"two in one":                         {nil, orders(hba("host all all all cert\nhost all all all trust")), "one line"},
		"one with an open quote":             {nil, orders(hba(`host "all all all cert`)), "not closed"},
		"one with a comment after it":        {nil, orders(hba("host all all all cert # trust")), "comment"},
	}
	for _, name := range []string{
		"listen_addresses", "port", "ssl", "ssl_ciphers", "hba_file", "data_directory", "unix_socket_directories", "primary_conninfo", "synchronous_standby_names",
		"hot_standby", "archive_mode", "archive_command", "restore_command", "cluster_name", "log_destination", "logging_collector", "log_line_prefix",
		"recovery_target_lsn", "recovery_target_timeline", "default_transaction_read_only", "password_encryption", "zero_damaged_pages", "restart_after_crash",
	} {
		rows["managed "+name] = struct {
			old  *v1.Database
			d    *v1.Database
			want string
		}{nil, orders(set(name, "on")), name + " is managed by Plimsoll: "}
	}
	e := New(Options{})
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			errs := e.Validate(row.old, row.d)
			if row.want == "" {
				if len(errs) != 0 {
					t.Errorf("errors %v, want none", errs)
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), row.want) {
				t.Errorf("errors %v, want one with %q", errs, row.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	e := New(Options{})
	rows := map[string]struct {
		d    *v1.Database
		want []string
	}{
		"the default":                {orders(), nil},
		"commits that wait":          {orders(set("synchronous_commit", "on")), nil},
		"the same by another word":   {orders(set("synchronous_commit", "True")), nil},
		"commits that wait for more": {orders(set("synchronous_commit", "remote_apply")), nil},
		"commits that wait for no disk": {orders(set("synchronous_commit", "off")), []string{
			`spec.parameters[synchronous_commit]: with "off" an acknowledged write can be lost with the primary`,
		}},
		"commits that do not wait": {orders(set("synchronous_commit", "local")), []string{
			`spec.parameters[synchronous_commit]: with "local" an acknowledged write can be lost with the primary`,
		}},
		"nobody asked them to": {orders(set("synchronous_commit", "off"), func(d *v1.Database) { d.Spec.Replication.Synchronous = v1.SynchronousNone }), nil},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, e.Warnings(row.d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzParameters: whatever a Database holds, the file has one line for each parameter and nothing else.
func FuzzParameters(f *testing.F) {
	f.Add("work_mem", "64MB")
	f.Add("a.b", "it's \\ 'x")
	f.Add("search_path\nfsync", "off")
	e := New(Options{})
	f.Fuzz(func(t *testing.T, name, value string) {
		d := orders(set(name, value))
		all := e.parameters(d)
		text := renderParameters(all)
		if got, want := strings.Count(text, "\n"), len(all)+1; got != want {
			t.Errorf("%d lines for %d parameters:\n%s", got, len(all), text)
		}
		if strings.Contains(text, "fsync = 'off'") {
			t.Error("fsync is off")
		}
	})
}

// FuzzHBA: a line that is taken is one line that lets nobody in without proof.
func FuzzHBA(f *testing.F) {
	f.Add("hostssl all all all cert")
	f.Add("host \"a\tb\" all 1.2.3.4 255.0.0.0 trust")
	f.Fuzz(func(t *testing.T, line string) {
		if wrongHBA(line) != "" {
			return
		}
		if strings.ContainsAny(line, "\n\r\x00") {
			t.Errorf("taken: %q", line)
		}
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] != "#" && fields[len(fields)-1] == "trust" && !strings.HasPrefix(strings.TrimSpace(line), "#") && len(fields) == 5 {
			t.Errorf("taken: %q", line)
		}
	})
}

// FuzzRoom: whatever memory and room a Database has, Plimsoll's own settings are some that the server takes.
func FuzzRoom(f *testing.F) {
	f.Add("1Gi", "10Gi", "")
	f.Add("1", "1Mi", "1Mi")
	f.Add("64Ti", "8Ei", "8Ei")
	f.Add("-1Gi", "0", "1m")
	e := New(Options{})
	f.Fuzz(func(t *testing.T, memory, size, wal string) {
		d := orders()
		var err error
		var limit resource.Quantity
		if limit, err = resource.ParseQuantity(memory); err != nil {
			return
		}
		d.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: limit}
		if d.Spec.Storage.Size, err = resource.ParseQuantity(size); err != nil {
			return
		}
		if wal != "" {
			d.Spec.Storage.WAL = &v1.VolumeSpec{}
			if d.Spec.Storage.WAL.Size, err = resource.ParseQuantity(wal); err != nil {
				return
			}
		}
		for name, value := range defaults(d) {
			if p, known := e.catalogue[name]; !known {
				t.Errorf("PostgreSQL knows no %s", name)
			} else if err := p.check(value); err != nil {
				t.Errorf("%s of memory %s, size %s, log %q is %s: it %v", name, memory, size, wal, value, err)
			}
		}
	})
}

// FuzzUnit: a number with a unit is the same number when it is said in the parameter's own.
func FuzzUnit(f *testing.F) {
	f.Add("64MB", "8kB")
	f.Add("1.5h", "ms")
	f.Add("0x10", "s")
	f.Add("1e400", "")
	f.Add("kB", "kB")
	f.Fuzz(func(t *testing.T, value, unit string) {
		n, err := inUnit(value, unit)
		if err != nil {
			return
		}
		if math.IsNaN(n) || math.IsInf(n, 0) {
			t.Fatalf("%q is %v", value, n)
		}
		again, err := inUnit(strconv.FormatFloat(n, 'f', -1, 64), unit)
		if err != nil || again != n {
			t.Errorf("%q is %v in %q, which is %v (%v)", value, n, unit, again, err)
		}
	})
}
