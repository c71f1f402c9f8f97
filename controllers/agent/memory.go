package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryKills counts the processes of this container that the kernel killed because the container's memory was at its limit; zero if it does
// not say. A database outlives the loss of one of its processes, and so its parent alone would never know why.
func memoryKills(cgroup string) int64 {
	// The second is where version 1 has it.
	for _, file := range []string{"memory.events", "memory/memory.oom_control"} {
		text, err := os.ReadFile(filepath.Join(cgroup, filepath.FromSlash(file)))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if n, is := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); is {
				kills, err := strconv.ParseInt(n, 10, 64)
				if err == nil {
					return kills
				}
			}
		}
	}
	return 0
}
