package export

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// visited is a source that always shows the same.
type visited struct{ table *aggregate.Connections }

func (v visited) LookConnections(show func(*aggregate.Connections)) { show(v.table) }

// connections of one instance with a client that has a place and one that has none.
func connections() *aggregate.Connections {
	t := aggregate.NewConnections(1)
	web := event.Connections{
		Place: 1, Found: 1, Opened: 9, Closed: 3, Reset: 2, TimedOut: 1, BytesIn: 100, BytesOut: 2000, Retransmits: 7, RoundTrip: 5 * time.Second,
	}
	web.Slots[67], web.Slots[68] = 1, 2 // to 1 s, and to 1.19 s
	t.Take(slices.Values([]event.Connections{web, {Place: 2, Opened: 1}}), func(c *event.Connections) (aggregate.Visit, bool) {
		v := aggregate.Visit{Instance: aggregate.Instance{Namespace: "shop", Database: "orders", Name: "orders-1"}, Client: aggregate.Client{Kind: "outside"}}
		if c.Place == 1 {
			v.Client = aggregate.Client{Namespace: "app", Kind: "Deployment", Name: "web"}
		}
		return v, true
	})
	return t
}

func TestWhatPrometheusIsShownOfConnections(t *testing.T) {
	c := NewConnections(visited{connections()})
	const (
		instance = `database="orders",instance="orders-1",namespace="shop"`
		web      = `client_kind="Deployment",client_name="web",client_namespace="app",database="orders",`
		other    = `client_kind="other",client_name="",client_namespace="",` + instance
	)
	want := `
# HELP plimsoll_connections Connections of a client over TCP that are open.
# TYPE plimsoll_connections gauge
plimsoll_connections{` + web + `instance="orders-1",namespace="shop"} 4
plimsoll_connections{` + other + `} 1
# HELP plimsoll_connections_closed_total Connections over TCP of a client that ended, by how they did.
# TYPE plimsoll_connections_closed_total counter
plimsoll_connections_closed_total{` + web + `end="closed",instance="orders-1",namespace="shop"} 3
plimsoll_connections_closed_total{` + web + `end="reset",instance="orders-1",namespace="shop"} 2
plimsoll_connections_closed_total{` + web + `end="timed_out",instance="orders-1",namespace="shop"} 1
plimsoll_connections_closed_total{client_kind="other",client_name="",client_namespace="",database="orders",end="closed",instance="orders-1",namespace="shop"} 0
plimsoll_connections_closed_total{client_kind="other",client_name="",client_namespace="",database="orders",end="reset",instance="orders-1",namespace="shop"} 0
plimsoll_connections_closed_total{client_kind="other",client_name="",client_namespace="",database="orders",end="timed_out",instance="orders-1",namespace="shop"} 0
# HELP plimsoll_connection_retransmits_total TCP segments that an instance sent again to a client.
# TYPE plimsoll_connection_retransmits_total counter
plimsoll_connection_retransmits_total{` + web + `instance="orders-1",namespace="shop"} 7
plimsoll_connection_retransmits_total{` + other + `} 0
# HELP plimsoll_instance_connections_open Connections over TCP of an instance's clients that are open.
# TYPE plimsoll_instance_connections_open gauge
plimsoll_instance_connections_open{` + instance + `} 5
# HELP plimsoll_instance_connections_opened_total Connections over TCP that clients of an instance opened.
# TYPE plimsoll_instance_connections_opened_total counter
plimsoll_instance_connections_opened_total{` + instance + `} 10
# HELP plimsoll_instance_connection_bytes_total Bytes that an instance received from its clients over TCP, and that it sent to them.
# TYPE plimsoll_instance_connection_bytes_total counter
plimsoll_instance_connection_bytes_total{database="orders",direction="received",instance="orders-1",namespace="shop"} 100
plimsoll_instance_connection_bytes_total{database="orders",direction="sent",instance="orders-1",namespace="shop"} 2000
`
	err := testutil.CollectAndCompare(c, strings.NewReader(want), "plimsoll_connections", "plimsoll_connections_closed_total", "plimsoll_connection_retransmits_total",
		"plimsoll_instance_connections_open", "plimsoll_instance_connections_opened_total", "plimsoll_instance_connection_bytes_total")
	if err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter of metrics: %v, %v", problems, err)
	}
}

func TestBothKindsOfHistogramsHoldEveryRoundTrip(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewConnections(visited{connections()}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "plimsoll_instance_connection_round_trip_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 3 || h.GetSampleSum() != 5 {
			t.Errorf("%d round trips of %v s, want 3 and 5", h.GetSampleCount(), h.GetSampleSum())
		}
		if diff := cmp.Diff(map[string]uint64{"1.000": 1, "1.189": 2}, native(h)); diff != "" {
			t.Errorf("native buckets (-want +got)\n%s", diff)
		}
		classic := map[float64]uint64{}
		for _, b := range h.GetBucket() {
			classic[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		if classic[0.25] != 0 || classic[1] != 1 || classic[4] != 3 {
			t.Errorf("classic buckets %v", classic)
		}
		return
	}
	t.Error("there is no histogram")
}
