// Package view is what an instance's agent passes on between the probe of its node, which sees what the instance does, and people who watch it.
//
// Both come to the agent's socket. Each side sends lines, a JSON value each: first who comes (Hello), and from then on the agent passes each Line of
// the probe on to those who watch. The agent tells the probe what is wanted (Want), so that nothing is sent while nobody watches.
package view

import "time"

// Socket is where an instance's agent listens, in the instance's container. Who can reach it could as well read the server's memory: a process of
// that container, or one that is root on its node.
const Socket = "/run/plimsoll/view.sock"

// Bounds of lines, in bytes with the line's end: of what a probe sends, and of all others.
const (
	MaxLine  = 2 << 20
	MaxHello = 4 << 10
)

// Every is how often a Table comes while it is wanted.
const Every = time.Second

// Hello is the first line of who comes: one of the two.
type Hello struct {
	// Probe is the version of the probe that comes.
	Probe string `json:"probe,omitempty"`
	// Want is what a watcher wants to see.
	Want *Want `json:"want,omitempty"`
}

// Want is what is to be sent: to a watcher, and by the probe.
type Want struct {
	// Table wants a Line with a Table each second.
	Table bool `json:"table,omitempty"`
	// Told wants a Line with slow and failed statements as they end.
	Told bool `json:"told,omitempty"`
}

// Line is what a watcher reads; one or more of its fields are set. The probe sends Table and Told.
type Line struct {
	// Probe says whether a probe is there, first of all and whenever that changes.
	Probe *bool `json:"probe,omitempty"`
	// Refused says why nothing comes; it is the last line.
	Refused string `json:"refused,omitempty"`
	// Lost counts the lines that this watcher was too slow for since the last one.
	Lost uint64 `json:"lost,omitempty"`
	// Table is what was counted until now.
	Table *Table `json:"table,omitempty"`
	// Told are statements that were slow or failed, as the probe logs them.
	Told []Statement `json:"told,omitempty"`
}

// Table is what was counted of an instance since Began.
type Table struct {
	At time.Time `json:"at"`
	// Began is when counting did: when the probe began to know the instance.
	Began time.Time `json:"began"`
	// State says how far the instance is measured: measured, partly, unseen or waiting.
	State string `json:"state"`
	// Rows are the statements that have counts of their own, and Other for all that have none.
	Rows []Row `json:"rows"`
	// Clients who have connections.
	Clients []Client `json:"clients,omitempty"`
}

// Other is the Query of what has no counts of its own.
const Other = "other"

// Row is one statement by one user in one database, while the instance had one role.
type Row struct {
	Role     string `json:"role,omitempty"`
	User     string `json:"user,omitempty"`
	Database string `json:"database,omitempty"`
	Query    string `json:"query"`
	Text     string `json:"text,omitempty"`
	Sums
}

// Sums of calls. All grow, but when a statement loses its place to another: then its Row is gone.
type Sums struct {
	Calls uint64 `json:"calls"`
	// Errors of these calls, by the class of their SQLSTATE.
	Errors map[string]uint64 `json:"errors,omitempty"`
	// Rows that were returned or changed.
	Rows uint64 `json:"rows"`
	// Bytes of statements that were received, and of answers that were sent.
	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"`
	// Latency is how long clients waited, Queue, Service and Transfer are its parts; in nanoseconds.
	Latency  time.Duration `json:"latency"`
	Queue    time.Duration `json:"queue"`
	Service  time.Duration `json:"service"`
	Transfer time.Duration `json:"transfer"`
	// Buckets count calls by how long their clients waited: more than the bound before, and this at the most, in nanoseconds. Bounds are those
	// of Prometheus' native histograms of schema 3, a tenth apart; the last one is the greatest int64. A table that would be too long has none, and
	// no Text, in rows that took little time.
	Buckets map[int64]uint64 `json:"buckets,omitempty"`
}

// Client is a workload that has connections to an instance, or what stands in its place: a node, an address outside of the cluster.
type Client struct {
	Namespace string `json:"namespace,omitempty"`
	Kind      string `json:"kind"`
	Name      string `json:"name,omitempty"`
	Open      uint64 `json:"open"`
}

// Statement is one that was slow or failed, by the names of the log's fields that people look at first. A probe sends more.
type Statement struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"` // EventSlow or EventFailed
	Instance string    `json:"service.instance.id"`
	Role     string    `json:"plimsoll.role,omitempty"`
	User     string    `json:"user.name,omitempty"`
	Database string    `json:"db.namespace,omitempty"`
	Query    string    `json:"plimsoll.query.id,omitempty"`
	Text     string    `json:"db.query.text,omitempty"`
	Cut      bool      `json:"plimsoll.query.cut,omitempty"`
	// State is the SQLSTATE; empty for success.
	State string `json:"db.response.status_code,omitempty"`
	// Address of the client; empty for one by a socket of the file system.
	Address string `json:"client.address,omitempty"`
	// Duration, Queue, Service and Transfer in seconds.
	Duration float64 `json:"plimsoll.statement.duration,omitempty"`
	Queue    float64 `json:"plimsoll.statement.queue,omitempty"`
	Service  float64 `json:"plimsoll.statement.service,omitempty"`
	Transfer float64 `json:"plimsoll.statement.transfer,omitempty"`
	Rows     int64   `json:"plimsoll.statement.rows"`
}

// What Event says.
const (
	EventSlow   = "plimsoll.statement.slow"
	EventFailed = "plimsoll.statement.failed"
)
