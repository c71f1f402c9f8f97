package database

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// maxSlots bounds the series of one instance's slots; more than its peers and a few of its users' is a mistake to look at in SQL.
const maxSlots = 32

// Metrics counts what the reconciler does, and shows what it and the agents last said of each Database. What is shown is read
// when it is scraped, so that the series of a deleted Database end with it.
type Metrics struct {
	reconciles *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	handOvers  *prometheus.CounterVec
	handTimes  *prometheus.HistogramVec
	lost       prometheus.Counter
	lossy      prometheus.Counter
	aims       *prometheus.CounterVec
	exchanges  *prometheus.CounterVec
	reports    *Reports

	mu    sync.Mutex
	shown map[types.NamespacedName]shown
}

// shown is what the metrics tell of a status.
type shown struct {
	primaries, replicas, unknown int
	expiries                     []expiry
}

// expiry is the end of a certificate in Unix time.
type expiry struct {
	name string
	at   int64
}

func shownOf(status v1.DatabaseStatus) shown {
	var out shown
	for _, i := range status.Instances {
		if status.Phase == v1.PhaseHibernated {
			break // none runs, as asked: nobody is to be woken for that
		}
		switch i.Role {
		case v1.RolePrimary:
			out.primaries++
		case v1.RoleReplica:
			out.replicas++
		default:
			out.unknown++
		}
	}
	for _, c := range status.Certificates {
		out.expiries = append(out.expiries, expiry{c.Name, c.NotAfter.Unix()})
	}
	return out
}

// NewMetrics registers the reconciler's metrics.
func NewMetrics(registry prometheus.Registerer, reports *Reports) (*Metrics, error) {
	m := &Metrics{
		reports: reports,
		shown:   map[types.NamespacedName]shown{},
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_reconciles_total", Help: "Reconciles by kind, phase of the object and result (ok or error).",
		}, []string{"kind", "phase", "result"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_reconcile_duration_seconds", Help: "Duration of reconciles by kind and phase of the object.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"kind", "phase"}),
		handOvers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_hand_overs_total", Help: "Changes of the leader by cause: bootstrap, switchover, failover, resume, raise, recover or other.",
		}, []string{"cause"}),
		handTimes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_hand_over_duration_seconds", Help: "Time from the loss of the old leader, or the request, to the new leader's first write, by cause.",
			Buckets: []float64{.1, .25, .5, .75, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60, 120},
		}, []string{"cause"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_hand_over_lost_bytes_total", Help: "Bytes of log with acknowledged writes that changes of the leader lost, as far as it was found out.",
		}),
		lossy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_hand_overs_lossy_total", Help: "Changes of the leader that lost acknowledged writes, as far as it was found out.",
		}),
		aims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_aims_total", Help: "Aims published to agents by result (ok or error).",
		}, []string{"result"}),
		exchanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_agent_exchanges_total", Help: "Exchanges of agents' programs by result: sent, refused, done, given_up or fell_back.",
		}, []string{"result"}),
	}
	for _, c := range []prometheus.Collector{m.reconciles, m.durations, m.handOvers, m.handTimes, m.lost, m.lossy, m.aims, m.exchanges, shownCollector{m}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	for _, cause := range causes() {
		m.handOvers.WithLabelValues(cause) // from the first scrape on: a rate does not see a first one that comes with its series
	}
	return m, nil
}

func (m *Metrics) reconciled(phase v1.Phase, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	if phase == "" {
		phase = v1.PhasePending
	}
	m.reconciles.WithLabelValues("Database", string(phase), result).Inc()
	m.durations.WithLabelValues("Database", string(phase)).Observe(took.Seconds())
}

// published counts an aim by what came of it.
func (m *Metrics) published(err error) {
	if err != nil {
		m.aims.WithLabelValues("error").Inc()
		return
	}
	m.aims.WithLabelValues("ok").Inc()
}

