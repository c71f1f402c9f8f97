package export

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// ConnectionSource gives the connections of now to show, which hold while show runs.
type ConnectionSource interface {
	LookConnections(show func(*aggregate.Connections))
}

// ConnectionCollector is a prometheus.Collector of connections.
type ConnectionCollector struct {
	source    ConnectionSource
	of, total connectionDescs
	displaced *prometheus.Desc
}

// connectionDescs are told of each client, and of each instance.
type connectionDescs struct{ open, opened, closed, refused, bytes, retransmits, roundTrip *prometheus.Desc }

// NewConnections makes a ConnectionCollector.
func NewConnections(source ConnectionSource) *ConnectionCollector {
	instance := []string{"namespace", "database", "instance"}
	client := slices.Concat(instance, []string{"client_namespace", "client_kind", "client_name"})
	desc := func(name, help string, labels []string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, slices.Concat(labels, more), nil)
	}
	return &ConnectionCollector{
		source: source,
		of: connectionDescs{
			open:        desc("plimsoll_connections", "Connections of a client over TCP that are open.", client),
			opened:      desc("plimsoll_connections_opened_total", "Connections over TCP that a client opened.", client),
			closed:      desc("plimsoll_connections_closed_total", "Connections over TCP of a client that ended, by how they did.", client, "end"),
			refused:     desc("plimsoll_connections_refused_total", "Connections over TCP of a client that were refused because the server did not listen.", client),
			bytes:       desc("plimsoll_connection_bytes_total", "Bytes that an instance received from a client over TCP, and that it sent to it.", client, "direction"),
			retransmits: desc("plimsoll_connection_retransmits_total", "TCP segments that an instance sent again to a client.", client),
			roundTrip:   desc("plimsoll_connection_round_trip_seconds", "Smoothed round trips of TCP to a client, as a native histogram.", client),
		},
		total: connectionDescs{
			open:        desc("plimsoll_instance_connections_open", "Connections over TCP of an instance's clients that are open.", instance),
			opened:      desc("plimsoll_instance_connections_opened_total", "Connections over TCP that clients of an instance opened.", instance),
			closed:      desc("plimsoll_instance_connections_closed_total", "Connections over TCP of an instance's clients that ended, by how they did.", instance, "end"),
			refused:     desc("plimsoll_instance_connections_refused_total", "Connections over TCP to an instance that were refused because its server did not listen.", instance),
			bytes:       desc("plimsoll_instance_connection_bytes_total", "Bytes that an instance received from its clients over TCP, and that it sent to them.", instance, "direction"),
			retransmits: desc("plimsoll_instance_connection_retransmits_total", "TCP segments that an instance sent again to its clients.", instance),
			roundTrip:   desc("plimsoll_instance_connection_round_trip_seconds", "Smoothed round trips of TCP to an instance's clients.", instance),
		},
		displaced: desc("plimsoll_probe_displaced_clients_total", "Clients that lost their own series to others that do more.", nil),
	}
}

// Describe implements prometheus.Collector.
func (c *ConnectionCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []connectionDescs{c.of, c.total} {
		for _, one := range []*prometheus.Desc{d.open, d.opened, d.closed, d.refused, d.bytes, d.retransmits, d.roundTrip} {
			ch <- one
		}
	}
	ch <- c.displaced
}

// Collect implements prometheus.Collector.
func (c *ConnectionCollector) Collect(ch chan<- prometheus.Metric) {
	var all metrics
	// What is slow to read must not keep the source waiting.
	c.source.LookConnections(func(table *aggregate.Connections) {
		for i, sums := range table.Totals() {
			all.connections(&c.total, sums, true, i.Namespace, i.Database, i.Name)
			for client, sums := range table.Clients(i) {
				all.connections(&c.of, sums, false, i.Namespace, i.Database, i.Name, client.Namespace, client.Kind, client.Name)
			}
		}
		all.counter(c.displaced, float64(table.Displaced()))
	})
	for _, m := range all {
		ch <- m
	}
}

func (m *metrics) connections(d *connectionDescs, sums *aggregate.ConnectionSums, classic bool, labels ...string) {
	with := func(label string) []string { return append(slices.Clone(labels), label) }
	m.gauge(d.open, float64(sums.Open), labels...)
	m.counter(d.opened, float64(sums.Opened), labels...)
	m.counter(d.closed, float64(sums.Closed), with("closed")...)
	m.counter(d.closed, float64(sums.Reset), with("reset")...)
	m.counter(d.closed, float64(sums.TimedOut), with("timed_out")...)
	m.counter(d.refused, float64(sums.Refused), labels...)
	m.counter(d.bytes, float64(sums.BytesIn), with("received")...)
	m.counter(d.bytes, float64(sums.BytesOut), with("sent")...)
	m.counter(d.retransmits, float64(sums.Retransmits), labels...)
	m.add(newRoundTrips(d.roundTrip, sums, classic, labels...))
}

// The schema of round trips: four buckets an octave. Slot i is the native bucket i+firstRoundTrip. Classic buckets are every second octave from 61 us
// to 4 s.
const (
	roundTripSchema = 2
	lowestRoundTrip = -17
	firstRoundTrip  = lowestRoundTrip<<roundTripSchema + 1
	firstClassic    = -14
	lastClassic     = 2
)

func newRoundTrips(d *prometheus.Desc, sums *aggregate.ConnectionSums, classic bool, labels ...string) prometheus.Metric {
	h := nativeHistogram(roundTripSchema, firstRoundTrip, sums.RoundTrip.Seconds(), sums.Slots[:])
	if classic {
		h.Bucket = classicRoundTrips(sums.Slots)
	}
	return &histogram{desc: d, metric: &dto.Metric{Histogram: h, Label: prometheus.MakeLabelPairs(d, labels)}}
}

func classicRoundTrips(slots [event.RoundTrips]uint64) []*dto.Bucket {
	var buckets []*dto.Bucket
	var below uint64
	slot := 0
	for octave := firstClassic; octave <= lastClassic; octave += 2 {
		for ; slot < (octave-lowestRoundTrip)<<roundTripSchema; slot++ {
			below += slots[slot]
		}
		buckets = append(buckets, &dto.Bucket{UpperBound: new(math.Exp2(float64(octave))), CumulativeCount: new(below)})
	}
	return buckets
}
