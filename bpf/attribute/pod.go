package attribute

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Instance is a running server of a Database, as its pod says.
type Instance struct {
	Namespace, Database, Name string
	Role                      string // primary or replica; empty before it is known
	Container                 Container
	Address                   string // of its pod
	Engine                    string // PostgreSQL or Redis
	Port                      uint16
	TLSPort                   uint16            // of a server that has one apart; 0 for none
	Statements                v1.StatementsSpec // of which its Database wants to be told
}

// The name that an instance's pod gives to its server's container.
const serverContainer = "database"

// Engines, by the name that an instance's pod gives to the port on which clients reach its server.
const (
	PostgreSQL = "postgres"
	Redis      = "redis" // Valkey too
)

// redisTLS is the name of the port on which a Redis takes clients through TLS alone.
const redisTLS = "redis-tls"

// OfPod tells which instance a pod is. It is none if the pod is no instance of a Database, or its server's container does not run.
func OfPod(pod *corev1.Pod) (Instance, bool) {
	labels := pod.Labels
	if labels[v1.LabelKind] != v1.KindInstance || labels[v1.LabelDatabase] == "" || labels[v1.LabelInstance] == "" {
		return Instance{}, false
	}
	i := Instance{
		Namespace: pod.Namespace, Database: labels[v1.LabelDatabase], Name: labels[v1.LabelInstance], Role: labels[v1.LabelRole],
		Container: Container{Pod: string(pod.UID)}, Address: pod.Status.PodIP,
	}
	if raw := pod.Annotations[v1.AnnotationStatements]; raw != "" {
		var wanted v1.StatementsSpec
		if json.Unmarshal([]byte(raw), &wanted) == nil { // else somebody else wrote it: no text is shown that nobody asked for
			i.Statements = wanted
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == serverContainer && s.State.Running != nil {
			_, i.Container.ID, _ = strings.Cut(s.ContainerID, "://") // before it is the runtime's name
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if c.Name != serverContainer {
				continue
			}
			switch p.Name {
			case PostgreSQL, Redis:
				i.Engine, i.Port = p.Name, uint16(p.ContainerPort)
			case redisTLS:
				i.TLSPort = uint16(p.ContainerPort)
			}
		}
	}
	return i, i.Container.ID != "" && i.Port != 0
}
