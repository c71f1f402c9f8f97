package dashboards

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metrics "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/export"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/journal"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/admission/serving"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/database"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
)

// What there is of the Database orders in the namespace shop: who leads changes, and the last one does not serve.
const (
	instances = 3
	leadsFor  = 8 // ticks
	tick      = time.Second
)

// product is a manager and a probe as a scraper sees them: their own collectors, fed with what a busy Database would make of them.
type product struct {
	manager, probe *shelf

	mu          sync.Mutex
	now         uint64 // in ticks
	statements  *aggregate.Table
	connections *aggregate.Connections
}

// sell serves a product's metrics until the test ends, and gives back where: the manager's at /manager, the probe's at /probe.
func sell(t *testing.T) string {
	t.Helper()
	p := &product{manager: newShelf(), probe: newShelf(), statements: aggregate.New(aggregate.Options{Statements: 10}), connections: aggregate.NewConnections(10)}
	reports := database.NewReports(p, logr.Discard())
	_, err := database.NewMetrics(p.manager, reports)
	_, writes := ssa.New(fake.NewClientBuilder().Build(), nil, p.manager)
	_, serves := serving.New(serving.Options{Names: []string{"plimsoll-webhook.plimsoll-system.svc"}, Clock: clock.RealClock{}, Registry: p.manager})
	_, tells := journal.NewMetrics(p.probe)
	if err := errors.Join(err, writes, serves, tells, p.probe.Register(export.New(p)), p.probe.Register(export.NewConnections(p))); err != nil {
		t.Fatal(err)
	}
	// They are shown of a Database's status alone, which takes an API server.
	for _, name := range []string{"plimsoll_database_instances", "plimsoll_certificate_expiry_timestamp_seconds"} {
		if err := p.manager.Register(metrics.NewGaugeVec(metrics.GaugeOpts{Name: name, Help: "As the reference has it."}, documented(t, name))); err != nil {
			t.Fatal(err)
		}
	}
	var targets []database.Target
	for i := range instances {
		targets = append(targets, database.Target{Namespace: "shop", Database: "orders", Instance: nameOf(i), UID: "u", PodUID: "p", PodIP: "10.0.0.1"})
	}
	ended := make(chan error, 2)
	go func() { ended <- reports.Start(t.Context()) }()
	go func() { ended <- p.run(t.Context()) }()
	reports.Follow(types.NamespacedName{Namespace: "shop", Name: "orders"}, targets, "")
	mux := http.NewServeMux()
	mux.Handle("/manager", promhttp.HandlerFor(p.manager, promhttp.HandlerOpts{}))
	mux.Handle("/probe", promhttp.HandlerFor(p.probe, promhttp.HandlerOpts{}))
	shop := httptest.NewServer(mux)
	t.Cleanup(func() {
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		shop.Close()
	})
	return strings.TrimPrefix(shop.URL, "http://")
}

// documented are the labels of a metric by the table of the reference.
func documented(t *testing.T, name string) []string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| gauge \\| ([a-z, ]+) \\|").FindStringSubmatch(referenceOfMetrics(t))
	if row == nil {
		t.Fatalf("docs/reference/metrics.md has no gauge %s with its labels", name)
	}
	return strings.Split(row[1], ", ")
}

func nameOf(i int) string { return fmt.Sprintf("orders-%d", i+1) }

// leads says who does: the first or the second instance.
func leads(now uint64, i int) bool { return now/leadsFor%2 == uint64(i) }

