// Package engine is the seam between Plimsoll and a database: the interfaces Engine (pure, for the manager) and Driver (inside
// the pod, for the agent), and the values that they speak.
package engine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Engine is all that the manager must know about one database. Every method is pure.
type Engine interface {
	// Name of the engine, as in spec.engine.
	Name() v1.EngineName
	// Validate says what the schema and CEL cannot. Old is nil on creation.
	Validate(old, new *v1.Database) field.ErrorList
	// Warnings say what is allowed and may yet not be meant, in the same words each time.
	Warnings(d *v1.Database) []string
	// Files are the member's configuration by file name, complete and deterministic. They depend on the other members' reports
	// where a setting must change in order.
	Files(d *v1.Database, m Member, all []Member) map[string]string
	// Effective are the parameters that Plimsoll sets by itself, for status.effective.
	Effective(d *v1.Database) map[string]string
	// Parts are what this database adds to a pod.
	Parts(d *v1.Database) Parts
	// Next is the nearest safe topology on the way to what the spec asks; today's if nothing is to do.
	Next(d *v1.Database, all []Member) Topology
}

// Driver is the same database seen from inside its pod. One goroutine at a time calls Prepare, Become and Stop; Report and
// Position may run beside them.
type Driver interface {
	// Prepare makes the data directory fit for the role: initialise, clone from the upstream, rewind, mark as replica. It is
	// idempotent, may take hours and is safe to end at any instant.
	Prepare(ctx context.Context, r Role) error
	// Command is the server process for a prepared data directory.
	Command(r Role) Command
	// Become converges the running server to the role: configuration, upstream, promotion, accounts. It is idempotent and
	// refuses a role decided on an older epoch than one that it has obeyed.
	Become(ctx context.Context, r Role) error
	// Report is what the server says of itself. Its Position holds with the server stopped, too.
	Report(ctx context.Context) (Report, error)
	// Quiesce readies a primary for a planned hand-over: no new writes are taken and the returned position is final once the
	// server has stopped. Become undoes it.
	Quiesce(ctx context.Context) (Position, error)
}

// Member is one instance as the manager sees it.
type Member struct {
	// Name of the instance, its pod and its data volume, and its number: name is <database>-<ordinal>.
	Name    string
	Ordinal int32
	// Address that others reach it by: a DNS name without port.
	Address string
	// Node and Zone of its pod; empty while it has none.
	Node, Zone string
	// Image of its pod's database container; empty while it has none.
	Image string
	// Leader and Voter by the Lease.
	Leader, Voter bool
	// Report is the newest word of its agent; nil while it is silent.
	Report *Report
}

// Parts are what a database adds to a pod.
type Parts struct {
	// Name of the engine's product, for the label app.kubernetes.io/name.
	Name string
	// Image by default for spec.version, as a repository and tag, where spec.image is empty.
	Image string
	// RunAsUser and Group that the default image wants.
	RunAsUser int64
	// Port that clients and replicas use.
	Port corev1.ContainerPort
	// Env of the database container.
	Env []corev1.EnvVar
}

// Topology is who should be there and in what order work goes on, stamped with the epoch that it was decided on.
type Topology struct {
	Epoch int64
	// Members that should exist, by name.
	Members []string
	// Restart names the one member whose server restarts next; empty for none.
	Restart string
	// Switchover names the member that should lead before work goes on; empty for none.
	Switchover string
	// Reason says why, for status; empty when nothing is to do.
	Reason string
}

// Kind of a role.
type Kind string

const (
	// Primary takes writes.
	Primary Kind = "primary"
	// Replica follows Role.Upstream.
	Replica Kind = "replica"
	// Stopped runs no server.
	Stopped Kind = "stopped"
	// Witness never runs one: it votes beside two members, and no more.
	Witness Kind = "witness"
)

// Role is what one member's server should be, decided from the Lease and the manager's aim.
type Role struct {
	Kind Kind
	// Epoch that it was decided on.
	Epoch int64
	// Initialise permits Prepare to make a new, empty database: set for the bootstrap member of a new Database alone.
	Initialise bool
	// Timeline to promote onto (primary), reserved in the Lease; 0 leaves it to the server.
	Timeline uint64
	// Upstream is the primary's address (replica): a DNS name, which its certificate is for. UpstreamIP is where it is reached, by its
	// own word; empty where that is not known, and the name is asked for.
	Upstream, UpstreamIP string
	// Anew has Prepare copy the upstream's data although its own log could go on from here (replica): that was tried, and it stood still.
	// Where it could be rewound, that is done.
	Anew bool
	// Member is this member's name; Peers are the names of all members that should replicate from the primary, for slots.
	Member string
	Peers  []string
	// SyncPeers are the members of whom SyncCount must hold a commit; SyncCount 0 is asynchronous.
	SyncPeers []string
	SyncCount int
	// Files of configuration.
	Files map[string]string
	// Accounts to create and keep.
	Accounts []Account
	// Database and Bootstrap statements for Initialise.
	Database DatabaseInit
}

