package desired

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// startupProbe holds liveness back while a server clones or recovers, which may take hours: it asks often, so that a quick start
// is seen at once, and gives up after a day only.
func startupProbe() *corev1.Probe {
	return probe("/startupz", corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 24 * 60 * 60})
}

// livenessProbe is not the failure detector: the agent is. It ends an agent that has said nothing for more than a minute, and a
// node that is starved for less loses nothing.
func livenessProbe() *corev1.Probe {
	return probe("/livez", corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 7})
}

// readinessProbe routes reads, so it asks every second.
func readinessProbe() *corev1.Probe {
	return probe("/readyz", corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3})
}

func probe(path string, p corev1.Probe) *corev1.Probe {
	p.SuccessThreshold = 1
	p.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: path, Port: intstr.FromInt32(engine.HealthPort), Scheme: corev1.URISchemeHTTP,
	}}
	return &p
}