// run lets time pass until the test ends.
func (p *product) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if err := p.passes(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// passes is a tick: everything that counts goes on.
func (p *product) passes() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
	p.statements.Take(p.counted(), p.whose)
	p.connections.Take(p.visited(), func(c *event.Connections) (aggregate.Visit, bool) {
		v := aggregate.Visit{Instance: instanceOf(c.Cgroup), Client: aggregate.OtherClients()}
		if c.Found > 0 {
			v.Client = aggregate.Client{Namespace: "app", Kind: "Deployment", Name: "web"}
		}
		return v, true
	})
	soon := float64(time.Now().Add(30 * 24 * time.Hour).Unix())
	return errors.Join(
		p.manager.count("plimsoll_reconciles_total", metrics.Labels{"kind": "Database", "phase": "Running", "result": "ok"}, 9),
		p.manager.count("plimsoll_reconciles_total", metrics.Labels{"kind": "Database", "phase": "Running", "result": "error"}, 1),
		p.manager.count("plimsoll_reconcile_duration_seconds", metrics.Labels{"kind": "Database", "phase": "Running"}, 0.02),
		p.manager.count("plimsoll_api_writes_total", metrics.Labels{"kind": "Pod", "verb": "apply", "result": "ok"}, 1),
		p.manager.count("plimsoll_aims_total", metrics.Labels{"result": "ok"}, 3),
		p.manager.count("plimsoll_agent_exchanges_total", metrics.Labels{"result": "done"}, 1),
		p.manager.count("plimsoll_hand_overs_total", metrics.Labels{"cause": "failover"}, 1),
		p.manager.count("plimsoll_hand_over_duration_seconds", metrics.Labels{"cause": "failover"}, 3.2),
		p.manager.count("plimsoll_hand_overs_lossy_total", nil, 1),
		p.manager.count("plimsoll_hand_over_lost_bytes_total", nil, 4096),
		p.manager.count("plimsoll_webhook_certificate_not_after_timestamp_seconds", nil, soon),
		p.manager.count("plimsoll_certificate_expiry_timestamp_seconds", metrics.Labels{"namespace": "shop", "database": "orders", "name": "server"}, soon),
		p.manager.count("plimsoll_database_instances", metrics.Labels{"namespace": "shop", "database": "orders", "role": "primary"}, 1),
		p.manager.count("plimsoll_database_instances", metrics.Labels{"namespace": "shop", "database": "orders", "role": "replica"}, 2),
		p.manager.count("plimsoll_database_instances", metrics.Labels{"namespace": "shop", "database": "orders", "role": "unknown"}, 1),
		p.manager.count("plimsoll_database_instances", metrics.Labels{"namespace": "shop", "database": "headless", "role": "primary"}, 0),
		p.manager.count("plimsoll_database_instances", metrics.Labels{"namespace": "shop", "database": "headless", "role": "replica"}, 2),
		p.probe.count("plimsoll_probe_told_statements_total", metrics.Labels{"sink": "lines"}, 2),
		p.probe.count("plimsoll_probe_untold_statements_total", metrics.Labels{"sink": "otlp", "reason": "failed"}, 1),
	)
}

func instanceOf(cgroup uint64) aggregate.Instance {
	return aggregate.Instance{Namespace: "shop", Database: "orders", Name: nameOf(int(cgroup))}
}

// Statements that each instance runs: one with its text, the same where it fails, and one that nobody knows.
func (p *product) counted() iter.Seq[event.Counts] {
	var all []event.Counts
	for i := range uint64(instances) {
		const failed event.State = 3452582 // of class 22
		for n, key := range []event.Key{{Print: 1}, {Print: 1, State: failed}, {}} {
			key.Cgroup = i
			c := event.Counts{
				Key: key, Place: 1 + i*10 + uint64(n), Calls: 30 * p.now, Rows: 90 * p.now, BytesIn: 600 * p.now, BytesOut: 900 * p.now,
				Latency: time.Duration(p.now) * 3 * time.Second, Queue: time.Duration(p.now) * time.Second, Service: time.Duration(p.now) * time.Second, Transfer: time.Duration(p.now) * time.Second,
			}
			c.Slots[133], c.Slots[140] = 20*p.now, 10*p.now // about a tenth of a second
			all = append(all, c)
		}
	}
	return slices.Values(all)
}

func (p *product) whose(k event.Key) (aggregate.Counted, bool) {
	c := aggregate.Counted{Instance: instanceOf(k.Cgroup), Statement: aggregate.Statement{Role: "replica", Query: aggregate.Other}}
	if leads(p.now, int(k.Cgroup)) {
		c.Statement.Role = "primary"
	}
	if k.Print == 1 {
		c.Statement.Session, c.Statement.Query = event.Session{User: "ada", Database: "app"}, "00000000000000a1"
		c.Text = "SELECT name FROM t" + strings.Repeat(" ", int(k.Cgroup)+1) + "WHERE id = ?" // it was written in several ways
	}
	return c, true
}

