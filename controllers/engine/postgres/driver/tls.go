package driver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// Names in the driver's own directory of certificates, which is in memory: mounted keys have modes and owners that neither the
// server nor libpq takes from everybody, and a mounted pair may change between the reading of its halves.
const (
	serverCert = "server.crt"
	serverKey  = "server.key"
	clientCA   = "client-ca.crt" // who may log in by certificate: members
	memberCert = "member.crt"
	memberKey  = "member.key"
	rootCA     = "root.crt" // whom a replica believes to be a server
)

// mounted reads files of one Secret volume as they were at one moment: kubelet swaps them by one symbolic link.
func mounted(dir string, names ...string) (map[string][]byte, error) {
	at := dir
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		at = real
	}
	all := map[string][]byte{}
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(at, name))
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		all[name] = raw
	}
	return all, nil
}

// installTLS copies the certificates for the server and says whether they changed. A pair that does not fit is not installed.
func (d *Driver) installTLS() (bool, error) {
	member, err := mounted(d.cfg.MemberTLSDir, "ca.crt", "tls.crt", "tls.key")
	if err != nil {
		return false, err
	}
	server, err := mounted(d.cfg.ServerTLSDir, "ca.crt", "tls.crt", "tls.key")
	if err != nil {
		return false, err
	}
	for what, pair := range map[string]map[string][]byte{"member": member, "server": server} {
		if _, err := tls.X509KeyPair(pair["tls.crt"], pair["tls.key"]); err != nil {
			return false, &Problem{Reason: "Certificate", Message: fmt.Sprintf("the %s certificate and its key do not fit: %v", what, err)}
		}
	}
	if err := d.mkdir(d.tlsDir()); err != nil {
		return false, err
	}
	roots := append(append(bytes.Clone(member["ca.crt"]), '\n'), server["ca.crt"]...)
	changed := false
	for _, f := range []struct {
		name string
		raw  []byte
	}{
		{clientCA, member["ca.crt"]},
		{rootCA, roots},
		{memberCert, member["tls.crt"]},
		{memberKey, member["tls.key"]},
		{serverCert, server["tls.crt"]},
		{serverKey, server["tls.key"]},
	} {
		wrote, err := d.update(filepath.Join(d.tlsDir(), f.name), f.raw)
		if err != nil {
			return changed, err
		}
		changed = changed || wrote
	}
	return changed, nil
}

// nameIsServed tells whether the certificate that all members serve holds the upstream's name. One that a user brings may hold
// only the Services' names; it is still checked against the authorities then, and the member proves itself by its own
// certificate in any case.
func (d *Driver) nameIsServed(host string) bool {
	raw, err := os.ReadFile(filepath.Join(d.tlsDir(), serverCert))
	if err != nil {
		return true // the strict way is the safe reading
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return true
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	return err != nil || leaf.VerifyHostname(host) == nil
}

// conninfo is how this member reaches its upstream through libpq.
// locateTimeout bounds the search for the upstream's address.
const locateTimeout = time.Second

// locate finds the address of the upstream. The receiver would look it up itself, and cannot be ended while it waits for DNS: others wait
// for that end before they elect. Without an answer the address from before holds, and without one the name alone.
func (d *Driver) locate(ctx context.Context, host string) {
	if host == "" || net.ParseIP(host) != nil {
		return
	}
	ctx, done := context.WithTimeout(ctx, locateTimeout)
	defer done()
	found, err := d.cfg.Lookup(ctx, host)
	if err != nil || len(found) == 0 {
		return
	}
	if d.located[host] != found[0] {
		d.located = map[string]string{host: found[0]} // there is one upstream
	}
}

func (d *Driver) conninfo(host, application, database string) string {
	mode := "verify-full"
	if !d.nameIsServed(host) {
		mode = "verify-ca"
	}
	pairs := [][2]string{
		{"host", host},
		{"hostaddr", d.located[host]},
		{"port", fmt.Sprint(d.cfg.Port)},
		{"user", postgres.ReplicationUser},
		{"dbname", database},
		{"application_name", application},
		{"sslmode", mode},
		{"sslrootcert", filepath.Join(d.tlsDir(), rootCA)},
		{"sslcert", filepath.Join(d.tlsDir(), memberCert)},
		{"sslkey", filepath.Join(d.tlsDir(), memberKey)},
		{"gssencmode", "disable"},
		{"connect_timeout", "5"},
		{"keepalives_idle", "5"},
		{"keepalives_interval", "2"},
		{"keepalives_count", "3"},
		{"tcp_user_timeout", "5000"},
	}
	var b strings.Builder
	for _, p := range pairs {
		if p[1] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s='%s'", p[0], strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(p[1]))
	}
	return b.String()
}

// clientTLS is the same for connections that the driver makes itself.
func (d *Driver) clientTLS(host string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(d.tlsDir(), memberCert), filepath.Join(d.tlsDir(), memberKey))
	if err != nil {
		return nil, fmt.Errorf("load this member's certificate: %w", err)
	}
	raw, err := os.ReadFile(filepath.Join(d.tlsDir(), rootCA))
	if err != nil {
		return nil, fmt.Errorf("load the certificate authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(raw) {
		return nil, errors.New("load the certificate authorities: no certificate in ca.crt")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: host}
	if d.nameIsServed(host) {
		return cfg, nil
	}
	cfg.InsecureSkipVerify = true // names only: the chain is verified below, as sslmode=verify-ca does
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
		return err
	}
	return cfg, nil
}

// upstreamApplication is the name under which a member follows, and by which it counts for synchronous commits.
func upstreamApplication(r engine.Role) string { return r.Member }
