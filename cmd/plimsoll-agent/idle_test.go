package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/kube"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

const (
	envRuns = "PLIMSOLL_BENCH_RUNS"
	// envIdle names the directory of the idle Database, in the network namespace that holds its pods' bridge.
	envIdle = "PLIMSOLL_TEST_IDLE"
	// idleFor is how long the Database is left alone before its agents are looked at, and idleEvery the pause between looks.
	idleFor, idleEvery = 30 * time.Second, 5 * time.Second
	idleTarget         = 25.0
)

// TestBenchIdle measures what the agents of a running, idle Database hold in memory: the binary that ships, PID 1 of containers
// with a root, a network and a user of their own, watched by a manager and asked by a kubelet.
func TestBenchIdle(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(envRuns))
	if err != nil {
		t.Skip("a benchmark: set " + envRuns)
	}
	if os.Getenv(envIdle) != "" {
		measureIdle(t, os.Getenv(envIdle), runs)
		return
	}
	dir := must(os.MkdirTemp("/tmp", "pidle"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, binaryName), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	self := exec.CommandContext(t.Context(), must(os.Executable())(t), "-test.run=^TestBenchIdle$", "-test.v", "-test.timeout=5m")
	self.Env = append(os.Environ(), envIdle+"="+dir)
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := self.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	var raw []float64
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "raw.json")))(t), &raw); err != nil {
		t.Fatal(err)
	}
	commit := must(exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output())(t)
	target := idleTarget
	figure := bench.Figure{
		Name: "agent/idle-rss", Unit: "MB", Better: "lower", Raw: raw, Target: &target,
		Commit: strings.TrimSpace(string(commit)), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.GOARCH),
		Note: "VmRSS of the agent as PID 1 (built without C, stripped) in each pod of a running three-member PostgreSQL Database that " +
			"nobody has used for 30 s, with the manager's watch and the kubelet's probes, every 5 s",
	}
	if err := bench.Record("../../docs/benchmarks", figure); err != nil {
		t.Fatal(err)
	}
	if worst := slices.Max(raw); worst > idleTarget {
		t.Errorf("an idle agent holds %.1f MB, want %.0f or less", worst, idleTarget)
	}
}

// measureIdle runs the Database on a bridge of this namespace.
func measureIdle(t *testing.T, dir string, runs int) {
	const network = "10.77.0"
	do(t, "ip", "link", "set", "lo", "up")
	do(t, "ip", "link", "add", "br0", "type", "bridge")
	do(t, "ip", "address", "add", network+".254/24", "dev", "br0")
	do(t, "ip", "link", "set", "br0", "up")

	d := emptyDatabase(t, dir, network)
	d.port, d.agentPort, d.healthPort = 5432, engine.AgentPort, engine.HealthPort
	d.api = newTLSAPI(t, "orders-1", network+".254", d.ca)
	d.manage()
	for i := range 3 {
		d.add(i).startReal(t, filepath.Join(dir, binaryName))
	}
	d.until("all three are whole", 90*time.Second, d.whole)
	d.attend(t)
	time.Sleep(idleFor)
	var raw []float64
	for range runs {
		for _, m := range d.members {
			raw = append(raw, m.resident(t))
		}
		time.Sleep(idleEvery)
	}
	if err := d.whole(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "raw.json"), must(json.Marshal(raw))(t), 0o644); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// attend watches the members' reports as the manager does, and asks for their health as the kubelet does.
func (d *database) attend(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		for range 2 * len(d.members) {
			<-done
		}
	})
	for _, m := range d.members {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_ = d.manager.WatchReports(ctx, m.peer(), func(engine.Report) {}) // it dials again
			}
		}()
		go func() {
			defer func() { done <- struct{}{} }()
			probe := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for ctx.Err() == nil {
				for _, path := range []string{"livez", "readyz"} {
					if r, err := probe.Get(fmt.Sprintf("http://%s:%d/%s", m.pod.Address, engine.HealthPort, path)); err == nil {
						_ = r.Body.Close()
					}
				}
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Second):
				}
			}
		}()
	}
}

// resident is what the agent holds now, in MB.
func (m *memberPod) resident(t *testing.T) float64 {
	t.Helper()
	raw := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid)))(t)
	rss := 0.0
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "Name" && strings.TrimSpace(value) != binaryName {
			t.Fatalf("process 1 of %s is %s", m.name, strings.TrimSpace(value))
		}
		if strings.HasPrefix(name, "Rss") || name == "VmRSS" {
			t.Logf("%s: %s %s", m.name, name, strings.TrimSpace(value))
		}
		if name == "VmRSS" {
			rss = math.Round(float64(must(strconv.Atoi(strings.Fields(value)[0]))(t))*1.024) / 1000
		}
	}
	return rss
}

