package main

import (
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
	t.Parallel() // it waits more than it works
	if !alone(t, "^TestSilence$") {
		return
	}
	d := newDatabase(t, 3)
	for _, m := range d.members {
		m.start()
	}
	w := d.writing()
	var silent time.Time
	for range setting("PLIMSOLL_TEST_SILENCES", 2) {
		gap := d.replaced(t, w, func(lead *memberPod) func() {
			tool(t, fmt.Sprintf("add table ip silence\nadd chain ip silence out { type filter hook output priority 0; }\nadd rule ip silence out ip daddr %s drop\nadd rule ip silence out ip saddr %s drop\n", lead.pod.Address, lead.pod.Address), "nft", "-f", "-")
			silent = time.Now()
			lead.kill()
			return func() {
				tool(t, "delete table ip silence\n", "nft", "-f", "-")
				lead.start()
			}
		})
		if limit := 15 * time.Second; gap > limit {
			t.Errorf("the gap in writes was %s, want %s at most", gap, limit)
		}
	}
	d.keeps(t, w.stop())
	const lingers = 16 * time.Second // pgx gives up a session that was closed into the silence after fifteen
	time.Sleep(time.Until(silent.Add(lingers)))
}

// alone says whether this process has a network of its own. If not, the test is run in another one that has.
func alone(t *testing.T, test string) bool {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("pods in namespaces of their own need root")
	}
	if os.Getenv(envAlone) != "" {
		tool(t, "", "ip", "link", "set", "lo", "up")
		return true
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", must(os.Executable())(t), "-test.run="+test, "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), envAlone+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

func tool(t *testing.T, input, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
