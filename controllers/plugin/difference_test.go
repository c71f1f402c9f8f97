package plugin

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// bound of the bucket of an octave and an eighth of it, as the probe has it.
func bound(eighths int) int64 {
	return int64(math.Exp2(float64(eighths)/8) * float64(time.Second))
}

func row(query string, s view.Sums) view.Row {
	return view.Row{Role: "primary", User: "ada", Database: "books", Query: query, Sums: s}
}

func TestBetween(t *testing.T) {
	table := func(at, began time.Duration, rows ...view.Row) *view.Table {
		return &view.Table{At: noon.Add(at), Began: noon.Add(began), Rows: rows}
	}
	five := view.Sums{
		Calls: 5, Errors: map[string]uint64{"23": 1, "42": 2}, Rows: 50, Received: 500, Sent: 5000, Latency: 5 * time.Second, Queue: time.Second,
		Service: 3 * time.Second, Transfer: time.Second, Buckets: map[int64]uint64{bound(0): 4, bound(8): 1},
	}
	seven := view.Sums{
		Calls: 7, Errors: map[string]uint64{"23": 1, "42": 3}, Rows: 50, Received: 700, Sent: 7000, Latency: 6 * time.Second, Queue: time.Second,
		Service: 4 * time.Second, Transfer: time.Second, Buckets: map[int64]uint64{bound(0): 6, bound(8): 1},
	}
	two := view.Sums{
		Calls: 2, Errors: map[string]uint64{"42": 1}, Received: 200, Sent: 2000, Latency: time.Second, Service: time.Second, Buckets: map[int64]uint64{bound(0): 2},
	}
	faster := seven
	faster.Latency = time.Second
	for sentence, c := range map[string]struct {
		earlier *view.Table
		later   *view.Table
		want    done
	}{
		"what was added":                      {table(0, -time.Hour, row("a", five)), table(2*time.Second, -time.Hour, row("a", seven)), done{2, []view.Row{row("a", two)}}},
		"nothing was added":                   {table(0, -time.Hour, row("a", five)), table(2*time.Second, -time.Hour, row("a", five)), done{2, nil}},
		"a new row counts whole":              {table(0, -time.Hour, row("a", five)), table(2*time.Second, -time.Hour, row("a", five), row("b", two)), done{2, []view.Row{row("b", two)}}},
		"a row that is gone is not in it":     {table(0, -time.Hour, row("a", five), row("b", two)), table(2*time.Second, -time.Hour, row("a", seven)), done{2, []view.Row{row("a", two)}}},
		"a row that went down is new":         {table(0, -time.Hour, row("a", five)), table(2*time.Second, -time.Hour, row("a", two)), done{2, []view.Row{row("a", two)}}},
		"a row whose time went down is new":   {table(0, -time.Hour, row("a", five)), table(2*time.Second, -time.Hour, row("a", faster)), done{2, []view.Row{row("a", faster)}}},
		"another probe counts from its begin": {table(0, -time.Hour, row("a", five)), table(2*time.Second, time.Second, row("a", seven)), done{1, []view.Row{row("a", seven)}}},
		"without an earlier one it is all":    {nil, table(0, -time.Hour, row("a", five), row("idle", view.Sums{})), done{3600, []view.Row{row("a", five)}}},
		"a clock that stands still":           {table(0, -time.Hour, row("a", five)), table(0, -time.Hour, row("a", seven)), done{0, []view.Row{row("a", two)}}},
		"another role is another row": {
			table(0, -time.Hour, row("a", five)), table(2*time.Second, -time.Hour, row("a", five), view.Row{Role: "replica", User: "ada", Database: "books", Query: "a", Sums: two}),
			done{2, []view.Row{{Role: "replica", User: "ada", Database: "books", Query: "a", Sums: two}}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, between(c.earlier, *c.later), cmp.AllowUnexported(done{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatementsOfInstancesAreAddedUp(t *testing.T) {
	on := func(role, query, text string, calls uint64, errors map[string]uint64) view.Row {
		return view.Row{Role: role, User: "ada", Database: "books", Query: query, Text: text, Sums: view.Sums{
			Calls: calls, Errors: errors, Rows: calls, Latency: time.Duration(calls) * time.Second, Buckets: map[int64]uint64{bound(int(calls)): calls},
		}}
	}
	all := []done{
		{2, []view.Row{on("primary", "a", "SELECT ?", 4, map[string]uint64{"42": 2}), on("primary", "b", "", 2, nil)}},
		{4, []view.Row{on("replica", "a", "select ?", 4, map[string]uint64{"42": 1, "57": 1})}},
		{0, []view.Row{on("replica", "b", "", 1, nil)}},
	}
	a := work{
		user: "ada", database: "books", query: "a", text: "select ?", calls: 3, errors: 1.5, rows: 3, busy: 3,
		Sums: view.Sums{Calls: 8, Rows: 8, Errors: map[string]uint64{"42": 3, "57": 1}, Latency: 8 * time.Second, Buckets: map[int64]uint64{bound(4): 8}},
	}
	b := work{
		user: "ada", database: "books", query: "b", calls: 1, rows: 1, busy: 1,
		Sums: view.Sums{Calls: 3, Rows: 3, Latency: 3 * time.Second, Buckets: map[int64]uint64{bound(1): 1, bound(2): 2}},
	}
	equal := []cmp.Option{cmp.AllowUnexported(work{}), cmpopts.EquateEmpty()}
	got := sorted(statements(all, ""), "time")
	if diff := cmp.Diff([]work{a, b}, got, equal...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sum := work{calls: 4, errors: 1.5, rows: 4, busy: 4, Sums: view.Sums{
		Calls: 11, Rows: 11, Errors: map[string]uint64{"42": 3, "57": 1}, Latency: 11 * time.Second, Buckets: map[int64]uint64{bound(1): 1, bound(2): 2, bound(4): 8},
	}}
	if diff := cmp.Diff(sum, together(got), equal...); diff != "" {
		t.Errorf("together (-want +got):\n%s", diff)
	}
	if errs := all[0].rows[0].Errors; errs["42"] != 2 || len(errs) != 1 {
		t.Errorf("what was given was changed: %v", errs)
	}
	replica := statements(all, "replica")
	if sum := together(replica); sum.Calls != 5 || len(replica) != 2 {
		t.Errorf("as replica: %v", replica)
	}
}

func TestSorted(t *testing.T) {
	many := work{query: "many", calls: 100, rows: 1, busy: 1, Sums: view.Sums{Latency: time.Second, Buckets: map[int64]uint64{bound(-40): 100}}}
	slow := work{query: "slow", calls: 1, rows: 2, busy: 0.5, Sums: view.Sums{Latency: 10 * time.Second, Buckets: map[int64]uint64{bound(24): 1}}}
	tail := work{query: "tail", calls: 50, errors: 3, rows: 3, busy: 2, Sums: view.Sums{Latency: 90 * time.Second, Buckets: map[int64]uint64{bound(-41): 48, math.MaxInt64: 2}}}
	for by, want := range map[string][]string{
		"time": {"tail", "many", "slow"}, "calls": {"many", "tail", "slow"}, "mean": {"slow", "tail", "many"}, "p50": {"slow", "many", "tail"},
		"p95": {"slow", "many", "tail"}, "p99": {"tail", "slow", "many"}, "errors": {"tail", "many", "slow"}, "rows": {"tail", "slow", "many"},
	} {
		var got []string
		for _, w := range sorted([]work{slow, many, tail}, by) {
			got = append(got, w.query)
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %v, want %v", by, got, want)
		}
		if !slices.Contains(orders(), by) {
			t.Errorf("%s is not offered", by)
		}
	}
}

func TestQuantile(t *testing.T) {
	for sentence, c := range map[string]struct {
		buckets map[int64]uint64
		q       float64
		want    wait
	}{
		"nothing was counted":                     {nil, 0.5, wait{}},
		"empty buckets":                           {map[int64]uint64{bound(0): 0}, 0.5, wait{}},
		"the middle of a bucket, by logarithm":    {map[int64]uint64{bound(0): 10}, 0.5, wait{seconds: math.Exp2(-1.0 / 16), known: true}},
		"the end of a bucket":                     {map[int64]uint64{bound(0): 10}, 1, wait{seconds: 1, known: true}},
		"the end of the first of two":             {map[int64]uint64{bound(0): 5, bound(16): 5}, 0.5, wait{seconds: 1, known: true}},
		"within the second of two":                {map[int64]uint64{bound(0): 5, bound(16): 5}, 0.9, wait{seconds: 4 * math.Exp2(-0.2/8), known: true}},
		"over empty buckets":                      {map[int64]uint64{bound(0): 5, bound(8): 0, bound(16): 5}, 0.9, wait{seconds: 4 * math.Exp2(-0.2/8), known: true}},
		"what has no bound is its lower end":      {map[int64]uint64{bound(0): 1, math.MaxInt64: 1}, 0.99, wait{seconds: math.Exp2(47.0 / 8), known: true, beyond: true}},
		"a quantile below what has no bound":      {map[int64]uint64{bound(0): 99, math.MaxInt64: 1}, 0.99, wait{seconds: 1, known: true}},
		"the greatest of those that have a bound": {map[int64]uint64{bound(47): 1}, 1, wait{seconds: longest(), known: true}},
	} {
		got := quantile(c.buckets, c.q)
		if got.known != c.want.known || got.beyond != c.want.beyond || math.Abs(got.seconds-c.want.seconds) > 1e-8 {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}

func TestMeanIsOfCallsWhoseBeginningWasSeen(t *testing.T) {
	s := view.Sums{Calls: 10, Latency: 8 * time.Second, Buckets: map[int64]uint64{bound(8): 4}}
	if got := mean(s); got != (wait{seconds: 2, known: true}) {
		t.Errorf("%+v", got)
	}
	if got := mean(view.Sums{Calls: 10}); got.known {
		t.Errorf("%+v", got)
	}
}

func TestClientsAreAddedUp(t *testing.T) {
	got := clients([][]view.Client{
		{{Kind: "node", Name: "n1", Open: 2}, {Namespace: "shop", Kind: "Deployment", Name: "web", Open: 3}},
		{{Namespace: "shop", Kind: "Deployment", Name: "web", Open: 4}, {Kind: "local", Open: 2}},
	})
	want := []view.Client{{Namespace: "shop", Kind: "Deployment", Name: "web", Open: 7}, {Kind: "local", Open: 2}, {Kind: "node", Name: "n1", Open: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWaitsForPeople(t *testing.T) {
	for want, w := range map[string]wait{
		"-": {}, "0µs": {known: true}, "1.25µs": {seconds: 1.25e-6, known: true}, "999µs": {seconds: 999.4e-6, known: true}, "1.00ms": {seconds: 999.6e-6, known: true},
		"12.3ms": {seconds: 0.0123, known: true}, "1.00s": {seconds: 0.9996, known: true}, ">58.7s": {seconds: longest(), known: true, beyond: true}, "26h0m0s": {seconds: 93600, known: true},
	} {
		if got := w.String(); got != want {
			t.Errorf("%+v is %q, want %q", w, got, want)
		}
	}
	for want, n := range map[string]float64{"0": 0, "<0.01": 0.0049, "0.50": 0.5, "10.0": 9.996, "99.9": 99.94, "100": 99.96, "12346": 12345.6} {
		if got := rate(n); got != want {
			t.Errorf("%g is %q, want %q", n, got, want)
		}
	}
}