// visited are a client with a name, which has connections since before the probe, and one without.
func (p *product) visited() iter.Seq[event.Connections] {
	var all []event.Connections
	for i := range uint64(instances) {
		for _, found := range []uint64{4, 0} {
			c := event.Connections{
				Place: 1 + 2*i + found/4, Cgroup: i, Found: found, Opened: 5 * p.now, Closed: 3 * p.now, Reset: p.now, TimedOut: p.now, Refused: p.now, BytesIn: 1000 * p.now, BytesOut: 2000 * p.now,
				Retransmits: p.now, RoundTrip: time.Duration(p.now) * time.Millisecond,
			}
			c.Slots[28] = p.now // to a millisecond
			all = append(all, c)
		}
	}
	return slices.Values(all)
}

// Look implements export.Source.
func (p *product) Look(show func(export.Sight)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	show(export.Sight{
		Table: p.statements, Lost: map[string]uint64{"unsynced": p.now, "keys": 0}, Instances: map[string]int{"measured": instances, "waiting": 0},
		Hooks: map[string]bool{"syscalls": true, "programs": true, "connections": true},
	})
}

// LookConnections implements export.ConnectionSource.
func (p *product) LookConnections(show func(*aggregate.Connections)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	show(p.connections)
}

// WatchReports implements database.Agents: each instance says how it is, more often than it is scraped.
func (p *product) WatchReports(ctx context.Context, from database.Target, heard func(engine.Report)) error {
	ticker := time.NewTicker(tick / 4)
	defer ticker.Stop()
	for {
		for i := range instances {
			if nameOf(i) == from.Instance {
				heard(p.report(i))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (p *product) report(i int) engine.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := engine.Report{
		Instance: nameOf(i), UID: "u", Role: engine.Replica, State: "running", Ready: i < instances-1, LagBytes: int64(i) << 20, Position: engine.Position{Bytes: p.now << 20},
		Data: engine.VolumeUse{Size: 100 << 30, Used: 42 << 30}, WAL: engine.VolumeUse{Size: 10 << 30, Used: 3 << 30}, WALBytes: 3 << 30, Slots: []engine.Slot{{Name: "orders_2", Retained: 16 << 20}},
		Connections: 40, MaxConnections: 100, MemoryKills: int64(p.now), Goroutines: 60,
	}
	if leads(p.now, i) {
		r.Role = engine.Primary
	}
	return r
}

// WatchMembers implements database.Agents.
func (p *product) WatchMembers(ctx context.Context, from database.Target, heard func(engine.Report)) error {
	return p.WatchReports(ctx, from, heard)
}

// SetAim implements database.Agents.
func (p *product) SetAim(context.Context, database.Target, engine.Aim) error { return nil }

// Exchange implements database.Agents.
func (p *product) Exchange(context.Context, database.Target, client.Program) error { return nil }

// Forget implements database.Agents.
func (p *product) Forget(types.NamespacedName) {}

// shelf is a registry that gives what was registered into the hands of who counts: a name or a label that the product does not have any more is an
// error.
type shelf struct {
	*metrics.Registry
	named map[string]metrics.Collector
}

func newShelf() *shelf {
	return &shelf{Registry: metrics.NewRegistry(), named: map[string]metrics.Collector{}}
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register implements prometheus.Registerer.
func (s *shelf) Register(c metrics.Collector) error {
	descs := make(chan *metrics.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for d := range descs {
		if match := fqName.FindStringSubmatch(d.String()); match != nil {
			s.named[match[1]] = c
		}
	}
	return s.Registry.Register(c)
}

// count adds to a counter, sets a gauge or has a histogram observe.
func (s *shelf) count(name string, labels metrics.Labels, value float64) error {
	err := fmt.Errorf("the product registers no %s", name)
	switch c := s.named[name].(type) {
	case *metrics.CounterVec:
		var one metrics.Counter
		if one, err = c.GetMetricWith(labels); err == nil {
			one.Add(value)
		}
	case *metrics.HistogramVec:
		var one metrics.Observer
		if one, err = c.GetMetricWith(labels); err == nil {
			one.Observe(value)
		}
	case *metrics.GaugeVec:
		var one metrics.Gauge
		if one, err = c.GetMetricWith(labels); err == nil {
			one.Set(value)
		}
	case metrics.Gauge: // before Counter: a gauge can do all that one can
		c.Set(value)
		return nil
	case metrics.Counter:
		c.Add(value)
		return nil
	}
	if err != nil {
		return fmt.Errorf("count %s: %w", name, err)
	}
	return nil
}
