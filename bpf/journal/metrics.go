package journal

import "github.com/prometheus/client_golang/prometheus"

// Why an entry is lost.
const (
	lostQueue   = "queue"   // the sink is too slow: it found no room
	lostRefused = "refused" // the sink's other end did not want it
	lostFailed  = "failed"  // nobody answered, as often as it was tried
)

// Metrics count what was told.
type Metrics struct {
	told   *prometheus.CounterVec
	untold *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_probe_told_statements_total",
			Help: "Statements that were slow or failed and that a sink has taken.",
		}, []string{"sink"}),
		untold: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_probe_untold_statements_total",
			Help: "Statements that were slow or failed and that a sink has not taken, by reason.",
		}, []string{"sink", "reason"}),
	}
	for _, c := range []prometheus.Collector{m.told, m.untold} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Forget takes them out of the registry.
func (m *Metrics) Forget(registry prometheus.Registerer) {
	registry.Unregister(m.told)
	registry.Unregister(m.untold)
}

// begin shows a sink's series before anything has happened.
func (m *Metrics) begin(sink string) {
	m.told.WithLabelValues(sink)
	for _, reason := range []string{lostQueue, lostRefused, lostFailed} {
		m.untold.WithLabelValues(sink, reason)
	}
}

func (m *Metrics) sent(sink string, n int) { m.told.WithLabelValues(sink).Add(float64(n)) }

func (m *Metrics) lost(sink, reason string, n int) {
	m.untold.WithLabelValues(sink, reason).Add(float64(n))
}
