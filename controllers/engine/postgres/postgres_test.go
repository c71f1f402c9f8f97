package postgres

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func orders(change ...func(*v1.Database)) *v1.Database {
	n := int32(3)
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}, Spec: v1.DatabaseSpec{
		Engine: v1.EnginePostgres, Version: "17", Replicas: &n, Storage: v1.StorageSpec{Size: resource.MustParse("10Gi")},
		Bootstrap: v1.BootstrapSpec{Database: "app", Owner: "app"},
	}}
	for _, c := range change {
		c(d)
	}
	return d
}

func set(name, value string) func(*v1.Database) {
	return func(d *v1.Database) {
		if d.Spec.Parameters == nil {
			d.Spec.Parameters = map[string]string{}
		}
		d.Spec.Parameters[name] = value
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run the test with -update and read the change:\n%s", path, got)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

func TestFilesAreRendered(t *testing.T) {
	e := New(Options{})
	rows := map[string]*v1.Database{
		"smallest": orders(),
		"full": orders(set("Work_Mem", "8MB"), set("search_path", `"$user", public, 'it''s'`), set("auto_explain.log_min_duration", "1s"),
			set("log_line_prefix", "stolen"), set("bytea_output", `hex`), set("application_name", `back\slash`), func(d *v1.Database) {
				d.Spec.Version = "15.18"
				d.Spec.Storage.WAL = &v1.VolumeSpec{Size: resource.MustParse("4Gi")}
				d.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
				d.Spec.Postgres = &v1.PostgresSpec{HBA: []string{"hostssl reports reader 10.0.0.0/8 cert", "host all all all trust", "# for the old host"}}
			}),
	}
	for name, d := range rows {
		t.Run(name, func(t *testing.T) {
			m := engine.Member{Name: "orders-1", Ordinal: 1}
			files := e.Files(d, m, []engine.Member{m})
			for _, f := range []string{FileParameters, FileHBA, FileIdent} {
				golden(t, name+"."+f, files[f])
			}
			if len(files) != 3 {
				t.Errorf("%d files", len(files))
			}
			again := e.Files(d, m, []engine.Member{m})
			for f := range files {
				if files[f] != again[f] {
					t.Errorf("%s differs the second time", f)
				}
			}
		})
	}
}

func TestParts(t *testing.T) {
	got := New(Options{}).Parts(orders())
	if got.Image != "docker.io/library/postgres:17" || got.RunAsUser != 999 || got.Port.ContainerPort != 5432 {
		t.Errorf("parts %+v", got)
	}
	got = New(Options{ImagePattern: "mirror/pg:%s-debian", RunAsUser: 101}).Parts(orders())
	if got.Image != "mirror/pg:17-debian" || got.RunAsUser != 101 {
		t.Errorf("parts %+v", got)
	}
}

func TestTheCatalogueIsWhole(t *testing.T) {
	e := New(Options{})
	if n := len(e.catalogue); n < 370 {
		t.Errorf("%d parameters", n)
	}
	for major := MinMajor; major <= MaxMajor; major++ {
		d := orders(func(d *v1.Database) { d.Spec.Version = "18" })
		for name, value := range defaults(d) {
			if problem := e.wrong(name, value, major, 3); problem != "" {
				t.Errorf("default for %d: %s", major, problem)
			}
		}
		for name, value := range fixed(major) {
			p, ok := e.catalogue[name]
			if !ok || !p.known(major) || p.check(value) != nil || managed(name) == "" {
				t.Errorf("fixed for %d: %s = %s: known %v, check %v, managed %q", major, name, value, ok, p.check(value), managed(name))
			}
		}
	}
	for _, name := range Sensitive() {
		if !e.catalogue[name].restart() {
			t.Errorf("%s needs no restart?", name)
		}
	}
	for name := range managedByName() {
		if _, ok := e.catalogue[name]; !ok && name != "include" && name != "include_dir" && name != "include_if_exists" {
			t.Errorf("managed %s is not in the catalogue", name)
		}
	}
}

func TestDefaultsFollowTheRoomThatThereIs(t *testing.T) {
	rows := map[string]struct {
		d    *v1.Database
		want map[string]string
	}{
		"nothing known of memory":     {orders(), map[string]string{"shared_buffers": "128MB", "max_slot_wal_keep_size": "2560MB", "max_wal_size": "1024MB", "wal_keep_size": "512MB", "huge_pages": "off"}},
		"a quarter of the limit":      {orders(limit("8Gi")), map[string]string{"shared_buffers": "2048MB", "effective_cache_size": "6144MB", "maintenance_work_mem": "512MB"}},
		"a tiny container":            {orders(limit("32Mi")), map[string]string{"shared_buffers": "16MB", "effective_cache_size": "32MB", "maintenance_work_mem": "16MB"}},
		"a tiny volume":               {orders(func(d *v1.Database) { d.Spec.Storage.Size = resource.MustParse("256Mi") }), map[string]string{"max_slot_wal_keep_size": "64MB", "max_wal_size": "80MB", "min_wal_size": "40MB", "wal_keep_size": "32MB"}},
		"a volume of its own for log": {orders(func(d *v1.Database) { d.Spec.Storage.WAL = &v1.VolumeSpec{Size: resource.MustParse("2Gi")} }), map[string]string{"max_slot_wal_keep_size": "1228MB", "max_wal_size": "204MB"}},
		"huge pages that the pod may use": {orders(func(d *v1.Database) {
			d.Spec.Resources.Limits = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("1Gi")}
		}), map[string]string{"huge_pages": "try"}},
		"what the user sets is no default": {orders(set("Shared_Buffers", "1GB")), map[string]string{"shared_buffers": ""}},
		"what was refused does not hold":   {orders(set("max_connections", "3")), map[string]string{"max_connections": "100"}},
		"what Plimsoll manages is told":    {orders(set("hot_standby", "off")), map[string]string{"hot_standby": "on", "password_encryption": "scram-sha-256"}},
	}
	e := New(Options{})
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			got := e.Effective(row.d)
			for p, want := range row.want {
				if got[p] != want {
					t.Errorf("%s is %q, want %q", p, got[p], want)
				}
			}
		})
	}
}

func limit(memory string) func(*v1.Database) {
	return func(d *v1.Database) {
		d.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
}
