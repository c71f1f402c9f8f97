package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// The layout of a database pod: what the manager mounts and the agent finds. Every path is inside the container.
const (
	// BinDir holds the agent's binary, copied by the init container.
	BinDir = "/opt/plimsoll/bin"
	// EtcDir holds the passwd and group files that the init container writes.
	EtcDir = "/opt/plimsoll/etc"
	// RunDir is a memory-backed volume for sockets and temporary files.
	RunDir = "/run/plimsoll"
	// DataDir is the data volume; the engine's directory is below it, beside the agent's.
	DataDir = "/var/lib/plimsoll/data"
	// WALDir is the volume of the write-ahead log, where there is one.
	WALDir = "/var/lib/plimsoll/wal"
	// StateDir is the agent's own directory on the data volume.
	StateDir = DataDir + "/plimsoll"
	// WitnessDir is where a witness keeps its promise.
	WitnessDir = "/var/lib/plimsoll/witness"
	// MemberTLSDir holds ca.crt, tls.crt and tls.key by which members and the manager know each other (always Plimsoll's own CA).
	MemberTLSDir = "/etc/plimsoll/member"
	// ServerTLSDir holds tls.crt, tls.key and ca.crt of the server for its clients.
	ServerTLSDir = "/etc/plimsoll/server"

	// AgentPort serves members and the manager by mTLS.
	AgentPort = 7470
	// HealthPort answers the kubelet's probes in plain HTTP: /livez, /readyz, /startupz.
	HealthPort = 7471
)

// A pod's end.
const (
	// TerminationGrace is how long a pod may take to hand over and to stop its server. An agent ends as soon as it is done; the
	// bound is for one that hangs, and after it the server recovers from its log as after a crash.
	TerminationGrace = 120 * time.Second
	// TerminationReserve is the part of it that is left for the agent to kill what does not stop and to end by itself.
	TerminationReserve = 10 * time.Second
	// WitnessGrace is how long a witness may go on voting until another has taken its place, with the time to end by itself.
	WitnessGrace   = 30 * time.Second
	WitnessReserve = 5 * time.Second
)

// Environment of the agent's container.
const (
	// EnvNamespace, EnvDatabase, EnvUID, EnvInstance and EnvEngine say whom the agent serves.
	EnvNamespace = "PLIMSOLL_NAMESPACE"
	EnvDatabase  = "PLIMSOLL_DATABASE"
	EnvUID       = "PLIMSOLL_UID"
	EnvInstance  = "PLIMSOLL_INSTANCE"
	EnvEngine    = "PLIMSOLL_ENGINE"
	// EnvAddress and EnvNode are the pod's IP and its node, from the downward API: the leader writes them into the EndpointSlice.
	EnvAddress = "PLIMSOLL_POD_IP"
	EnvNode    = "PLIMSOLL_NODE"
)

// TLSFiles are the public files of one of MemberTLSDir and ServerTLSDir.
type TLSFiles struct {
	// Certificate is tls.crt and Trusted is ca.crt.
	Certificate, Trusted []byte
}

// SecretsHash is what Report.SecretsHash holds: a hash of the certificates in use. The manager compares it with that of the
// Secrets that it wrote, to know when an instance has taken them.
func SecretsHash(member, server TLSFiles) string {
	sum := sha256.New()
	for _, content := range [][]byte{member.Certificate, member.Trusted, server.Certificate, server.Trusted} {
		// The length goes first, so that no byte can move from one file to the next unseen.
		_ = binary.Write(sum, binary.BigEndian, uint64(len(content))) // a hash never fails to write
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
