package observed

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bin is where Debian 12 has the programs of the server that is measured.
const Bin = "/usr/lib/postgresql/15/bin/"

// Server is a real PostgreSQL with TLS, whose superuser postgres needs no password.
type Server struct {
	Dir  string // of its socket
	Port int    // on 127.0.0.1
}

// Start runs a server in a cgroup until the test ends; settings are its parameters, each as name=value.
func Start(t *testing.T, group *os.File, settings ...string) *Server {
	t.Helper()
	NeedsServer(t)
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "plimsoll-measured-") // t.TempDir is not readable to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	as := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	prepare(t, as, dir, Bin+"initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
	certificate(t, dir+"/data", int(uid), int(gid))

	var log bytes.Buffer
	s := &Server{Dir: dir, Port: freePort(t)} // last of all, so that nobody else takes it meanwhile
	args := []string{"-D", dir + "/data", "-k", dir, "-p", strconv.Itoa(s.Port)}
	for _, setting := range append([]string{
		"listen_addresses=127.0.0.1", "ssl=on", "fsync=off", "autovacuum=off", "log_min_messages=fatal", "log_min_error_statement=panic",
	}, settings...) {
		args = append(args, "-c", setting)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), Bin+"postgres", args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &log, &log, dir
	cmd.Env = []string{"LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGQUIT}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it says how it ended in its log
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
		if t.Failed() {
			t.Logf("the server's log:\n%s", &log)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); exec.CommandContext(t.Context(), Bin+"pg_isready", "-q", "-h", dir, "-p", strconv.Itoa(s.Port)).Run() != nil; {
		select {
		case <-ended:
			t.Fatalf("the server ended: %s", &log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not answer")
		}
	}
	return s
}

func prepare(t *testing.T, as *syscall.Credential, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env, cmd.Dir = []string{"LC_ALL=C"}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// Local is a connection by a socket of the file system, in place of a mode of TLS.
const Local = "local"

// URL of a connection to a database of this server.
func (s *Server) URL(sslmode, database string) string {
	if sslmode == Local {
		return fmt.Sprintf("postgres:///%s?host=%s&port=%d&user=postgres", database, s.Dir, s.Port)
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=%s", s.Port, database, sslmode)
}

// Psql runs a script and gives back what it said, errors too.
func (s *Server) Psql(t *testing.T, sslmode string, statements ...string) string {
	t.Helper()
	args := []string{"-X", "-A", "-t", "-q", s.URL(sslmode, "postgres")}
	for _, statement := range statements {
		args = append(args, "-c", statement)
	}
	cmd := exec.CommandContext(t.Context(), Bin+"psql", args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("psql: %v", err)
	}
	return string(out)
}

// Pgbench runs pgbench against a database.
func (s *Server) Pgbench(t *testing.T, sslmode, database string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Bin+"pgbench", append(args, s.URL(sslmode, database))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pgbench %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// certificate gives the server a certificate that nobody checks.
func certificate(t *testing.T, dir string, uid, gid int) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "measured"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}
