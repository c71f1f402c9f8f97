package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres/driver"
	"github.com/plimsoll-dev/plimsoll-operator/tests/authority"
)

// envPod makes the test binary play one pod: it names a file with a pod value. envStage tells root's part from the user's.
const (
	envPod   = "PLIMSOLL_TEST_POD"
	envStage = "PLIMSOLL_TEST_STAGE"
)

// pod is what the kubelet would give a pod: identity, directories, addresses.
type pod struct {
	Agent    agent.Config
	Data     string
	WAL      string
	Run      string
	Address  string
	Port     int
	API      string
	UID, GID int
	// Witness makes it one that holds no data.
	Witness bool
	// Preload is a library that slows the servers' disk; empty for none.
	Preload string
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == agent.CheckCommand { // of the program that one of these pods is to become
		os.Exit(dispatch(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	path := os.Getenv(envPod)
	if path == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := playPod(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playPod sets up what a container runtime does, then is the agent: PID 1, not root.
func playPod(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if os.Getenv(envStage) == "real" {
		return playReal(raw)
	}
	var p pod
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if os.Getenv(envStage) == "" {
		return becomeUser(p)
	}
	if err := endWithTest(); err != nil {
		return err
	}
	if version != "dev" {
		p.Agent.Version = version // of a second build
	}
	api := kube.New(p.API, http.DefaultClient, func() (string, error) { return "token", nil }, "test")
	store := lease.NewKubeStore(api, p.Agent.Namespace, p.Agent.Database, p.Agent.Database+"-rw", lease.Endpoint{Address: p.Address, Pod: p.Agent.Instance})
	if p.Witness {
		return vote(p.Agent, readOnly{store}, os.Stdout)
	}
	return serve(options{agent: p.Agent, store: store, out: os.Stdout, driver: driver.Config{
		DataDir: p.Data, WALDir: p.WAL, RunDir: p.Run, MemberTLSDir: p.Agent.MemberTLSDir, ServerTLSDir: p.Agent.ServerTLSDir, Listen: p.Address, Port: p.Port,
	}})
}

// endWithTest is forgotten at a change of user: a test that ends badly must not leave pods behind.
func endWithTest() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the test: %w", err)
	}
	return nil
}

func becomeUser(p pod) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to this pod: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(p.GID), syscall.Setuid(p.UID)); err != nil {
		return fmt.Errorf("give up root: %w", err)
	}
	env := []string{envPod + "=" + os.Getenv(envPod), envStage + "=user", "PATH=/usr/bin:/bin"}
	if p.Preload != "" {
		env = append(env, "LD_PRELOAD="+p.Preload)
	}
	return syscall.Exec("/proc/self/exe", os.Args, env)
}

type memberPod struct {
	db   *database
	name string
	pod  pod
	cmd  *exec.Cmd
	out  *os.File
	done chan error
}

// at is a path of the member's own.
func (m *memberPod) at(name string) string { return filepath.Join(m.db.dir, m.name, name) }

// leaf is the member's own.
func (m *memberPod) leaf(ca *authority.Authority) client.Credentials {
	return ca.Leaf(m.db.t, uid, client.MemberPrefix+m.name, authority.Names(m.name, m.name+".orders-members.shop.svc"), authority.Addresses(m.pod.Address))
}

// start the pod.
func (m *memberPod) start() {
	t := m.db.t
	t.Helper()
	path := filepath.Join(m.db.dir, m.name, "pod.json")
	if err := os.WriteFile(path, must(json.Marshal(m.pod))(t), 0o644); err != nil {
		t.Fatal(err)
	}
	m.out = must(os.OpenFile(filepath.Join(m.db.dir, m.name, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	m.cmd = exec.Command(must(os.Executable())(t))
	m.cmd.Env = []string{envPod + "=" + path}
	m.cmd.Stdout, m.cmd.Stderr = m.out, m.out
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, done := m.cmd, make(chan error, 1)
	m.done = done
	go func() { done <- cmd.Wait() }()
}

// kill the whole pod, as the loss of its node does.
func (m *memberPod) kill() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	<-m.done
	_ = m.out.Close()
	m.cmd = nil
}

// terminate the pod as the kubelet does, and return how it ended.
func (m *memberPod) terminate() error {
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case err = <-m.done:
	case <-time.After(40 * time.Second):
		return errors.New("it did not end in time")
	}
	_ = m.out.Close()
	m.cmd = nil
	return err
}

// server is the host's number of the server process.
func (m *memberPod) server() (int, error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		raw, _ := os.ReadFile(name)
		for _, field := range strings.Fields(string(raw)) {
			comm, _ := os.ReadFile("/proc/" + field + "/comm")
			if strings.TrimSpace(string(comm)) == "postgres" {
				return strconv.Atoi(field)
			}
		}
	}
	return 0, errors.New("there is no server")
}

func (m *memberPod) lastLog(lines int) string {
	raw, _ := os.ReadFile(filepath.Join(m.db.dir, m.name, "log"))
	all := strings.Split(string(raw), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (m *memberPod) peer() engine.Peer { return engine.Peer{Name: m.name, Address: m.pod.Address} }

func (m *memberPod) report() (engine.Report, error) {
	ctx, cancel := context.WithTimeout(m.db.t.Context(), time.Second)
	defer cancel()
	return m.db.manager.Report(ctx, m.peer())
}

// says is the member's report, which may come late on a busy machine.
func (m *memberPod) says(t *testing.T) engine.Report {
	t.Helper()
	var r engine.Report
	m.db.until(m.name+" answers", 10*time.Second, func() (err error) {
		r, err = m.report()
		return err
	})
	return r
}
