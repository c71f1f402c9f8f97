package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatTheKernelKilledForWantOfMemory(t *testing.T) {
	for sentence, row := range map[string]struct {
		file, text string
		want       int64
	}{
		"version 2":            {"memory.events", "low 0\nhigh 0\nmax 412\noom 3\noom_kill 2\noom_group_kill 0\n", 2},
		"version 1":            {"memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7},
		"an older kernel":      {"memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0},
		"nothing that says it": {"memory.stat", "anon 0\n", 0},
		"what is no number":    {"memory.events", "oom_kill many\n", 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(row.file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, row.file), []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := memoryKills(dir); got != row.want {
				t.Errorf("%d are counted, want %d", got, row.want)
			}
		})
	}
}
