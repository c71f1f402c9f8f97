// Package export shows statements to Prometheus.
package export

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// Sight is what there is to show at one moment.
type Sight struct {
	Table *aggregate.Table
	// Lost counts what was lost, by reason.
	Lost map[string]uint64
	// Instances of this node by how far they are measured.
	Instances map[string]int
	// Hooks are where statements are seen, and whether they are attached.
	Hooks map[string]bool
}

// Source gives a sight of now to show, which holds while show runs.
type Source interface {
	Look(show func(Sight))
}

// Collector is a prometheus.Collector of statements.
type Collector struct {
	source Source

	statements, errors, rows, info, seconds *prometheus.Desc

	total, totalErrors, totalRows, totalBytes, totalPhases, totalSeconds *prometheus.Desc

	lost, instances, hooks, displaced *prometheus.Desc
}

// New makes a Collector.
func New(source Source) *Collector {
	instance := []string{"namespace", "database", "instance"}
	role := slices.Concat(instance, []string{"role"})
	statement := slices.Concat(role, []string{"user", "datname", "query_id"})
	with := func(labels []string, more ...string) []string { return slices.Concat(labels, more) }
	desc := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Collector{
		source: source,

		statements: desc("plimsoll_statements_total", "Statements that ended, failed ones too.", statement),
		errors:     desc("plimsoll_statement_errors_total", "Statements that failed, by the class of their SQLSTATE.", with(statement, "sqlstate_class")),
		rows:       desc("plimsoll_statement_rows_total", "Rows that statements returned or changed.", statement),
		seconds:    desc("plimsoll_statement_duration_seconds", "How long clients waited for statements, as a native histogram.", statement),
		info:       desc("plimsoll_statement_info", "The text of a statement without its literals.", with(instance, "query_id", "text")),

		total:        desc("plimsoll_instance_statements_total", "Statements of an instance that ended, failed ones too.", role),
		totalErrors:  desc("plimsoll_instance_statement_errors_total", "Statements of an instance that failed, by the class of their SQLSTATE.", with(role, "sqlstate_class")),
		totalRows:    desc("plimsoll_instance_statement_rows_total", "Rows that statements of an instance returned or changed.", role),
		totalBytes:   desc("plimsoll_instance_statement_bytes_total", "Bytes of statements that an instance received, and of answers that it sent.", with(role, "direction")),
		totalPhases:  desc("plimsoll_instance_statement_phase_seconds_total", "What statements of an instance spent in the queue of their connection, in service, and in the transfer of the answer.", with(role, "phase")),
		totalSeconds: desc("plimsoll_instance_statement_duration_seconds", "How long clients waited for statements of an instance.", role),

		lost:      desc("plimsoll_probe_lost_total", "What the probe could not see or keep, by reason.", []string{"reason"}),
		instances: desc("plimsoll_probe_instances", "Instances on this node, by how far they are measured.", []string{"state"}),
		hooks:     desc("plimsoll_probe_hook_attached", "Whether statements are seen at a hook.", []string{"hook"}),
		displaced: desc("plimsoll_probe_displaced_statements_total", "Statements that lost their own series to others that weigh more.", nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.statements, c.errors, c.rows, c.seconds, c.info, c.total, c.totalErrors, c.totalRows, c.totalBytes, c.totalPhases, c.totalSeconds,
		c.lost, c.instances, c.hooks, c.displaced,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	var all []prometheus.Metric
	// What is slow to read must not keep the source waiting.
	c.source.Look(func(s Sight) { all = c.metrics(s) })
	for _, m := range all {
		ch <- m
	}
}

func (c *Collector) metrics(s Sight) []prometheus.Metric {
	var all metrics
	for i := range s.Table.Instances() {
		texts := map[string]string{}
		for counted, sums := range s.Table.Statements(i) {
			st := counted.Statement
			labels := []string{i.Namespace, i.Database, i.Name, st.Role, st.Session.User, st.Session.Database, st.Query}
			all.counter(c.statements, float64(sums.Calls), labels...)
			all.counter(c.rows, float64(sums.Rows), labels...)
			all.errors(c.errors, sums, labels...)
			all.add(newHistogram(c.seconds, sums, false, labels...))
			if counted.Text != "" {
				texts[st.Query] = max(texts[st.Query], counted.Text) // of the ways in which it was written always the same one
			}
		}
		for id, text := range texts {
			all.gauge(c.info, 1, i.Namespace, i.Database, i.Name, id, text)
		}
		for role, sums := range s.Table.Totals(i) {
			labels := []string{i.Namespace, i.Database, i.Name, role}
			with := func(label string) []string { return append(slices.Clone(labels), label) }
			all.counter(c.total, float64(sums.Calls), labels...)
			all.counter(c.totalRows, float64(sums.Rows), labels...)
			all.errors(c.totalErrors, sums, labels...)
			all.counter(c.totalBytes, float64(sums.BytesIn), with("received")...)
			all.counter(c.totalBytes, float64(sums.BytesOut), with("sent")...)
			for phase, d := range map[string]time.Duration{"queue": sums.Queue, "service": sums.Service, "transfer": sums.Transfer} {
				all.counter(c.totalPhases, d.Seconds(), with(phase)...)
			}
			all.add(newHistogram(c.totalSeconds, sums, true, labels...))
		}
	}
	for reason, n := range s.Lost {
		all.counter(c.lost, float64(n), reason)
	}
	for state, n := range s.Instances {
		all.gauge(c.instances, float64(n), state)
	}
	for hook, attached := range s.Hooks {
		value := 0.0
		if attached {
			value = 1
		}
		all.gauge(c.hooks, value, hook)
	}
	all.counter(c.displaced, float64(s.Table.Displaced()))
	return all
}

type metrics []prometheus.Metric

func (m *metrics) add(one prometheus.Metric) { *m = append(*m, one) }

func (m *metrics) counter(d *prometheus.Desc, value float64, labels ...string) {
	m.add(prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...))
}

func (m *metrics) gauge(d *prometheus.Desc, value float64, labels ...string) {
	m.add(prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
}

func (m *metrics) errors(d *prometheus.Desc, sums *aggregate.Sums, labels ...string) {
	for class, n := range sums.Errors {
		m.counter(d, float64(n), append(slices.Clone(labels), class)...)
	}
}

// The schema of the kernel's histograms: eight buckets an octave. Slot i is the native bucket i+firstBucket.
const (
	schema      = 3
	perOctave   = 8
	lowest      = -20 // slot 0 begins at 2^-20 s
	firstBucket = lowest*perOctave + 1
)

// Classic buckets are whole octaves, so that they are exact: from 122 us to 32 s.
const (
	firstOctave = -13
	lastOctave  = 5
)

// histogram is a native histogram, and a classic one too if that is asked for.
type histogram struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

func newHistogram(d *prometheus.Desc, sums *aggregate.Sums, classic bool, labels ...string) prometheus.Metric {
	h := nativeHistogram(schema, firstBucket, sums.Latency.Seconds(), sums.Slots[:])
	if classic {
		h.Bucket = classicBuckets(sums.Slots)
	}
	return &histogram{desc: d, metric: &dto.Metric{Histogram: h, Label: prometheus.MakeLabelPairs(d, labels)}}
}

// nativeHistogram is one of a schema whose slots begin with the bucket first.
func nativeHistogram(schema int32, first int, sum float64, slots []uint64) *dto.Histogram {
	h := &dto.Histogram{SampleSum: &sum, Schema: &schema, ZeroThreshold: new(math.Exp2(-128)), ZeroCount: new(uint64(0))}
	var count uint64
	var last int64
	previous := -2
	for slot, n := range slots {
		count += n
		if n == 0 {
			continue
		}
		if slot == previous+1 {
			*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		} else {
			offset := int32(slot + first)
			if len(h.PositiveSpan) > 0 {
				offset = int32(slot - previous - 1)
			}
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: new(uint32(1))})
		}
		h.PositiveDelta = append(h.PositiveDelta, int64(n)-last)
		last, previous = int64(n), slot
	}
	if len(h.PositiveSpan) == 0 {
		h.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}} // says that it is native, though empty
	}
	h.SampleCount = &count
	return h
}

func classicBuckets(slots [event.Buckets]uint64) []*dto.Bucket {
	var buckets []*dto.Bucket
	var below uint64
	slot := 0
	for octave := firstOctave; octave <= lastOctave; octave++ {
		for ; slot < (octave-lowest)*perOctave; slot++ {
			below += slots[slot]
		}
		buckets = append(buckets, &dto.Bucket{UpperBound: new(math.Exp2(float64(octave))), CumulativeCount: new(below)})
	}
	return buckets
}

// Desc implements prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h *histogram) Write(to *dto.Metric) error {
	to.Histogram, to.Label = h.metric.Histogram, h.metric.Label
	return nil
}
