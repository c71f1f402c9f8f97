package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
)

// builds are this test's program twice more, of other versions: the agents of its pods become them. It is linked once more for all tests,
// and the version that it says is what the two differ in.
func builds(t *testing.T) (second, third client.Program) {
	t.Helper()
	raw, err := linked()
	if err != nil {
		t.Fatalf("build another version: %v", err)
	}
	other := bytes.ReplaceAll(raw, []byte(secondVersion), []byte(thirdVersion))
	return programOf(secondVersion, raw), programOf(thirdVersion, other)
}

// Of one length.
const secondVersion, thirdVersion = "v2.of.exchange", "v3.of.exchange"

var linked = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "second")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	path := filepath.Join(dir, "agent.test")
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags", "-s -w -X github.com/plimsoll-dev/plimsoll-operator/cmd/plimsoll-agent.version="+secondVersion, "-o", path, ".").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(path)
})

func programOf(version string, content []byte) client.Program {
	sum := sha256.Sum256(content)
	return client.Program{
		Digest: "sha256:" + hex.EncodeToString(sum[:]), Version: version, Size: int64(len(content)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}
}

// exchange sends the program, again while the member is busy with something, as the manager does.
func (m *memberPod) exchange(p client.Program) error {
	ctx, cancel := context.WithTimeout(m.db.t.Context(), time.Minute)
	defer cancel()
	for {
		err := m.db.manager.Exchange(ctx, m.peer(), p)
		if err == nil || errors.Is(err, client.ErrRefused) || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// runs says whether the member runs the program and is well.
func (m *memberPod) runs(p client.Program) error {
	r, err := m.report()
	switch {
	case err != nil:
		return err
	case r.AgentDigest != p.Digest || r.AgentVersion != p.Version:
		return fmt.Errorf("%s runs %s %s: %+v", m.name, r.AgentVersion, r.AgentDigest, r.Exchange)
	case !r.Ready || !r.Converged:
		return fmt.Errorf("%s is %s %s, ready %v, converged %v: %s %s", m.name, r.State, r.Role, r.Ready, r.Converged, r.Reason, r.Problem)
	}
	return nil
}

// inTurn lists the replicas, then the leader.
func (d *database) inTurn(t *testing.T) []*memberPod {
	lead, _, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	var all []*memberPod
	for _, m := range d.members {
		if m != lead {
			all = append(all, m)
		}
	}
	return append(all, lead)
}

// TestExchange replaces the agents of three members under their servers, the leader's with them, while clients write.
func TestExchange(t *testing.T) {
	second, third := builds(t)
	t.Parallel() // it waits more than it works, once the program is built
	d := newDatabase(t, 3)
	d.patience = 10 * time.Second // no statement may fail, and none has to hurry
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are voters and ready", 60*time.Second, d.whole)
	begin := time.Now()
	w, other := d.write(0), d.write(1<<32)
	d.until("writes flow", 10*time.Second, func() error { return errors.Join(w.flows(begin), other.flows(begin)) })

	t.Run("refused", func(t *testing.T) { d.t = t; d.refusals(t, second) })
	files := d.openFiles(t)
	for _, next := range []client.Program{second, third} {
		t.Run("to "+next.Version, func(t *testing.T) { d.t = t; d.exchanges(t, next, w, other) })
	}
	for name, now := range d.openFiles(t) {
		t.Logf("%s: %d open files before, %d after two exchanges", name, files[name], now)
		if now > files[name]+6 { // connections come and go
			t.Errorf("%s keeps files of its earlier programs", name)
		}
	}
	t.Run("the server's words", func(t *testing.T) { d.t = t; d.hears(t, second) })
	t.Run("server killed afterwards", func(t *testing.T) {
		d.t = t
		d.disturb(t, w, func(lead *memberPod) {
			if err := syscall.Kill(must(lead.server())(t), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("a switchover afterwards", func(t *testing.T) { d.t = t; d.switchover(t, "after", w, other) })
	t.Run("terminated afterwards", func(t *testing.T) {
		d.t = t
		d.disturb(t, w, func(lead *memberPod) {
			if err := lead.exchange(third); err != nil {
				t.Fatal(err)
			}
			d.until("it has become another", 30*time.Second, func() error { return lead.runs(third) })
			if err := lead.terminate(); err != nil {
				t.Errorf("the agent ended with %v", err)
			}
		})
	})
	t.Run("killed right after", func(t *testing.T) {
		d.t = t
		d.disturb(t, w, func(lead *memberPod) {
			if err := lead.exchange(second); err != nil {
				t.Fatal(err)
			}
			d.until("it has become another", 30*time.Second, func() error {
				if r, err := lead.report(); err != nil || r.AgentDigest != second.Digest {
					return fmt.Errorf("not yet: %w", err)
				}
				return nil
			})
			lead.kill()
		})
	})
	d.t = t
	acked := w.stop()
	maps.Copy(acked, other.stop())
	d.keeps(t, acked)
}

// openFiles of each agent.
func (d *database) openFiles(t *testing.T) map[string]int {
	found := map[string]int{}
	for _, m := range d.members {
		found[m.name] = len(must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid)))(t))
	}
	return found
}

// TestExchangeAlone: the only voter leads by nobody's grant but its own.
func TestExchangeAlone(t *testing.T) {
	second, _ := builds(t)
	t.Parallel() // it waits more than it works, once the program is built
	d := newDatabase(t, 1)
	d.patience = 10 * time.Second
	d.members[0].start()
	d.until("it leads", 60*time.Second, d.whole)
	begin := time.Now()
	w, other := d.write(0), d.write(1<<32)
	d.until("writes flow", 10*time.Second, func() error { return errors.Join(w.flows(begin), other.flows(begin)) })
	before := d.members[0].watched(t)
	d.exchanges(t, second, w, other)
	if line, err := before.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("who watched the program before hears %q and %v, want its end", line, err)
	}
	d.members[0].watched(t)
	acked := w.stop()
	maps.Copy(acked, other.stop())
	d.keeps(t, acked)
}

func (d *database) exchanges(t *testing.T, next client.Program, w, other *writer) {
	_, before, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range d.inTurn(t) {
		pid, agent := must(m.server())(t), m.cmd.Process.Pid
		w.reset()
		other.reset()
		failed := w.failed + other.failed
		begin := time.Now()
		if err := m.exchange(next); err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		sent := time.Since(begin)
		took := d.until(m.name+" has become another", 30*time.Second, func() error { return m.runs(next) })
		d.until("all are whole", 30*time.Second, d.whole)
		time.Sleep(4 * time.Second) // longer than a grant: what was forgotten shows
		if after := must(m.server())(t); after != pid || m.cmd.Process.Pid != agent {
			t.Errorf("%s: the server was process %d and is %d", m.name, pid, after)
		}
		lead, now, err := d.leader()
		if err != nil || now.Epoch != before.Epoch {
			t.Errorf("epoch %d became %d (%v)", before.Epoch, now.Epoch, err)
		}
		gap, _ := w.longest()
		second, _ := other.longest()
		if more := w.failed + other.failed - failed; more > 0 {
			t.Errorf("%s: %d statements failed: %s %s", m.name, more, w.why, other.why)
		}
		t.Logf("%s (leads: %v): sent and checked in %s, exchanged %s later; %s; longest gap in writes %s", m.name, lead == m,
			sent.Round(time.Millisecond), took.Round(time.Millisecond), m.exchangedIn(), max(gap, second).Round(time.Millisecond))
	}
	d.until("no dead child is left", 5*time.Second, func() error {
		for _, m := range d.members {
			if err := m.noneDead(); err != nil {
				return err
			}
		}
		return nil
	})
}

// exchangedIn is what the newest program said of its beginning.
func (m *memberPod) exchangedIn() string {
	found := "it said nothing"
	for line := range strings.Lines(m.lastLog(400)) {
		if strings.Contains(line, `"agent exchanged"`) {
			_, after, _ := strings.Cut(line, `"took":`)
			found = "it stood still for " + strings.Trim(strings.TrimSpace(after), `"}`)
		}
	}
	return found
}

// hears has the leader's server speak all the time while its agent is exchanged: every word is in the log, once.
func (d *database) hears(t *testing.T, next client.Program) {
	lead, _, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := must(d.connect(ctx, lead.pod.Address))(t)
	defer func() { _ = conn.Close(ctx) }()
	stop, said := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { said <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := conn.Exec(ctx, fmt.Sprintf("DO $$ BEGIN RAISE LOG 'word number %d.'; END $$", n)); err != nil {
				t.Errorf("word %d: %v", n, err)
				return
			}
			n++
		}
	}()
	if err := lead.exchange(next); err != nil {
		t.Fatal(err)
	}
	d.until("it has become another", 30*time.Second, func() error { return lead.runs(next) })
	close(stop)
	n := <-said
	d.until("the last word is in the log", 10*time.Second, func() error {
		raw := must(os.ReadFile(filepath.Join(d.dir, lead.name, "log")))(t)
		for i := range n {
			if got := bytes.Count(raw, fmt.Appendf(nil, `"msg":"word number %d."`, i)); got != 1 {
				return fmt.Errorf("word %d of %d is there %d times", i, n, got)
			}
		}
		return nil
	})
	t.Logf("%d words, each once", n)
}

// refusals sends what must not be begun; each is told, and the program that runs goes on.
func (d *database) refusals(t *testing.T, good client.Program) {
	lead, before, err := d.leader()
	if err != nil {
		t.Fatal(err)
	}
	raw := must(io.ReadAll(must(good.Open())(t)))(t)
	other := bytes.Clone(raw)
	other[18] = 183 // of ARM
	if other[18] == raw[18] {
		other[18] = 62
	}
	ofNoUse := must(os.ReadFile("/bin/false"))(t)
	rows := map[string]struct {
		program client.Program
		want    string
	}{
		"another digest than was announced": {client.Program{Digest: "sha256:00", Version: "v2", Size: good.Size, Open: good.Open}, "announced was sha256:00"},
		"of another architecture":           {programOf("v2", other), "the program is for machine"},
		"cut short": {client.Program{Digest: good.Digest, Version: "v2", Size: good.Size - 1000, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(raw[:len(raw)-1000])), nil
		}}, "the program's digest is"},
		"no program": {programOf("v2", []byte(strings.Repeat("#!/bin/sh\n", 10))), "no program"},
		"one that does not understand what it would find": {programOf("v2", ofNoUse), "does not understand"},
		"too large": {client.Program{Digest: good.Digest, Version: "v2", Size: 1 << 30, Open: good.Open}, "a program of 1073741824 bytes"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			err := lead.exchange(row.program)
			if err == nil || !errors.Is(err, client.ErrRefused) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want it refused with %q", err, row.want)
			}
		})
	}
	r, err := lead.report()
	if err != nil || r.AgentDigest != before.AgentDigest || r.Epoch != before.Epoch || !r.Ready {
		t.Errorf("it runs %s at epoch %d, ready %v (%v)", r.AgentDigest, r.Epoch, r.Ready, err)
	}
}
