package ssa

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verbs of writes.
const (
	verbApply  = "apply"
	verbCreate = "create"
	verbDelete = "delete"
	verbStatus = "status"
)

// metrics counts writes. An object that needed none is not counted, so the counter of an idle system stands still.
type metrics struct {
	writes *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plimsoll_api_writes_total",
		Help: "Writes of the manager to the API server by kind of object, verb (apply, create, delete, status) and result (ok, gone, conflict, foreign, invalid, error).",
	}, []string{"kind", "verb", "result"})}
	if err := registry.Register(m.writes); err != nil {
		return nil, fmt.Errorf("register plimsoll_api_writes_total: %w", err)
	}
	return m, nil
}

func (m *metrics) count(kind schema.GroupVersionKind, verb string, err error) {
	m.writes.WithLabelValues(kind.Kind, verb, result(err)).Inc()
}

func result(err error) string {
	var stranger *ForeignError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &stranger):
		return "foreign"
	case apierrors.IsNotFound(err):
		return "gone"
	case apierrors.IsConflict(err):
		return "conflict"
	case apierrors.IsInvalid(err):
		return "invalid"
	}
	return "error"
}
