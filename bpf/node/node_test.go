package node

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/export"
)

// running is what the API server says that runs on this node.
type running struct {
	mu        sync.Mutex
	instances []attribute.Instance
}

func (r *running) set(all ...attribute.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = all
}

func (r *running) get() ([]attribute.Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.instances), nil
}

// start runs a Node until the test ends, and gives back where its metrics are.
func start(t *testing.T, r *running) string {
	t.Helper()
	return startWith(t, Options{Instances: r.get})
}

func startWith(t *testing.T, o Options) string {
	t.Helper()
	o.Cgroups, o.Proc, o.Statements, o.Clients, o.ClientSeries, o.Log = hierarchy, "/proc", 20, web, 10, testr.New(t)
	n, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(export.New(n), export.NewConnections(n))
	s := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(s.Close)
	return s.URL
}

// isCounted says statements to a server, plain and through TLS, which a node counts that has system calls hooked (1) or not (0).
func (s *server) isCounted(t *testing.T, syscalls float64) {
	t.Helper()
	s.stays(t)
	r := &running{}
	r.set(s.Instance)
	url := start(t, r)
	await(t, map[string]float64{"syscalls": syscalls, "programs": 1, "connections": 1}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_hook_attached", "hook") })
	s.Psql(t, "disable", "SELECT 1", "SELECT 2")
	s.Psql(t, "require", "SELECT 3")
	await(t, map[string]float64{"SELECT ?": 3}, func() map[string]float64 { return byText(t, url, "plimsoll_statements_total", s.Name) })
	await(t, map[string]float64{s.Name: 2}, func() map[string]float64 {
		return scrape(t, url, "plimsoll_instance_connections_opened_total", "instance")
	})
	// The one that was there before.
	await(t, map[string]float64{s.Name: 1}, func() map[string]float64 { return scrape(t, url, "plimsoll_instance_connections_open", "instance") })
}

// scrape reads the counters and gauges of a family: labels of interest, joined by spaces, to the sum of values.
func scrape(t *testing.T, url, family string, labels ...string) map[string]float64 {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, m := range families[family].GetMetric() {
		var key []string
		for _, label := range labels {
			i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label })
			key = append(key, m.GetLabel()[i].GetValue())
		}
		all[strings.Join(key, " ")] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return all
}

// byText is what a family of statements counts of each text.
func byText(t *testing.T, url, family, instance string, more ...string) map[string]float64 {
	t.Helper()
	texts := map[string]string{}
	for key := range scrape(t, url, "plimsoll_statement_info", "instance", "query_id", "text") {
		of, rest, _ := strings.Cut(key, " ")
		id, text, _ := strings.Cut(rest, " ")
		if of == instance {
			texts[id] = text
		}
	}
	all := map[string]float64{}
	for key, n := range scrape(t, url, family, append([]string{"instance", "query_id"}, more...)...) {
		fields := strings.SplitN(key, " ", 3)
		if fields[0] != instance {
			continue
		}
		name := texts[fields[1]]
		if name == "" {
			name = fields[1]
		}
		all[strings.Join(append([]string{name}, fields[2:]...), " ")] += n
	}
	return all
}

// await a map of metrics: what was sent is counted a moment after the client has its answer.
func await(t *testing.T, want map[string]float64, got func() map[string]float64) {
	t.Helper()
	var have map[string]float64
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if have = got(); cmp.Diff(want, have) == "" {
			return
		}
	}
	t.Errorf("-want +got\n%s", cmp.Diff(want, have))
}