// Account is a login role with a password verifier; the clear password never reaches an agent.
type Account struct {
	Name     string `json:"name"`
	Verifier string `json:"verifier"`
}

// DatabaseInit is what a new database begins with.
type DatabaseInit struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	// Version that the spec asks for: a new database is not begun by another release that an image happens to hold.
	Version string `json:"version,omitempty"`
	// SQL runs once, as the owner, in order.
	SQL []string `json:"sql,omitempty"`
}

// Command is a process to run.
type Command struct {
	Path string
	Args []string
	Env  []string
	Dir  string
	// StopSignals by urgency: fast lets transactions end by rollback, hard is SIGKILL of all.
	FastStop int
}

// Position is how far a member has durably received.
type Position struct {
	// Timeline and Bytes order positions of one history. Bytes is absolute.
	Timeline uint64 `json:"timeline"`
	Bytes    uint64 `json:"bytes"`
	// Text is the position as the engine writes it.
	Text string `json:"text"`
}

// Report is what an agent says of its instance. The manager reads it; it is engine-neutral.
type Report struct {
	// Instance and UID of its Database.
	Instance string `json:"instance"`
	UID      string `json:"uid"`
	// AgentVersion that runs.
	AgentVersion string `json:"agentVersion"`
	// AgentDigest of the program that runs, as sha256:..., empty until it is known, and the Architecture that it is for, as Go names it.
	AgentDigest  string `json:"agentDigest,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	// Exchange of the agent's program that is under way, or was given up last; nil for neither.
	Exchange *Exchange `json:"exchange,omitempty"`
	// Revision of the aim that the agent has taken, and whether the server has converged to it.
	Revision  string `json:"revision"`
	Converged bool   `json:"converged"`

	// Epoch, Leader and Voters by the agent's newest view of the Lease.
	Epoch  int64    `json:"epoch"`
	Leader string   `json:"leader"`
	Voters []string `json:"voters,omitempty"`
	// Leading is true while this member holds a majority of grants.
	Leading bool `json:"leading"`

	// Role that the server plays and State of the server in a word: starting, running, initialising, cloning, rewinding,
	// stopped, fenced, failed.
	Role  Kind   `json:"role"`
	State string `json:"state"`
	Ready bool   `json:"ready"`
	// Position, and Lag behind the upstream in bytes; -1 if unknown.
	Position Position `json:"position"`
	LagBytes int64    `json:"lagBytes"`
	// Applied is how far a replica has applied what it received; zero if unknown. Effort is a number that grows by about a thousand million
	// for each second that it works on that as hard as it can, and Hold is what keeps it from it on purpose.
	Applied Position `json:"applied,omitzero"`
	Effort  uint64   `json:"-"`
	// Fell counts the servers that ended in the middle of what they applied.
	Fell int64 `json:"-"`
	Hold *Hold `json:"hold,omitempty"`
	// Upstream that it follows. Receiving is true for as long as anything may still come from an upstream, this or an earlier one.
	Upstream  string `json:"upstream,omitempty"`
	Receiving bool   `json:"receiving,omitempty"`
	// Version of the server.
	Version string `json:"version,omitempty"`
	// Settings that the server runs with, of those that Files wants to know.
	Settings map[string]string `json:"settings,omitempty"`
	// RestartPending names the parameters that wait for a restart.
	RestartPending []string `json:"restartPending,omitempty"`
	// RestartDone is the newest restart token that was carried out.
	RestartDone string `json:"restartDone,omitempty"`
	// AccountsApplied is the hash of the accounts that the primary holds.
	AccountsApplied string `json:"accountsApplied,omitempty"`
	// AuthFailures counts refused logins since the agent started: a hint to look at the password Secret again.
	AuthFailures int64 `json:"authFailures"`
	// SecretsHash is the hash of the mounted certificates that the server and the agent use now.
	SecretsHash string `json:"secretsHash,omitempty"`
	// InSync counts the peers that hold commits synchronously now, of SyncWanted (primary).
	InSync     int `json:"inSync"`
	SyncWanted int `json:"syncWanted"`
	// Streaming names the members that follow now, synchronously or not (primary). One that is still being copied is not among them.
	Streaming []string `json:"streaming,omitempty"`

	// Data and WAL volumes; WAL is zero where there is none of its own.
	Data VolumeUse `json:"data"`
	WAL  VolumeUse `json:"wal"`
	// WALBytes kept on disk; Slots and what each retains; Connections in use of Max.
	WALBytes       int64  `json:"walBytes"`
	Slots          []Slot `json:"slots,omitempty"`
	Connections    int64  `json:"connections"`
	MaxConnections int64  `json:"maxConnections"`

	// MemoryKills counts the processes of the container that the kernel killed since it started, because its memory was at its limit.
	MemoryKills int64 `json:"memoryKills,omitempty"`

	// Goroutines of the agent: a number that only grows is a leak.
	Goroutines int `json:"goroutines,omitempty"`
	// Requests answered by this agent, newest last, bounded.
	Requests []Answer `json:"requests,omitempty"`
	// HandOver is the newest change of hands that made this member leader.
	HandOver *HandOver `json:"handOver,omitempty"`
	// Raised is the newest epoch that this member took without a break while it led; nil for none.
	Raised *Raise `json:"raised,omitempty"`
	// Left is what this member had as a leader that its successor does not have; nil if it has not looked since it led.
	Left *Left `json:"left,omitempty"`
	// Waits is what keeps this member from having a leader, or from being one; nil while somebody acts as leader.
	Waits *Wait `json:"waits,omitempty"`
	// Problem says what is wrong, in a line, and Reason in a word; empty if nothing is.
	Problem string `json:"problem,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Wait is what a member waits for while nobody leads, in a word and in words that do not change with each look.
type Wait struct {
	For  string `json:"for"`
	Text string `json:"text"`
}

// Hold is a reason for a replica not to apply what it received, which is no fault of its own: a query that needs what would go.
type Hold struct {
	// Why in words that do not change with each look.
	Why string `json:"why"`
	// Most is how many milliseconds it may last by what is configured; negative is for ever.
	Most int64 `json:"most"`
}

// Exchange of an agent's program under a running server.
type Exchange struct {
	// Digest and Version of the program that was sent.
	Digest  string `json:"digest"`
	Version string `json:"version"`
	// Failed is true once it was given up; Message says what it waits for, or why.
	Failed  bool   `json:"failed,omitempty"`
	Message string `json:"message,omitempty"`
}

// VolumeUse in bytes.
type VolumeUse struct {
	Size int64 `json:"size"`
	Used int64 `json:"used"`
}

// Slot of replication and the log that it keeps, in bytes.
type Slot struct {
	Name     string `json:"name"`
	Active   bool   `json:"active"`
	Retained int64  `json:"retained"`
}

// Answer to a request by its id: State is Running, Done, Failed or Expired.
type Answer struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// Left is what an old leader took that its successor does not have, found out when it came back.
type Left struct {
	// Timeline that it led on.
	Timeline uint64 `json:"timeline,omitempty"`
	// Known is false if it could not be found out: the data is gone or damaged.
	Known bool `json:"known"`
	// Bytes of its log from where its successor began to the end of the last commit in it, and the Commits among them.
	Bytes   int64 `json:"bytes"`
	Commits int64 `json:"commits"`
}

// Raise is a new epoch of a leader that went on leading, why it took it, and when, in Unix milliseconds.
type Raise struct {
	Epoch int64  `json:"epoch"`
	Why   string `json:"why"`
	At    int64  `json:"at"`
}

// HandOver is a change of hands, its cause and its times in Unix milliseconds; zero where a step did not occur.
type HandOver struct {
	Epoch int64  `json:"epoch"`
	From  string `json:"from,omitempty"`
	Cause string `json:"cause"`
	// Why the old leader ended, in words.
	Why string `json:"why,omitempty"`
	// Waited is what the winner waited for meanwhile, and for how long, in words; empty for nothing to speak of.
	Waited string `json:"waited,omitempty"`
	// Seen is the last word of the old leader. It Released when it said that it had ended; else its grant Expired.
	Seen     int64 `json:"seen"`
	Released int64 `json:"released"`
	Expired  int64 `json:"expired,omitempty"`
	Elected  int64 `json:"elected"`
	Promoted int64 `json:"promoted"`
	Routed   int64 `json:"routed"`
	// Synchronous mode that the new leader knew.
	Synchronous string `json:"synchronous,omitempty"`
	// Ahead is by how many bytes the old leader's log was longer than the new one's when it was last heard, Quiet milliseconds before the
	// election; negative if it was not heard.
	Ahead int64 `json:"ahead"`
	Quiet int64 `json:"quiet,omitempty"`
}