// exchanged counts what came of the exchange of an agent's program.
func (m *Metrics) exchanged(result string) { m.exchanges.WithLabelValues(result).Inc() }

// told keeps a Database's newest status to show, and counts the hand-overs that it did not have before.
func (m *Metrics) told(database types.NamespacedName, before, now v1.DatabaseStatus) {
	m.mu.Lock()
	m.shown[database] = shownOf(now)
	m.mu.Unlock()
	for _, h := range newHandOvers(before, now) {
		cause := boundedCause(h.Cause)
		m.handOvers.WithLabelValues(cause).Inc()
		if h.Cause != causeRaise { // which has no duration: nobody waits for it
			m.handTimes.WithLabelValues(cause).Observe(float64(h.DurationMillis) / 1000)
		}
	}
	for _, h := range foundOut(before, now) {
		m.lost.Add(float64(*h.LostBytes))
		m.lossy.Inc()
	}
}

func (m *Metrics) forget(database types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.shown, database)
}

// newHandOvers are those of now that before does not hold.
func newHandOvers(before, now v1.DatabaseStatus) []v1.HandOver {
	known := map[int64]bool{}
	for _, h := range before.HandOvers {
		known[h.Epoch] = true
	}
	var out []v1.HandOver
	for _, h := range now.HandOvers {
		if !known[h.Epoch] {
			out = append(out, h)
		}
	}
	return out
}

// foundOut are the changes of now that lost something, of which before does not know how much.
func foundOut(before, now v1.DatabaseStatus) []v1.HandOver {
	known := map[int64]bool{}
	for _, h := range before.HandOvers {
		known[h.Epoch] = h.LostBytes != nil
	}
	var out []v1.HandOver
	for _, h := range now.HandOvers {
		if !known[h.Epoch] && h.LostBytes != nil && *h.LostBytes > 0 {
			out = append(out, h)
		}
	}
	return out
}

const causeOther = "other"

// causes of a change of the leader.
func causes() []string {
	return []string{"bootstrap", "switchover", "failover", "resume", causeRaise, "recover", causeOther}
}

func boundedCause(cause string) string {
	if slices.Contains(causes(), cause) {
		return cause
	}
	return causeOther
}

// shownCollector renders statuses and reports at scrape time.
type shownCollector struct{ m *Metrics }

type desc struct {
	name, help string
	labels     []string
}

func (d desc) prom() *prometheus.Desc {
	return prometheus.NewDesc(d.name, d.help, append([]string{"namespace", "database"}, d.labels...), nil)
}

func instanceDesc(name, help string, labels ...string) *prometheus.Desc {
	return desc{"plimsoll_instance_" + name, help, append([]string{"instance"}, labels...)}.prom()
}

// Describe sends nothing: the collector is unchecked, since which series there are depends on what was heard.
func (shownCollector) Describe(chan<- *prometheus.Desc) {}

// Collect renders what is known now.
func (c shownCollector) Collect(out chan<- prometheus.Metric) {
	c.statuses(out)
	c.instances(out)
	c.streams(out)
}

func (c shownCollector) statuses(out chan<- prometheus.Metric) {
	instances := desc{"plimsoll_database_instances", "Instances by the role that they play.", []string{"role"}}.prom()
	ends := desc{"plimsoll_certificate_expiry_timestamp_seconds", "End of a certificate in Unix time.", []string{"name"}}.prom()
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	for key, status := range c.m.shown {
		for role, n := range map[v1.Role]int{v1.RolePrimary: status.primaries, v1.RoleReplica: status.replicas, v1.RoleUnknown: status.unknown} {
			out <- prometheus.MustNewConstMetric(instances, prometheus.GaugeValue, float64(n), key.Namespace, key.Name, string(role))
		}
		for _, cert := range status.expiries {
			out <- prometheus.MustNewConstMetric(ends, prometheus.GaugeValue, float64(cert.at), key.Namespace, key.Name, cert.name)
		}
	}
}

