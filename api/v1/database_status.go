package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase is a Database's state in one word, for people. Programs read the conditions.
type Phase string

const (
	// PhasePending has not begun: something that it needs is missing.
	PhasePending Phase = "Pending"
	// PhaseCreating makes the first instance or clones the replicas of a new Database.
	PhaseCreating Phase = "Creating"
	// PhaseRunning has every instance that was asked for, ready.
	PhaseRunning Phase = "Running"
	// PhaseChanging serves while instances are added, removed, restarted or replaced, or get new certificates.
	PhaseChanging Phase = "Changing"
	// PhaseDegraded serves with fewer instances than asked for, or the operator does not hear its leader.
	PhaseDegraded Phase = "Degraded"
	// PhaseDown has no primary that takes writes.
	PhaseDown Phase = "Down"
	// PhaseHibernated is stopped on purpose.
	PhaseHibernated Phase = "Hibernated"
	// PhaseDeleting goes away.
	PhaseDeleting Phase = "Deleting"
)

// Role of an instance.
type Role string

const (
	// RolePrimary takes writes.
	RolePrimary Role = "primary"
	// RoleReplica follows the primary.
	RoleReplica Role = "replica"
	// RoleUnknown is an instance that does not say.
	RoleUnknown Role = "unknown"
)

// InstanceStatus is one instance.
type InstanceStatus struct {
	// Name of the instance, its pod and its data volume.
	Name string `json:"name"`

	// Role that it plays.
	// +optional
	Role Role `json:"role,omitempty"`

	// State of its server in a word: initialising, cloning, rewinding, starting, running, stopped, fenced, failed or silent.
	// +optional
	State string `json:"state,omitempty"`

	// Ready to serve.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// Voter counts in majorities.
	// +optional
	Voter bool `json:"voter,omitempty"`

	// Node that its pod runs on.
	// +optional
	Node string `json:"node,omitempty"`

	// Zone of that node.
	// +optional
	Zone string `json:"zone,omitempty"`

	// Version of its server.
	// +optional
	Version string `json:"version,omitempty"`

	// Position in the log that it has durably received, as the engine writes it. Up to 16 MiB of writes alone do not change it: the
	// metrics follow at once.
	// +optional
	Position string `json:"position,omitempty"`

	// LastPosition is the last Position that was told while the instance tells none now: it is silent, or has lost its data.
	// +optional
	LastPosition string `json:"lastPosition,omitempty"`

	// LagBytes behind the leader. Absent if unknown.
	// +optional
	LagBytes *int64 `json:"lagBytes,omitempty"`

	// RestartPending is set while a changed parameter waits for a restart.
	// +optional
	RestartPending bool `json:"restartPending,omitempty"`

	// MemoryKills counts the processes of its server that the kernel killed since its container started, because the container's memory was at
	// its limit. The server goes on without them, after all its sessions were ended.
	// +optional
	MemoryKills int64 `json:"memoryKills,omitempty"`

	// OutOfMemoryAt is when the kernel last ended its whole container for that.
	// +optional
	OutOfMemoryAt *metav1.Time `json:"outOfMemoryAt,omitempty"`

	// Reason is what is wrong, or what it waits for while nobody leads, in a word: StandsStill is a replica that applies nothing although its
	// leader's log goes on, ReplayHeld one that a query on it keeps from that, APIServerAway one that cannot be elected without the API server.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message says what is wrong and what to do next.
	// +optional
	Message string `json:"message,omitempty"`
}

// WitnessStatus is the third voter of a Database of two instances.
type WitnessStatus struct {
	// Name of its pod.
	Name string `json:"name"`

	// Node that it runs on.
	// +optional
	Node string `json:"node,omitempty"`

	// Voter counts in majorities.
	// +optional
	Voter bool `json:"voter,omitempty"`

	// Message says what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
}

