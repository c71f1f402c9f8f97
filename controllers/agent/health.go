package agent

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// starved is how long the agent's loop may stand still before the kubelet is told: a node that is short of CPU is no reason
	// to restart a database.
	starved = time.Minute
	// oldReport is how old a report may be for readiness.
	oldReport = 10 * time.Second
)

// health answers the kubelet. It says nothing that a stranger may not know: the port has no TLS.
type health struct {
	clock    lease.Clock
	pulse    func() lease.Time
	reporter *reporter
}

func (h *health) handler() http.Handler { return probeHandler(h.live, h.started, h.ready) }

// probeHandler answers the three questions of the kubelet.
func probeHandler(live, started, ready func() error) http.Handler {
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // the kubelet may have given up; it asks again
	}
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, live()) })
	mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, _ *http.Request) { say(w, started()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, ready()) })
	return mux
}

func probeServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// live says whether the loop that owns the server turns.
func (h *health) live() error {
	if still := h.clock.Now().Sub(h.pulse()); still > starved {
		return fmt.Errorf("the agent's loop stands still since %s", still.Round(time.Second))
	}
	return nil
}

// started says whether the agent works. The server may be hours from it: a copy takes its time, and killing it helps nobody.
func (h *health) started() error {
	if h.pulse() == 0 {
		return fmt.Errorf("the agent's loop has not begun")
	}
	return nil
}

// ready says whether the server serves in its role.
func (h *health) ready() error {
	r, at, _ := h.reporter.get()
	switch {
	case time.Since(at) > oldReport:
		return fmt.Errorf("the server said nothing for %s", oldReport)
	case r.State != "running" || r.Role == engine.Stopped:
		return fmt.Errorf("the server is %s", r.State)
	case !r.Ready:
		return fmt.Errorf("the %s is not ready", r.Role)
	}
	return nil
}
