package node

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/journal"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/query"
)

func TestWhatADatabaseWantsToldComesBeforeWhatTheProbeIsTold(t *testing.T) {
	own := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for sentence, row := range map[string]struct {
		of   Options
		wish func(*attribute.Instance)
		want query.Target
	}{
		"nobody listens":            {Options{Slow: time.Second, Failed: true}, func(i *attribute.Instance) { i.Statements.Literals = true }, query.Target{}},
		"it has no wish":            {Options{Slow: time.Second, Failed: true, Tell: deaf}, func(*attribute.Instance) {}, query.Target{SlowNS: 1e9, Failed: true}},
		"it wants other slow ones":  {Options{Slow: time.Second, Failed: true, Tell: deaf}, func(i *attribute.Instance) { i.Statements.Slow = own(1) }, query.Target{SlowNS: 1, Failed: true}},
		"it wants no slow ones":     {Options{Slow: time.Second, Failed: true, Tell: deaf}, func(i *attribute.Instance) { i.Statements.Slow = own(0) }, query.Target{Failed: true}},
		"it wants no failed ones":   {Options{Slow: time.Second, Failed: true, Tell: deaf}, func(i *attribute.Instance) { i.Statements.Failed = new(false) }, query.Target{SlowNS: 1e9}},
		"it wants failed ones":      {Options{Tell: deaf}, func(i *attribute.Instance) { i.Statements.Failed = new(true) }, query.Target{Failed: true}},
		"it wants literals":         {Options{Failed: true, Tell: deaf}, func(i *attribute.Instance) { i.Statements.Literals = true }, query.Target{Failed: true, Literals: true}},
		"it wants literals of none": {Options{Tell: deaf}, func(i *attribute.Instance) { i.Statements.Literals = true }, query.Target{}},
		"it wants what cannot be":   {Options{Tell: deaf}, func(i *attribute.Instance) { i.Statements.Slow = own(-time.Second) }, query.Target{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			one := &target{Instance: attribute.Instance{Port: 5432}}
			row.wish(&one.Instance)
			row.want.Cgroup, row.want.Port = 7, 5432
			n := &Node{Options: row.of}
			if diff := cmp.Diff(row.want, n.wanted(one, 7)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func deaf([]journal.Entry) {}

// record is what was told of a statement, by its names.
type record map[string]any

// page keeps the lines that a probe writes and the logs that it sends.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
	sent []record
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// lines that were written of statements with this text.
func (p *page) lines(t *testing.T, of string) (some []record) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.text.String()) {
		var one record
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if text, _ := one["db.query.text"].(string); strings.Contains(text, of) {
			some = append(some, one)
		}
	}
	return some
}

func (p *page) holds(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.text.String(), text)
}

// ServeHTTP takes logs of OpenTelemetry.
func (p *page) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var took collector.ExportLogsServiceRequest
	z, err := gzip.NewReader(q.Body)
	if err == nil {
		var raw []byte
		if raw, err = io.ReadAll(z); err == nil {
			err = proto.Unmarshal(raw, &took)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range took.GetResourceLogs() {
		for _, one := range of.GetScopeLogs()[0].GetLogRecords() {
			r := record{"event": one.GetEventName()}
			for _, kv := range append(of.GetResource().GetAttributes(), one.GetAttributes()...) {
				if v := kv.GetValue(); v.GetStringValue() != "" {
					r[kv.GetKey()] = v.GetStringValue()
				}
			}
			p.sent = append(p.sent, r)
		}
	}
}

// telling runs a Node that tells slow and failed statements until the test ends.
func telling(t *testing.T, r *running) *page {
	t.Helper()
	p := &page{}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	receiver, err := journal.NewOTLP(journal.OTLPOptions{Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := journal.NewMetrics(prometheus.NewPedanticRegistry())
	if err != nil {
		t.Fatal(err)
	}
	j := journal.New(metrics, testr.New(t), journal.NewLines(p), receiver)
	ended := make(chan error, 1)
	go func() { ended <- j.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	startWith(t, Options{Instances: r.get, Slow: 500 * time.Millisecond, Failed: true, Tell: j.Add, Name: "node-1"})
	return p
}

func TestSlowAndFailedStatementsAreWrittenAndSent(t *testing.T) {
	s := newServer(t, "orders-1", attribute.Container{Pod: "5f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("6f", 32)})
	s.Address = "10.0.0.9"
	r := &running{}
	r.set(s.Instance)
	p := telling(t, r)
	// It is measured from when the first failure is told.
	within(t, "a failure to be told", func() bool {
		s.Psql(t, "require", "SELECT begun")
		return len(p.lines(t, "SELECT begun")) > 0
	})
	for _, sslmode := range []string{"disable", "require"} {
		s.Psql(t, sslmode, "SELECT 'secret', pg_sleep(1)", "SELECT 'secret', 1/0", "SELECT 'it's secret'")
	}
	within(t, "four statements to be told", func() bool { return len(p.lines(t, "SELECT ?, ")) >= 4 })
	common := record{
		"service.namespace": "shop", "service.name": "orders", "service.instance.id": "orders-1", "k8s.namespace.name": "shop", "k8s.pod.name": "orders-1",
		"k8s.pod.uid": s.Container.Pod, "k8s.node.name": "node-1", "container.id": s.Container.ID, "server.address": "10.0.0.9",
		"db.system.name": "postgresql", "db.namespace": "postgres", "user.name": "postgres", "client.address": "127.0.0.1", "network.transport": "tcp", "plimsoll.role": "primary",
	}
	with := func(more record) record {
		for name, value := range common {
			more[name] = value
		}
		return more
	}
	slow := with(record{"event": "plimsoll.statement.slow", "db.query.text": "SELECT ?, pg_sleep(?)"})
	failed := with(record{"event": "plimsoll.statement.failed", "db.query.text": "SELECT ?, ? / ?", "db.response.status_code": "22012", "error.type": "22012"})
	want := []record{slow, failed, slow, failed}
	if diff := cmp.Diff(want, named(p.lines(t, "SELECT ?, "), failed)); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
	within(t, "four statements to be sent", func() bool { return len(p.received("SELECT ?, ")) >= 4 })
	if diff := cmp.Diff(want, named(p.received("SELECT ?, "), failed)); diff != "" {
		t.Errorf("logs (-want +got)\n%s", diff)
	}
	for _, line := range p.lines(t, "SELECT ?, pg_sleep") {
		if d, _ := line["plimsoll.statement.duration"].(float64); d < 1 || d > 60 {
			t.Errorf("it took %v s", d)
		}
		begin, err := time.Parse(time.RFC3339Nano, line["plimsoll.statement.begin"].(string))
		if since := time.Since(begin); err != nil || since < time.Second || since > 5*time.Minute {
			t.Errorf("it began %v ago (%v)", since, err)
		}
	}
	// A text that the server could not read is told without it.
	within(t, "texts that are no SQL to be told", func() bool { return count(p.lines(t, ""), "db.response.status_code", "42601") == 2 })
	if p.holds("secret") {
		t.Error("literals are told, and nobody asked for them")
	}

	s.Statements.Literals = true
	r.set(s.Instance)
	within(t, "literals to be told", func() bool {
		s.Psql(t, "require", "SELECT 'secret', 2/0")
		return len(p.lines(t, "SELECT 'secret', 2/0")) > 0
	})
	s.Psql(t, "disable", "SELECT 'secret', pg_sleep(1.25)", "SELECT 'it's secret'")
	within(t, "the others with their literals", func() bool {
		return len(p.lines(t, "SELECT 'secret', pg_sleep(1.25)")) == 1 && len(p.lines(t, "SELECT 'it's secret'")) == 1
	})

	s.Statements.Slow, s.Statements.Failed = &metav1.Duration{}, new(false)
	r.set(s.Instance)
	within(t, "nothing to be told any more", func() bool {
		before := len(p.lines(t, ""))
		s.Psql(t, "require", "SELECT 3/0")
		time.Sleep(5 * tellEvery)
		return len(p.lines(t, "")) == before
	})
}

// received are the logs of statements with this text.
func (p *page) received(of string) (some []record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.sent {
		if text, _ := one["db.query.text"].(string); strings.Contains(text, of) {
			some = append(some, one)
		}
	}
	return some
}

// named are records with these names alone.
func named(all []record, like record) (some []record) {
	for _, one := range all {
		only := record{}
		for name := range like {
			if value, ok := one[name]; ok {
				only[name] = value
			}
		}
		some = append(some, only)
	}
	return some
}

func count(all []record, name, value string) (n int) {
	for _, one := range all {
		if one[name] == value {
			n++
		}
	}
	return n
}

// TestAStormOfErrorsIsCountedToTheLast: what is told is bounded, and what is counted is not.
func TestAStormOfErrorsIsCountedToTheLast(t *testing.T) {
	s := newServer(t, "orders-1", attribute.Container{Pod: "6f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("7a", 32)})
	r := &running{}
	r.set(s.Instance)
	var mu sync.Mutex
	told := 0
	url := startWith(t, Options{Instances: r.get, Failed: true, Tell: func(entries []journal.Entry) {
		mu.Lock()
		defer mu.Unlock()
		told += len(entries)
	}})
	await(t, map[string]float64{"measured": 1, "partly": 0, "unseen": 0, "waiting": 0}, func() map[string]float64 { return scrape(t, url, "plimsoll_probe_instances", "state") })
	const errors = 20000
	file := filepath.Join(t.TempDir(), "storm.sql")
	if err := os.WriteFile(file, []byte(strings.Repeat("SELECT 1/0;\n", errors)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Psql(t, "require", "\\i "+file)
	await(t, map[string]float64{"22": errors}, func() map[string]float64 {
		return scrape(t, url, "plimsoll_instance_statement_errors_total", "sqlstate_class")
	})
	lost := func() map[string]float64 {
		some := map[string]float64{}
		for reason, n := range scrape(t, url, "plimsoll_probe_lost_total", "reason") {
			if n != 0 && reason != "suppressed" {
				some[reason] = n
			}
		}
		return some
	}
	within(t, "each to be told or counted as not told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told+int(scrape(t, url, "plimsoll_probe_lost_total", "reason")["suppressed"]) == errors
	})
	if diff := cmp.Diff(map[string]float64{}, lost()); diff != "" {
		t.Errorf("lost: %s", diff)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d of %d were told", told, errors)
}