// realPod is what playReal needs to know.
type realPod struct {
	Root, Binary, Member, Server, Data, Account string
	UID, GID                                    int
	Env                                         []string
}

// startReal starts the binary as a container runtime does: it waits for its network, then begins.
func (m *memberPod) startReal(t *testing.T, binary string) {
	t.Helper()
	d := m.db
	at := m.at
	account := at("account")
	for _, dir := range []string{account, at("root")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"ca.crt": string(d.ca.PEM), "token": "token"} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(d.api.URL, "https://"), ":")
	real := realPod{
		Root: at("root"), Binary: binary, Member: at("member"), Server: at("server"), Data: at("data"), Account: account, UID: m.pod.UID, GID: m.pod.GID,
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
			engine.EnvNamespace + "=shop", engine.EnvDatabase + "=orders", engine.EnvUID + "=" + uid, engine.EnvInstance + "=" + m.name,
			engine.EnvEngine + "=postgres", engine.EnvAddress + "=" + m.pod.Address, engine.EnvNode + "=node-1",
		},
	}
	path := at("real.json")
	if err := os.WriteFile(path, must(json.Marshal(real))(t), 0o644); err != nil {
		t.Fatal(err)
	}
	ready, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.out = must(os.OpenFile(at("log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	m.cmd = exec.Command(must(os.Executable())(t))
	m.cmd.Env = []string{envPod + "=" + path, envStage + "=real"}
	m.cmd.Stdout, m.cmd.Stderr, m.cmd.Stdin = m.out, m.out, ready
	m.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL,
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = ready.Close()
	cmd, done := m.cmd, make(chan error, 1)
	m.done = done
	go func() { done <- cmd.Wait() }()
	pid, link := strconv.Itoa(m.cmd.Process.Pid), "v"+m.name
	do(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid)
	do(t, "ip", "link", "set", link, "master", "br0", "up")
	do(t, "nsenter", "-t", pid, "-n", "ip", "link", "set", "lo", "up")
	do(t, "nsenter", "-t", pid, "-n", "ip", "address", "add", m.pod.Address+"/24", "dev", "eth0")
	do(t, "nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "up")
	_ = hold.Close()
}

// playReal makes the container's root and becomes the agent in it.
func playReal(raw []byte) error {
	var p realPod
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if _, err := io.ReadAll(os.Stdin); err != nil { // until there is a network
		return err
	}
	var failed error
	try := func(err error) { failed = errors.Join(failed, err) }
	in := func(s string) string { return filepath.Join(p.Root, s) }
	mount := func(what, where, kind string, flags uintptr) {
		try(os.MkdirAll(in(where), 0o755))
		if err := syscall.Mount(what, in(where), kind, flags, ""); err != nil {
			try(fmt.Errorf("mount %s: %w", where, err))
		}
	}
	try(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	mount("tmpfs", "/", "tmpfs", 0)
	mount("/usr", "/usr", "", syscall.MS_BIND)
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		try(os.Symlink("usr/"+dir, in(dir)))
	}
	mount("proc", "/proc", "proc", 0)
	mount("/dev", "/dev", "", syscall.MS_BIND)
	mount("tmpfs", "/dev/shm", "tmpfs", 0)
	for _, dir := range []string{"/tmp", engine.RunDir} {
		mount("tmpfs", dir, "tmpfs", 0)
		try(os.Chown(in(dir), p.UID, p.GID))
	}
	mount(p.Data, engine.DataDir, "", syscall.MS_BIND)
	mount(p.Member, engine.MemberTLSDir, "", syscall.MS_BIND)
	mount(p.Server, engine.ServerTLSDir, "", syscall.MS_BIND)
	mount(p.Account, kube.ServiceAccount, "", syscall.MS_BIND)
	try(os.MkdirAll(in(engine.BinDir), 0o755))
	try(os.MkdirAll(in("/etc"), 0o755))
	if failed != nil {
		return failed
	}
	agent := filepath.Join(engine.BinDir, binaryName)
	try(copyVerified(p.Binary, in(agent)))
	try(os.WriteFile(in("/etc/passwd"), []byte(passwd(p.UID, p.GID)), 0o644))
	try(os.WriteFile(in("/etc/group"), []byte(group(p.GID)), 0o644))
	try(syscall.Mount("", p.Root, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	try(syscall.Chroot(p.Root))
	try(os.Chdir("/"))
	try(errors.Join(syscall.Setgroups(nil), syscall.Setgid(p.GID), syscall.Setuid(p.UID)))
	try(endWithTest())
	if failed != nil {
		return failed
	}
	return syscall.Exec(agent, []string{agent, "run"}, p.Env)
}
