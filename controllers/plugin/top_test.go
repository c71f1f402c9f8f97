package plugin

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// tables of so many seconds of an instance.
func tables(seconds int, state string, rows func(second int) []view.Row, connected ...view.Client) []view.Line {
	all := []view.Line{{Probe: new(true)}}
	for second := range seconds {
		all = append(all, view.Line{Table: &view.Table{
			At: noon.Add(time.Duration(second) * time.Second), Began: noon.Add(-time.Hour), State: state, Rows: rows(second), Clients: connected,
		}})
	}
	return all
}

// calls so many a second, each as slow as the bucket.
func calls(n uint64, bucket int, second int) view.Sums {
	n *= uint64(second + 10)
	each := time.Duration(bound(bucket))
	return view.Sums{
		Calls: n, Rows: 3 * n, Received: 40 * n, Sent: 200 * n, Latency: time.Duration(n) * each, Service: time.Duration(n) * each,
		Buckets: map[int64]uint64{bound(bucket): n},
	}
}

func primary(second int) []view.Row {
	failing := calls(2, -16, second)
	failing.Errors = map[string]uint64{"23": failing.Calls / 2}
	hanging := calls(1, 0, second)
	hanging.Latency, hanging.Buckets = time.Duration(hanging.Calls)*90*time.Second, map[int64]uint64{math.MaxInt64: hanging.Calls}
	return []view.Row{
		{Role: "primary", User: "ada", Database: "books", Query: "3f6a91c05be2d784", Text: "SELECT a, b\n  FROM books JOIN authors USING (author) WHERE shelf = ? AND year BETWEEN ? AND ? ORDER BY year DESC", Sums: calls(400, -80, second)},
		{Role: "primary", User: "ada", Database: "books", Query: "77aa4c0e9b3f5d6c", Text: "INSERT INTO books (a, b) VALUES (?, ?)", Sums: failing},
		{Role: "primary", User: "a-user-with-a-name-that-is-long", Database: "b\x1b[2J", Query: "0f3a9d1e77aa4c0e", Text: "SELECT pg_sleep(?)", Sums: hanging},
		{Role: "primary", User: "ada", Database: "books", Query: "idle", Text: "SELECT now()", Sums: calls(1, 0, 0)},
		{Role: "primary", Query: view.Other, Sums: calls(10, -72, second)},
	}
}

func replica(second int) []view.Row {
	return []view.Row{{Role: "replica", User: "ada", Database: "books", Query: "3f6a91c05be2d784", Text: "SELECT a, b", Sums: calls(100, -64, second)}}
}

func shop(seconds int) pods {
	return pods{
		"orders-1": {lines: tables(seconds, "measured", primary, view.Client{Namespace: "shop", Kind: "Deployment", Name: "web", Open: 20}, view.Client{Kind: "local", Open: 1}, view.Client{Kind: "node", Name: "node1", Open: 2})},
		"orders-2": {lines: tables(seconds, "partly", replica, view.Client{Namespace: "shop", Kind: "Deployment", Name: "web", Open: 20}, view.Client{Namespace: "crm", Kind: "CronJob", Name: "report", Open: 4}, view.Client{Namespace: "shop", Kind: "Database", Name: "orders", Open: 3}, view.Client{Kind: "outside", Open: 2}, view.Client{Kind: "unknown", Open: 1})},
		"orders-3": {lines: []view.Line{{Probe: new(false)}}},
	}
}