// CertificateStatus is one certificate and its end.
type CertificateStatus struct {
	// Name of the certificate: ca, server, or replication (the members' own, of which the first to end counts).
	Name string `json:"name"`

	// NotAfter is when it ends.
	NotAfter metav1.Time `json:"notAfter"`
}

// EffectiveSpec is what holds where the spec leaves a choice.
type EffectiveSpec struct {
	// Image that the instances run.
	// +optional
	Image string `json:"image,omitempty"`

	// Synchronous mode.
	// +optional
	Synchronous SynchronousMode `json:"synchronous,omitempty"`

	// StorageSize of the data volumes, growth included.
	// +optional
	StorageSize *resource.Quantity `json:"storageSize,omitempty"`

	// RunAsUser of the pods; absent where the platform chooses.
	// +optional
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// Parameters of the server that Plimsoll sets by itself: defaults, which spec.parameters may change, and those that it manages.
	// What only a pod knows (paths, certificates, whom it follows) is not among them.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
}

// RequestState is how far a request is.
type RequestState string

const (
	// RequestRunning is being carried out.
	RequestRunning RequestState = "Running"
	// RequestDone was carried out.
	RequestDone RequestState = "Done"
	// RequestFailed was not, and will not be.
	RequestFailed RequestState = "Failed"
	// RequestExpired was not carried out in time.
	RequestExpired RequestState = "Expired"
)

// RequestStatus answers one request.
type RequestStatus struct {
	// ID of the request.
	ID string `json:"id"`

	// Kind of the request: switchover, restart, rotate or recover.
	Kind string `json:"kind"`

	// Target instance, if one was named.
	// +optional
	Target string `json:"target,omitempty"`

	// State of the request.
	State RequestState `json:"state"`

	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`

	// StartedAt is when the operator took it up, by the operator's clock as FinishedAt is.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// FinishedAt is when it ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// HandOver is one change of the leader.
type HandOver struct {
	// Epoch that it began.
	Epoch int64 `json:"epoch"`

	// From is the old leader; empty for the first.
	// +optional
	From string `json:"from,omitempty"`

	// To is the new leader.
	To string `json:"to"`

	// Cause in a word: bootstrap, switchover, failover, resume (the same leader came back), raise (the same leader went on
	// without a break, under a new epoch: the Lease had been deleted or restored from a backup, or a member knew of a later epoch), or recover
	// (a majority was lost for good, and a person accepted that what the new leader lacks is lost).
	Cause string `json:"cause"`

	// At is when the new leader began to take writes.
	At metav1.Time `json:"at"`

	// DurationMillis from the loss of the old leader (or the request) to the new one's first write.
	// +optional
	DurationMillis int64 `json:"durationMillis,omitempty"`

	// Why the old leader ended, in the words of whoever noticed; empty for the first.
	// +optional
	Why string `json:"why,omitempty"`

	// Waited is what the new leader waited for before it was elected, and for how long, such as `14.2 s for the API server`; empty for
	// nothing to speak of.
	// +optional
	Waited string `json:"waited,omitempty"`

	// LostBytes is how much log with acknowledged writes the old leader had that the new one does not have: from where the new one began to
	// the end of the last commit. 0 is nothing. Absent while that is not known: the old leader must come back for it to be found out.
	// +optional
	LostBytes *int64 `json:"lostBytes,omitempty"`

	// Loss says the same in words, and while it is not known what is.
	// +optional
	Loss string `json:"loss,omitempty"`

	// Steps of the change, in the order of time.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Steps []HandOverStep `json:"steps,omitempty"`
}

// HandOverStep is a moment of a change of the leader.
type HandOverStep struct {
	// Name in a word: seen (the last word of the old leader), released (it said that it had ended), expired (it did not, and its time ran
	// out), elected, promoted, or routed (clients are sent to the new one).
	Name string `json:"name"`

	// AfterMillis is how long after the first step it was.
	AfterMillis int64 `json:"afterMillis"`
}
