package desired

import "strconv"

// MaxNameLength is the longest name of a Database, as the CustomResourceDefinition holds. The tightest of the names derived from
// it is the common name of a member's certificate, "plimsoll-member:<name>-<ordinal>": X.509 allows 64 characters, so there is
// room for any ordinal of seven digits. Service names, host names and values of labels may have 63.
const MaxNameLength = 40

// InstanceName is the name of an instance, its pod and its data claim.
func InstanceName(database string, ordinal int32) string {
	return database + "-" + strconv.Itoa(int(ordinal))
}

// WitnessName is the name of a witness and its pod: shorter than an instance's may be, and never one.
func WitnessName(database string, number int32) string {
	return database + "-w" + strconv.Itoa(int(number))
}

// WALClaimName is the name of an instance's claim for its write-ahead log.
func WALClaimName(instance string) string { return instance + "-wal" }

// MemberName is the name of the Secret with an instance's certificate.
func MemberName(instance string) string { return instance + "-member" }

// Address is where the other members and the manager reach an instance: a DNS name without port.
func Address(namespace, database, instance string) string {
	return instance + "." + MembersServiceName(database) + "." + namespace + ".svc"
}

// WriteHost is the DNS name of the Service for writes.
func WriteHost(namespace, database string) string {
	return WriteServiceName(database) + "." + namespace + ".svc"
}

// WriteServiceName is the name of the Service for writes.
func WriteServiceName(database string) string { return database + "-rw" }

// ReplicaServiceName is the name of the Service for reads from replicas.
func ReplicaServiceName(database string) string { return database + "-ro" }

// ReadServiceName is the name of the Service for reads from any instance.
func ReadServiceName(database string) string { return database + "-r" }

// MembersServiceName is the name of the headless Service of the members.
func MembersServiceName(database string) string { return database + "-members" }

// EndpointSliceName is the name of the EndpointSlice that the leader's agent fills.
func EndpointSliceName(database string) string { return WriteServiceName(database) }

// LeaseName is the name of the Lease with the record of the leadership.
func LeaseName(database string) string { return database }

// AgentName is the name of the agents' ServiceAccount, Role and RoleBinding.
func AgentName(database string) string { return database + "-agent" }

// ConnectionName is the name of the Secret for clients.
func ConnectionName(database string) string { return database + "-app" }

// AuthorityName is the name of the Secret with the certificate authority.
func AuthorityName(database string) string { return database + "-ca" }

// ServerName is the name of the Secret with the server's certificate.
func ServerName(database string) string { return database + "-server" }