func TestEachStatementOfEachInstanceIsAtTheMetricsEndpoint(t *testing.T) {
	one := newServer(t, "orders-1", attribute.Container{Pod: "0f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("1a", 32)})
	two := newServer(t, "orders-2", attribute.Container{Pod: "1f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("2b", 32)})
	two.Role = "replica"
	one.Pgbench(t, "disable", "postgres", "-i", "-q", "-n")
	r := &running{}
	r.set(one.Instance, two.Instance)
	url := start(t, r)
	states := func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") }
	await(t, map[string]float64{"measured": 2, "partly": 0, "unseen": 0, "waiting": 0}, states)

	one.Pgbench(t, "require", "postgres", "-n", "-S", "-M", "prepared", "-c", "4", "-t", "100")
	one.Pgbench(t, "disable", "postgres", "-n", "-S", "-M", "simple", "-c", "2", "-t", "50")
	one.Psql(t, "require", "SELECT 1/0", "SELECT 2/0", "SELECT generate_series(1, 7)")
	two.Psql(t, "require", "SELECT 1", "SELECT 2", "SELECT 3")

	account := "SELECT abalance FROM pgbench_accounts WHERE aid = ?"
	counted := map[string]float64{account: 500, "SELECT ? / ?": 2, "SELECT generate_series(?)": 1}
	await(t, counted, func() map[string]float64 { return pgbenchAside(byText(t, url, "plimsoll_statements_total", one.Name)) })
	await(t, map[string]float64{account: 500, "SELECT ? / ?": 0, "SELECT generate_series(?)": 7},
		func() map[string]float64 {
			return pgbenchAside(byText(t, url, "plimsoll_statement_rows_total", one.Name))
		})
	await(t, map[string]float64{"SELECT ? / ? 22": 2}, func() map[string]float64 {
		return byText(t, url, "plimsoll_statement_errors_total", one.Name, "sqlstate_class")
	})
	await(t, map[string]float64{"SELECT ? replica postgres postgres": 3}, func() map[string]float64 {
		return byText(t, url, "plimsoll_statements_total", two.Name, "role", "user", "datname")
	})
	// The totals, which have no bound, say the same.
	var sum float64
	for _, n := range byText(t, url, "plimsoll_statements_total", one.Name) {
		sum += n
	}
	totals := scrape(t, url, "plimsoll_instance_statements_total", "instance")
	if diff := cmp.Diff(map[string]float64{one.Name: sum, two.Name: 3}, totals); diff != "" {
		t.Errorf("totals (-want +got)\n%s", diff)
	}
	for reason, n := range scrape(t, url, "plimsoll_probe_lost_total", "reason") {
		if n != 0 {
			t.Errorf("%v lost: %s", n, reason)
		}
	}

	// An instance that is gone is shown no longer; what its name's next one does is counted from nothing.
	r.set(two.Instance)
	await(t, map[string]float64{two.Name: 3}, func() map[string]float64 { return scrape(t, url, "plimsoll_instance_statements_total", "instance") })
	await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, states)
}

// pgbenchAside leaves out what pgbench asks about its own tables.
func pgbenchAside(all map[string]float64) map[string]float64 {
	for text := range all {
		if strings.Contains(text, "pg_catalog") || strings.Contains(text, "count(") || strings.Contains(text, "relkind") {
			delete(all, text)
		}
	}
	return all
}

// TestARoleThatChangesKeepsWhatWasCounted: an instance that is promoted counts on under its new role.
func TestARoleThatChangesKeepsWhatWasCounted(t *testing.T) {
	s := newServer(t, "orders-1", attribute.Container{Pod: "2f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("3c", 32)})
	s.Role = "replica"
	r := &running{}
	r.set(s.Instance)
	url := start(t, r)
	await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
	roles := func() map[string]float64 { return scrape(t, url, "plimsoll_instance_statements_total", "role") }
	s.Psql(t, "require", "SELECT 1", "SELECT 2")
	await(t, map[string]float64{"replica": 2}, roles)
	s.Role = "primary"
	r.set(s.Instance)
	time.Sleep(2 * lookEvery)
	s.Psql(t, "require", "SELECT 3")
	await(t, map[string]float64{"replica": 2, "primary": 1}, roles)
}

// TestATextThatIsNoSQLIsNotShown: behind a stray quote what is inside of strings seems to be outside.
func TestATextThatIsNoSQLIsNotShown(t *testing.T) {
	s := newServer(t, "orders-1", attribute.Container{Pod: "3f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("4d", 32)})
	r := &running{}
	r.set(s.Instance)
	url := start(t, r)
	await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
	s.Psql(t, "require", "SELECT 'it's secret'", "SELECT 1")
	await(t, map[string]float64{"SELECT ?": 1, "other": 0}, func() map[string]float64 {
		all := byText(t, url, "plimsoll_statements_total", s.Name)
		all["other"] += 0
		for text, n := range all {
			if n == 1 && len(text) == 16 { // the id of the other one
				delete(all, text)
			}
		}
		return all
	})
	await(t, map[string]float64{"42": 1}, func() map[string]float64 { return scrape(t, url, "plimsoll_statement_errors_total", "sqlstate_class") })
	if diff := cmp.Diff(map[string]float64{"SELECT ?": 1}, scrape(t, url, "plimsoll_statement_info", "text")); diff != "" {
		t.Errorf("texts (-want +got)\n%s", diff)
	}
}
