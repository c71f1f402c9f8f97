package export

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// shown is a source that always shows the same.
type shown Sight

func (s shown) Look(show func(Sight)) { show(Sight(s)) }

// table of one instance with a statement that succeeded three times and failed twice, and one that nobody knows.
func table() *aggregate.Table {
	t := aggregate.New(aggregate.Options{Statements: 10})
	instance := aggregate.Instance{Namespace: "shop", Database: "orders", Name: "orders-1"}
	whose := func(k event.Key) (aggregate.Counted, bool) {
		c := aggregate.Counted{Instance: instance, Statement: aggregate.Statement{Role: "primary", Query: aggregate.Other}}
		if k.Print == 1 {
			c.Statement.Session, c.Statement.Query, c.Text = event.Session{User: "ada", Database: "app"}, "00000000000000a1", "SELECT ?"
		}
		return c, true
	}
	succeeded := event.Counts{Key: event.Key{Print: 1}, Place: 1, Calls: 3, Rows: 9, BytesIn: 60, BytesOut: 90, Latency: 3 * time.Second, Queue: time.Second, Service: 2 * time.Second}
	succeeded.Slots[160], succeeded.Slots[161] = 1, 2 // to 1.09 s, and to 1.19 s
	failed := event.Counts{Key: event.Key{Print: 1, State: 3452582}, Place: 2, Calls: 2, Latency: time.Second}
	failed.Slots[151] = 2 // to 0.5 s
	unknown := event.Counts{Place: 3, Calls: 4, Rows: 1}
	t.Take(slices.Values([]event.Counts{succeeded, failed, unknown}), whose)
	return t
}

func TestWhatPrometheusIsShown(t *testing.T) {
	c := New(shown{Table: table(), Lost: map[string]uint64{"keys": 7}, Instances: map[string]int{"measured": 1, "waiting": 2}, Hooks: map[string]bool{"syscalls": false, "binaries": true}})
	want := `
# HELP plimsoll_statements_total Statements that ended, failed ones too.
# TYPE plimsoll_statements_total counter
plimsoll_statements_total{database="orders",datname="",instance="orders-1",namespace="shop",query_id="other",role="primary",user=""} 4
plimsoll_statements_total{database="orders",datname="app",instance="orders-1",namespace="shop",query_id="00000000000000a1",role="primary",user="ada"} 5
# HELP plimsoll_statement_errors_total Statements that failed, by the class of their SQLSTATE.
# TYPE plimsoll_statement_errors_total counter
plimsoll_statement_errors_total{database="orders",datname="app",instance="orders-1",namespace="shop",query_id="00000000000000a1",role="primary",sqlstate_class="22",user="ada"} 2
# HELP plimsoll_statement_info The text of a statement without its literals.
# TYPE plimsoll_statement_info gauge
plimsoll_statement_info{database="orders",instance="orders-1",namespace="shop",query_id="00000000000000a1",text="SELECT ?"} 1
# HELP plimsoll_instance_statements_total Statements of an instance that ended, failed ones too.
# TYPE plimsoll_instance_statements_total counter
plimsoll_instance_statements_total{database="orders",instance="orders-1",namespace="shop",role="primary"} 9
# HELP plimsoll_instance_statement_phase_seconds_total What statements of an instance spent in the queue of their connection, in service, and in the transfer of the answer.
# TYPE plimsoll_instance_statement_phase_seconds_total counter
plimsoll_instance_statement_phase_seconds_total{database="orders",instance="orders-1",namespace="shop",phase="queue",role="primary"} 1
plimsoll_instance_statement_phase_seconds_total{database="orders",instance="orders-1",namespace="shop",phase="service",role="primary"} 2
plimsoll_instance_statement_phase_seconds_total{database="orders",instance="orders-1",namespace="shop",phase="transfer",role="primary"} 0
# HELP plimsoll_probe_lost_total What the probe could not see or keep, by reason.
# TYPE plimsoll_probe_lost_total counter
plimsoll_probe_lost_total{reason="keys"} 7
# HELP plimsoll_probe_instances Instances on this node, by how far they are measured.
# TYPE plimsoll_probe_instances gauge
plimsoll_probe_instances{state="measured"} 1
plimsoll_probe_instances{state="waiting"} 2
# HELP plimsoll_probe_hook_attached Whether statements are seen at a hook.
# TYPE plimsoll_probe_hook_attached gauge
plimsoll_probe_hook_attached{hook="binaries"} 1
plimsoll_probe_hook_attached{hook="syscalls"} 0
`
	err := testutil.CollectAndCompare(c, strings.NewReader(want), "plimsoll_statements_total", "plimsoll_statement_errors_total", "plimsoll_statement_info",
		"plimsoll_instance_statements_total", "plimsoll_instance_statement_phase_seconds_total", "plimsoll_probe_lost_total", "plimsoll_probe_instances", "plimsoll_probe_hook_attached")
	if err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter of metrics: %v, %v", problems, err)
	}
}

func TestBothKindsOfHistogramsHoldEveryCall(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(shown{Table: table()}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "plimsoll_instance_statement_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 5 || h.GetSampleSum() != 4 {
			t.Errorf("%d calls took %v s, want 5 and 4", h.GetSampleCount(), h.GetSampleSum())
		}
		if diff := cmp.Diff(map[string]uint64{"0.500": 2, "1.091": 1, "1.189": 2}, native(h)); diff != "" {
			t.Errorf("native buckets (-want +got)\n%s", diff)
		}
		classic := map[float64]uint64{}
		for _, b := range h.GetBucket() {
			classic[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		if classic[0.25] != 0 || classic[0.5] != 2 || classic[1] != 2 || classic[2] != 5 {
			t.Errorf("classic buckets %v", classic)
		}
		return
	}
	t.Error("there is no histogram")
}

// native is how many calls each native bucket holds, by its upper bound.
func native(h *dto.Histogram) map[string]uint64 {
	all := map[string]uint64{}
	index, delta, n := int32(0), 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			n += h.GetPositiveDelta()[delta]
			bound := math.Exp2(float64(index) / math.Exp2(float64(h.GetSchema())))
			all[strconv.FormatFloat(bound, 'f', 3, 64)] = uint64(n)
			index, delta = index+1, delta+1
		}
	}
	return all
}
