package journal

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

// fake is a sink that keeps what it takes.
type fake struct {
	name  string
	err   error
	holds chan struct{} // until it is closed, nothing is taken

	mu   sync.Mutex
	took int
}

func (f *fake) Name() string { return f.name }

func (f *fake) Send(ctx context.Context, entries []Entry) error {
	if f.holds != nil {
		select {
		case <-f.holds:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took += len(entries)
	return f.err
}

// counted are the series of a journal.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			all[key] = m.GetCounter().GetValue()
		}
	}
	return all
}

func begin(t *testing.T, sinks ...Sink) (*Journal, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return New(metrics, testr.New(t), sinks...), registry
}

// until a journal has counted so.
func until(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); cmp.Diff(want, counted(t, registry)) != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("-want +got\n%s", cmp.Diff(want, counted(t, registry)))
		}
	}
}

const told, untold = "plimsoll_probe_told_statements_total ", "plimsoll_probe_untold_statements_total "

func TestASinkThatHangsHoldsUpNobodyAndWhatItLosesIsCounted(t *testing.T) {
	defer goleak.VerifyNone(t)
	stuck, well := &fake{name: "stuck", holds: make(chan struct{})}, &fake{name: "well"}
	j, registry := begin(t, stuck, well)
	const first = 10
	j.Add(make([]Entry, first))
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(running) }()
	until(t, registry, map[string]float64{
		told + "stuck": 0, untold + "failed stuck": 0, untold + "queue stuck": 0, untold + "refused stuck": 0,
		told + "well": first, untold + "failed well": 0, untold + "queue well": 0, untold + "refused well": 0,
	})
	// More than there is room for; the sink that works may take its share meanwhile.
	j.Add(make([]Entry, mostWaiting+5))
	queued := counted(t, registry)
	if queued[untold+"queue stuck"] != 5 {
		t.Errorf("%v found no room, want 5", queued[untold+"queue stuck"])
	}
	close(stuck.holds)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	all := counted(t, registry)
	if all[told+"stuck"] != first+mostWaiting || all[told+"well"]+all[untold+"queue well"] != first+mostWaiting+5 {
		t.Errorf("not all is accounted for: %v", all)
	}
}

func TestWhatASinkDoesNotTakeIsCountedByReason(t *testing.T) {
	for sentence, row := range map[string]struct {
		err                   error
		told, refused, failed float64
	}{
		"it takes all":       {told: 3},
		"it refuses one":     {err: &RefusedError{Entries: 1, Why: errors.New("too old")}, told: 2, refused: 1},
		"it refuses too few": {err: &RefusedError{Entries: 99, Why: errors.New("too old")}, refused: 3},
		"it is not there":    {err: errors.New("nobody answers"), failed: 3},
	} {
		t.Run(sentence, func(t *testing.T) {
			j, registry := begin(t, &fake{name: "s", err: row.err})
			j.Add(make([]Entry, 3))
			running, stop := context.WithCancel(t.Context())
			stop() // what is waiting is sent all the same
			if err := j.Run(running); err != nil {
				t.Fatal(err)
			}
			want := map[string]float64{told + "s": row.told, untold + "failed s": row.failed, untold + "queue s": 0, untold + "refused s": row.refused}
			if diff := cmp.Diff(want, counted(t, registry)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
