package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// envAlone says that this process has a network of its own.
const envAlone = "PLIMSOLL_TEST_ALONE"

// TestSilence loses the leader's node: its pod is gone, and nothing that is sent there is answered or refused. It runs in a network of its
// own, where packets can be dropped.
func TestSilence(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("pods in namespaces of their own need root")
	}
	if os.Getenv(envAlone) == "" {
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", must(os.Executable())(t), "-test.run=^TestSilence$", "-test.v", "-test.timeout=3m")
		cmd.Env = append(os.Environ(), envAlone+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	tool(t, "", "ip", "link", "set", "lo", "up")
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.start()
	}
	d.until("all three are whole", 60*time.Second, d.whole)
	w := d.writing()
	d.until("writes flow", 10*time.Second, w.now)
	var silent time.Time
	for range setting("PLIMSOLL_TEST_SILENCES", 2) {
		old, before, err := d.leader()
		if err != nil {
			t.Fatal(err)
		}
		w.reset()
		tool(t, fmt.Sprintf("add table ip silence\nadd chain ip silence out { type filter hook output priority 0; }\nadd rule ip silence out ip daddr %s drop\nadd rule ip silence out ip saddr %s drop\n", old.pod.Address, old.pod.Address), "nft", "-f", "-")
		silent = time.Now()
		old.kill()
		d.until("another leads", 60*time.Second, func() error {
			now, r, err := d.leader()
			if err == nil && (r.Epoch <= before.Epoch || now == old) {
				return errors.New("nothing has changed yet")
			}
			return err
		})
		d.until("writes flow again", 10*time.Second, w.now)
		gap, _ := w.longest()
		_, r, _ := d.leader()
		t.Logf("gap in writes %s; hand-over %s", gap.Round(time.Millisecond), steps(r.HandOver))
		if limit := 15 * time.Second; gap > limit {
			t.Errorf("the gap in writes was %s, want %s at most", gap, limit)
		}
		tool(t, "delete table ip silence\n", "nft", "-f", "-")
		old.start()
		d.until("all three again", 60*time.Second, d.whole)
	}
	d.keeps(t, w.stop())
	const lingers = 16 * time.Second // pgx gives up a session that was closed into the silence after fifteen
	time.Sleep(time.Until(silent.Add(lingers)))
}

func tool(t *testing.T, input, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