func (c shownCollector) instances(out chan<- prometheus.Metric) {
	role := instanceDesc("role", "1 for the role that the instance plays.", "role")
	ready := instanceDesc("ready", "1 while the instance serves.")
	lag := instanceDesc("lag_bytes", "Bytes of log that the instance is behind the leader.")
	position := instanceDesc("position_bytes", "Position in the log that the instance has durably received.")
	used := instanceDesc("volume_used_bytes", "Bytes in use of a volume.", "volume")
	size := instanceDesc("volume_size_bytes", "Size of a volume.", "volume")
	wal := instanceDesc("wal_bytes", "Bytes of write-ahead log kept on disk.")
	slot := instanceDesc("slot_retained_bytes", "Bytes of write-ahead log that a replication slot keeps.", "slot")
	connections := instanceDesc("connections", "Client connections in use.")
	goroutines := instanceDesc("agent_goroutines", "Goroutines of the instance's agent.")
	kills := instanceDesc("memory_kills_total", "Processes of the instance's container that the kernel killed because its memory was at its limit.")
	limit := instanceDesc("max_connections", "Client connections that the server allows.")
	c.m.reports.each(func(key types.NamespacedName, name string, heard Heard) {
		r := heard.Report
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{key.Namespace, key.Name, name}, labels...)...)
		}
		gauge(role, 1, string(roleOf(&r)))
		gauge(ready, oneIf(r.Ready))
		if r.LagBytes >= 0 {
			gauge(lag, float64(r.LagBytes))
		}
		gauge(position, float64(r.Position.Bytes))
		volume := func(which string, v engine.VolumeUse) {
			if v.Size > 0 {
				gauge(used, float64(v.Used), which)
				gauge(size, float64(v.Size), which)
			}
		}
		volume("data", r.Data)
		volume("wal", r.WAL)
		gauge(wal, float64(r.WALBytes))
		seen := map[string]bool{}
		for _, s := range r.Slots[:min(len(r.Slots), maxSlots)] {
			if !seen[s.Name] {
				seen[s.Name] = true
				gauge(slot, float64(s.Retained), s.Name)
			}
		}
		out <- prometheus.MustNewConstMetric(kills, prometheus.CounterValue, float64(r.MemoryKills), key.Namespace, key.Name, name)
		gauge(connections, float64(r.Connections))
		gauge(limit, float64(r.MaxConnections))
		if r.Goroutines > 0 { // an older agent does not tell
			gauge(goroutines, float64(r.Goroutines))
		}
	})
}

func (c shownCollector) streams(out chan<- prometheus.Metric) {
	open, dropped, broken, relayed := c.m.reports.counts()
	plain := func(name, help string, kind prometheus.ValueType, value float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	plain("plimsoll_report_streams", "Agents that are followed over a connection of their own.", prometheus.GaugeValue, float64(open))
	plain("plimsoll_reports_relayed", "Instances whose reports their leader passes on.", prometheus.GaugeValue, float64(relayed))
	plain("plimsoll_report_streams_dropped_total", "Agents that were not followed because too many are.", prometheus.CounterValue, float64(dropped))
	plain("plimsoll_report_streams_broken_total", "Streams from agents that ended by themselves.", prometheus.CounterValue, float64(broken))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// roleOf is the role by a report; a silent instance's is unknown.
func roleOf(r *engine.Report) v1.Role {
	switch {
	case r == nil:
		return v1.RoleUnknown
	case r.Role == engine.Primary:
		return v1.RolePrimary
	case r.Role == engine.Replica:
		return v1.RoleReplica
	default:
		return v1.RoleUnknown
	}
}

// counts are the streams that are open, were refused, and ended by themselves, and the instances whose leader speaks for them.
func (r *Reports) counts() (open int, dropped, broken int64, relayed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.databases {
		for _, s := range f.streams {
			if s.fresh() && s.heard.Relayed {
				relayed++
			}
		}
	}
	return r.count, r.dropped, r.broken, relayed
}