func TestTop(t *testing.T) {
	for name, args := range map[string][]string{
		"top": nil, "top-limited": {"--limit", "1", "--sort", "errors"}, "top-replica": {"--role", "replica"}, "top-instance": {"--instance", "orders-2", "--sort", "p99"}, "top-total": {"--total"},
		"top-json": {"-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			var c call
			seconds := 3
			if name == "top-total" {
				seconds = 1 // it does not wait for more
			}
			if err := c.run(t.Context(), t, shop(seconds), append([]string{"top", "orders"}, args...)...); err != nil {
				t.Fatal(err)
			}
			golden(t, name, c.out.String())
			if ended := c.endedByInput(t); !slices.Contains(ended, "orders-2") {
				t.Errorf("of the programs in the pods ended with their input: %v", ended)
			}
			said := ""
			if name == "top-json" {
				said = "orders-2: it is measured in part: see kubectl plimsoll probe status\norders-3: no probe tells of it: see kubectl plimsoll probe status\n"
			}
			if diff := cmp.Diff(said, c.err.String()); diff != "" {
				t.Errorf("on standard error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTopOfNothing(t *testing.T) {
	var c call
	if err := c.run(t.Context(), t, pods{"orders-1": {lines: tables(3, "waiting", func(int) []view.Row { return nil })}}, "top", "orders", "--instance", "orders-1"); err != nil {
		t.Fatal(err)
	}
	golden(t, "top-nothing", c.out.String())
}

func TestTopCutsTextsToTheTerminal(t *testing.T) {
	p := picture{statements: []work{{user: "ada", query: "a", text: strings.Repeat("x", 200)}}}
	for width, want := range map[int]int{0: textWidth, 100: 100, 10: leastText} {
		var out strings.Builder
		if err := p.table(&out, 0, width); err != nil {
			t.Fatal(err)
		}
		got := 0
		for line := range strings.Lines(out.String()) {
			if begin := strings.Index(line, "x"); begin >= 0 {
				if got = len([]rune(strings.TrimSpace(line))); width != 100 {
					got = len([]rune(strings.TrimSpace(line[begin:])))
				}
			}
		}
		if got != want {
			t.Errorf("of %d columns it takes %d, want %d\n%s", width, got, want, out.String())
		}
	}
}

func TestTopWatchesUntilItIsInterrupted(t *testing.T) {
	// One instance goes on, one breaks off.
	var lines []view.Line
	for second := range 60 {
		lines = append(lines, view.Line{Table: &view.Table{At: noon.Add(time.Duration(second) * time.Second), Began: noon.Add(-time.Hour), State: "measured", Rows: replica(second)}})
	}
	p := pods{"orders-1": {lines: tables(3, "measured", primary), words: "the container is gone\n", code: 137}, "orders-2": {lines: lines, every: "0.4"}, "orders-3": {code: 2}}
	var c call
	ended := c.begin(t, p, "top", "orders", "--watch", "--interval", "1s", "-o", "json")
	if err := c.interrupt(t, ended, func() bool { return strings.Count(c.out.String(), "\n") > 1 }); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(c.out.String()) {
		var got pictureJSON
		if err := json.Unmarshal([]byte(line), &got); err != nil || len(got.Instances) != 3 || !got.Instances[1].Shown || got.Instances[2].Note != errEarlier.Error() {
			t.Errorf("%v: %s", err, line)
		}
	}
	if want := "orders-1: kubectl exec ended with code 137: the container is gone"; !strings.Contains(c.err.String(), want) && !strings.Contains(c.out.String(), want) {
		t.Errorf("it says\n%s", c.err.String())
	}
}

// followed instances in the order in which lines come.
func TestFollowed(t *testing.T) {
	at := func(second int) sight {
		return sight{line: line{Line: view.Line{Table: &view.Table{At: noon.Add(time.Duration(second) * time.Second)}}}}
	}
	probe := func(there bool) sight { return sight{line: line{Line: view.Line{Probe: &there}}} }
	for sentence, c := range map[string]struct {
		came    []sight
		total   bool
		awaited bool
		amiss   bool
	}{
		"nothing yet":                            {nil, false, true, false},
		"a probe, and no table":                  {[]sight{probe(true)}, false, true, false},
		"one table":                              {[]sight{probe(true), at(0)}, false, true, false},
		"one table is enough for all":            {[]sight{probe(true), at(0)}, true, false, false},
		"a second that comes too early":          {[]sight{at(0), at(1)}, false, true, false},
		"a second":                               {[]sight{at(0), at(1), at(2)}, false, false, false},
		"a clock that was put back":              {[]sight{at(100), at(0), at(1)}, false, true, false},
		"a clock that was put back, and goes on": {[]sight{at(100), at(0), at(1), at(2)}, false, false, false},
		"a probe that went":                      {[]sight{at(0), at(2), probe(false)}, false, false, true},
		"a probe that came back":                 {[]sight{at(0), probe(false), probe(true), at(2)}, false, true, false},
		"an end":                                 {[]sight{at(0), {err: errEarlier}}, false, false, true},
	} {
		w := newWatcher([]string{""}, topOptions{interval: 2 * time.Second, total: c.total})
		f := w.all[0]
		for _, s := range c.came {
			f.take(s)
		}
		if got := w.awaited(f, true); got != c.awaited || (f.amiss != nil) != c.amiss {
			t.Errorf("%s: awaited %v, amiss %v", sentence, got, f.amiss)
		}
	}
}

func TestTopDoesNotWaitForTheSilent(t *testing.T) {
	w := newWatcher([]string{"orders-1", "orders-2"}, topOptions{interval: time.Second, sort: "time"})
	w.all[1].silent = true
	sights := make(chan sight, 2)
	for second := range 2 {
		sights <- sight{instance: "orders-1", line: line{Line: view.Line{Table: &view.Table{At: noon.Add(time.Duration(second) * time.Second), State: "measured"}}}}
	}
	if err := w.wait(t.Context(), sights, true); err != nil {
		t.Fatal(err)
	}
	p := w.picture(running(), noon)
	if diff := cmp.Diff([]string{"orders-2: its probe told too little in time: see kubectl plimsoll probe status"}, p.notes()); diff != "" || p.nothing() {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTopOfBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"--sort size":         `--sort "size": use one of time, calls, mean, p50, p95, p99, errors, rows`,
		"--interval 500ms":    "--interval 500ms: use 1s or more, which is how often probes tell",
		"--limit -1":          "--limit -1: use the number of statements to show, or 0 for all",
		"--role leader":       `--role "leader": use primary or replica, or leave it out`,
		"-o yaml":             `--output "yaml": use json, or leave it out`,
		"--instance orders-9": `--instance orders-9: database orders has no instance "orders-9": it has [orders-1 orders-2 orders-3]`,
	} {
		var c call
		if err := c.run(t.Context(), t, nil, append([]string{"top", "orders"}, strings.Fields(args)...)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	d := running()
	d.Status.Instances = nil
	if _, err := instances(d, ""); err == nil || fmt.Sprint(err) != "database orders has no instances yet: see kubectl plimsoll status orders" {
		t.Error(err)
	}
}
