package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// enter is a command in the pod's namespaces as the pod's user, from outside, as kubectl exec has the runtime do it: no child of
// the agent.
func (m *memberPod) enter(args ...string) *exec.Cmd {
	c := exec.Command("nsenter", append([]string{
		"--target", fmt.Sprint(m.cmd.Process.Pid), "--pid", "--mount", "--setuid", fmt.Sprint(m.pod.UID), "--setgid", fmt.Sprint(m.pod.GID), "--wd=/", "--",
	}, args...)...)
	c.Env = []string{"PATH=/usr/bin:/bin", "PGCONNECT_TIMEOUT=5"}
	c.WaitDelay = time.Second // for what holds its output
	return c
}

// inside runs a command in the pod and returns what it said.
func (m *memberPod) inside(args ...string) (string, error) {
	var errs bytes.Buffer
	c := m.enter(args...)
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w: %s", args[0], m.name, err, errs.String())
	}
	return string(out), nil
}

// psql is the program of a superuser in the pod.
func (m *memberPod) psql(args ...string) []string {
	return append([]string{"psql", "-h", m.pod.Run, "-p", fmt.Sprint(m.db.port), "-U", "postgres", "-AtX"}, args...)
}

// ask the member's server, and return its answer without the end of the line.
func (m *memberPod) ask(query string) (string, error) {
	out, err := m.inside(m.psql("-c", query)...)
	return strings.TrimSpace(out), err
}

// sessionsInside restarts servers while people work in their containers. They lose their sessions: a hard stop, which also ends
// what a server left behind, spares nothing in the container. Nobody else notices, and the agent is left with no dead child.
func (d *database) sessionsInside(t *testing.T, _ *writer) {
	_, m := d.roles(t)
	psql := m.enter(m.psql()...)
	typed := must(psql.StdinPipe())(t)
	said := must(psql.StdoutPipe())(t)
	shell := m.enter("sh", "-c", "sleep 600 & sleep 600")
	for _, c := range []*exec.Cmd{psql, shell} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(typed, "SELECT 41 + 1;\n"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 3)
	if _, err := io.ReadFull(said, answer); err != nil || string(answer) != "42\n" {
		t.Fatalf("psql said %q: %v", answer, err)
	}
	// A child whose parent in the session has ended is the agent's to collect.
	if err := m.enter("sh", "-c", "sleep 0.2 & exit 0").Run(); err != nil {
		t.Fatal(err)
	}
	d.until("the orphan is collected", 5*time.Second, m.noneDead)

	old := must(m.server())(t)
	d.change = func(a *engine.Aim) {
		if a.Member == m.name {
			a.Restart = "with-sessions"
		}
	}
	took := d.until("the server has restarted", 20*time.Second, func() error {
		pid, err := m.server()
		if err == nil && pid == old {
			err = errors.New("it has not")
		}
		return err
	})
	t.Logf("restart with sessions inside took %s", took.Round(time.Millisecond))
	if took > 15*time.Second { // a server that would wait for them is killed after twenty
		t.Errorf("it took %s: somebody waited for the sessions", took)
	}
	for name, c := range map[string]*exec.Cmd{"psql": psql, "the shell": shell} {
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		select {
		case err := <-done:
			t.Logf("%s ended: %v", name, err)
		case <-time.After(20 * time.Second):
			_ = c.Process.Kill()
			t.Errorf("%s goes on; a hard stop ends every process of the container", name)
			<-done
		}
	}
	d.until("all three are whole", 30*time.Second, d.whole)
	d.until("no dead child is left", 5*time.Second, m.noneDead)
	if got := must(m.ask("SELECT 1"))(t); got != "1" {
		t.Errorf("a new session says %q", got)
	}
}

// noneDead says that the agent has no child that ended and was not collected.
func (m *memberPod) noneDead() error {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.cmd.Process.Pid))
	if err != nil {
		return err
	}
	for _, name := range names {
		raw, _ := os.ReadFile(name)
		for _, pid := range strings.Fields(string(raw)) {
			status, _ := os.ReadFile("/proc/" + pid + "/status")
			if strings.Contains(string(status), "State:\tZ") {
				return fmt.Errorf("process %s is dead and not collected", pid)
			}
		}
	}
	return nil
}
