package journal

import (
	"net/netip"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// Entry is one statement that was slow or failed.
type Entry struct {
	Kind event.Kind
	// End is when it was answered. Latency, of which the next three are parts, is 0 if nobody saw it asked for.
	End                               time.Time
	Latency, Queue, Service, Transfer time.Duration
	Origin                            Origin
	Role                              string
	Session                           event.Session
	Query                             string // its id; empty if its text is not known
	// Text is the statement's normal form or, where literals are asked for, as its client sent it. Literal says which, and Cut that its end is missing.
	Text              string
	Literal, Cut      bool
	Nth               uint32 // which statement of a text that has some, from 0
	State             event.State
	Rows              uint64
	BytesIn, BytesOut uint64
	Client            netip.AddrPort
	Local             bool // it was asked for by a socket of the file system
}

// Origin is the instance that a statement ran on.
type Origin struct {
	aggregate.Instance
	Pod, Container string // UID and ID
	Address        string // of the pod
	Port           uint16
	Node           string
}

// Schema is the version of OpenTelemetry's semantic conventions by which fields are named. Those that it does not know begin with plimsoll.
const Schema = "https://opentelemetry.io/schemas/1.43.0"

// field of an entry: a string, an int64, a float64 or a bool.
type field struct {
	name  string
	value any
}

// names of events and what people read of them.
func (e Entry) event() (name, said string) {
	return "plimsoll.statement." + e.Kind.String(), e.Kind.String() + " statement"
}

// severity as its number and name in OpenTelemetry.
func (e Entry) severity() (int32, string) {
	const warning, failure = 13, 17
	if e.State != 0 {
		return failure, "ERROR"
	}
	return warning, "WARN"
}

// fields of whom it came from.
func (o Origin) fields() []field {
	return slim(
		field{"service.namespace", o.Namespace},
		field{"service.name", o.Database},
		field{"service.instance.id", o.Name},
		field{"k8s.namespace.name", o.Namespace},
		field{"k8s.pod.name", o.Name},
		field{"k8s.pod.uid", o.Pod},
		field{"k8s.node.name", o.Node},
		field{"container.id", o.Container},
		field{"server.address", o.Address},
		field{"server.port", int64(o.Port)},
	)
}

// fields of the statement itself.
func (e Entry) fields() []field {
	all := []field{
		{"db.system.name", "postgresql"},
		{"db.namespace", e.Session.Database},
		{"user.name", e.Session.User},
		{"db.query.text", e.Text},
	}
	if e.State != 0 {
		all = append(all, field{"db.response.status_code", e.State.String()}, field{"error.type", e.State.String()})
	}
	transport := ""
	switch {
	case e.Local:
		transport = "unix"
	case e.Client.IsValid():
		transport = "tcp"
		all = append(all, field{"client.address", e.Client.Addr().String()}, field{"client.port", int64(e.Client.Port())})
	}
	all = append(all,
		field{"network.transport", transport},
		field{"plimsoll.role", e.Role},
		field{"plimsoll.query.id", e.Query},
		field{"plimsoll.query.literal", e.Literal},
		field{"plimsoll.query.cut", e.Cut},
		field{"plimsoll.query.nth", int64(e.Nth)},
	)
	if e.Latency > 0 {
		all = append(all,
			field{"plimsoll.statement.begin", e.End.Add(-e.Latency).UTC().Format(time.RFC3339Nano)},
			field{"plimsoll.statement.duration", e.Latency.Seconds()},
			field{"plimsoll.statement.queue", e.Queue.Seconds()},
			field{"plimsoll.statement.service", e.Service.Seconds()},
			field{"plimsoll.statement.transfer", e.Transfer.Seconds()},
		)
	}
	all = append(slim(all...),
		field{"plimsoll.statement.rows", int64(e.Rows)},
		field{"plimsoll.statement.received", int64(e.BytesIn)},
		field{"plimsoll.statement.sent", int64(e.BytesOut)},
	)
	return all
}

// slim leaves out what is not known, or is as it nearly always is.
func slim(all ...field) []field {
	var some []field
	for _, f := range all {
		switch f.value {
		case "", int64(0), false:
			continue
		}
		some = append(some, f)
	}
	return some
}
