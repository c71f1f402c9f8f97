package certificate

import (
	"crypto/x509"
	"net"
	"slices"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Leaf is a request for a leaf. Make it with ServerLeaf, MemberLeaf or ManagerLeaf.
type Leaf struct {
	// CommonName and Organization of the subject: who it is, and the UID of the Database.
	CommonName, Organization string
	// DNSNames and Loopback that it serves.
	DNSNames []string
	Loopback bool
	// Server and Client uses.
	Server, Client bool
}

// ServerLeaf is the server's certificate for clients. It covers each Service and each member, by every name that a resolver in
// the cluster would find.
func ServerLeaf(uid, namespace, database string) Leaf {
	names := []string{}
	for _, service := range []string{database + "-rw", database + "-ro", database + "-r", "*." + database + "-members"} {
		names = append(names,
			service, service+"."+namespace, service+"."+namespace+".svc", service+"."+namespace+".svc.cluster.local")
	}
	return Leaf{
		CommonName: database + "-rw", Organization: uid,
		DNSNames: append(names, "localhost"), Loopback: true, Server: true,
	}
}

// MemberLeaf is that by which an instance is known to the other members and to the manager.
func MemberLeaf(uid, namespace, database, instance string) Leaf {
	return Leaf{
		CommonName: engine.MemberCommonName + instance, Organization: uid,
		DNSNames: []string{instance + "." + database + "-members." + namespace + ".svc", instance},
		Server:   true, Client: true,
	}
}

// ManagerLeaf is the manager's client certificate.
func ManagerLeaf(uid string) Leaf {
	return Leaf{CommonName: engine.ManagerCommonName, Organization: uid, Client: true}
}

func (l Leaf) addresses() []net.IP {
	if !l.Loopback {
		return nil
	}
	return []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}
}

func (l Leaf) uses() []x509.ExtKeyUsage {
	var uses []x509.ExtKeyUsage
	if l.Server {
		uses = append(uses, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		uses = append(uses, x509.ExtKeyUsageClientAuth)
	}
	return uses
}

// describes says whether a certificate is what the request asks for.
func (l Leaf) describes(c *x509.Certificate) bool {
	return c.Subject.CommonName == l.CommonName &&
		slices.Equal(c.Subject.Organization, []string{l.Organization}) &&
		slices.Equal(c.DNSNames, l.DNSNames) &&
		slices.EqualFunc(c.IPAddresses, l.addresses(), net.IP.Equal) &&
		slices.Equal(c.ExtKeyUsage, l.uses())
}
