package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestGrowth fills a Database with rows until its volumes grow by themselves, online, up to the limit and not past it.
func TestGrowth(t *testing.T) {
	t.Parallel()
	spec := orders(shared.namespace(t), 3)
	first, last := resource.MustParse("400Mi"), resource.MustParse("480Mi")
	spec.Spec.Storage = v1.StorageSpec{Size: first, Growth: &v1.GrowthSpec{WhenFullPercent: ptr.To(int32(60)), StepPercent: ptr.To(int32(25)), MaxSize: last}}
	spec.Spec.Parameters = map[string]string{"max_wal_size": "96MB", "min_wal_size": "32MB", "wal_keep_size": "0"}
	d := shared.create(t, spec)
	d.awaitReady(readyLimit)
	before := d.pods()
	w := d.ledger()
	filler := d.filler()

	filler.until(last, 90*time.Second) // 500Mi by the step, were there no limit
	t.Logf("grew to %s with %d MB of rows", last.String(), filler.rows)

	// Past the threshold again, there is nothing to grow to.
	eventually(t.Context(), t, time.Minute, "every volume is 65 per cent full", func() error {
		filler.insert(5)
		for name := range before {
			if used := d.used(name); used < 65 {
				return fmt.Errorf("%s is %d per cent full, with %d MB of rows", name, used, filler.rows)
			}
		}
		return nil
	})
	time.Sleep(5 * time.Second)
	d.awaitReady(time.Minute)
	for name, c := range d.claims() {
		asked, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
		if asked.Cmp(last) != 0 || has.Cmp(last) != 0 {
			t.Errorf("claim %s asks for %s and has %s, want the limit %s", name, asked.String(), has.String(), last.String())
		}
	}
	if after := d.pods(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were replaced or restarted: %v before, %v after", before, after)
	}
	filler.kept()
	account, _ := w.settle(time.Time{})
	if account.Hands() != 0 {
		t.Errorf("the writer changed %d times while volumes grew", account.Hands())
	}
}

// filler writes rows of one megabyte that do not compress.
type filler struct {
	*database
	session *pgx.Conn
	rows    int
}

func (d *database) filler() *filler {
	d.t.Helper()
	f := &filler{database: d, session: d.session()}
	f.run(`CREATE TABLE filler (n int PRIMARY KEY, body bytea NOT NULL)`)
	f.run(`ALTER TABLE filler ALTER body SET STORAGE EXTERNAL`)
	return f
}

func (f *filler) run(sql string, args ...any) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	if _, err := f.session.Exec(ctx, sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

func (f *filler) insert(n int) {
	f.t.Helper()
	for range n {
		f.rows++
		f.run(`INSERT INTO filler SELECT $1, decode(string_agg(md5(($1 * 65536 + i)::text), ''), 'hex') FROM generate_series(1, 65536) i`, f.rows)
	}
}

// until inserts while the volumes are smaller than a size, slowly enough for the growth to be in time.
func (f *filler) until(size resource.Quantity, limit time.Duration) {
	f.t.Helper()
	eventually(f.t.Context(), f.t, limit, "every volume grew to "+size.String(), func() error {
		small := size.DeepCopy()
		asked := false
		for _, c := range f.claims() {
			request := c.Spec.Resources.Requests[corev1.ResourceStorage]
			asked = asked || request.Cmp(size) >= 0
			if has := c.Status.Capacity[corev1.ResourceStorage]; has.Cmp(small) < 0 {
				small = has
			}
		}
		if small.Cmp(size) >= 0 {
			return nil
		}
		if !asked {
			f.insert(5)
		}
		return fmt.Errorf("the smallest has %s, with %d MB of rows", small.String(), f.rows)
	})
}

// used is how full the data volume of an instance is, in per cent, by the words of its pod.
func (d *database) used(instance string) int {
	d.t.Helper()
	out, err := d.cluster.Kubectl(d.t.Context(), "", "--namespace="+d.key.Namespace, "exec", instance, "--container=database", "--", "df", "--output=pcent", "/var/lib/plimsoll/data")
	if err != nil {
		d.t.Fatalf("ask %s how full its volume is: %v", instance, err)
	}
	used := 0
	if _, err := fmt.Sscanf(out, "Use%%\n%d%%", &used); err != nil {
		d.t.Fatalf("how full the volume of %s is: %q: %v", instance, out, err)
	}
	return used
}

// kept reads every row back.
func (f *filler) kept() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	var rows, whole int
	if err := f.session.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE length(body) = 1048576) FROM filler`).Scan(&rows, &whole); err != nil {
		f.t.Fatal(err)
	}
	if rows != f.rows || whole != f.rows {
		f.t.Errorf("%d rows are there, %d of them whole; %d were acknowledged", rows, whole, f.rows)
	}
}
