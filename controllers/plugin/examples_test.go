package plugin

import (
	"strings"
	"testing"
	"time"
)

// TestEveryCommandHasExamples, and each of them is a command that the plugin takes.
func TestEveryCommandHasExamples(t *testing.T) {
	root := New(Config{Streams: Streams{Out: &strings.Builder{}, Err: &strings.Builder{}}, Now: func() time.Time { return noon }})
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			found := 0
			for line := range strings.Lines(c.Example) {
				line = strings.TrimSpace(line)
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				typed, ok := strings.CutPrefix(line, "kubectl plimsoll ")
				if !ok {
					t.Errorf("%q is no command of the plugin", line)
					continue
				}
				found++
				named, args, err := root.Find(strings.Fields(typed))
				if err != nil || named != c {
					t.Errorf("%q runs %s, %v", line, named.Name(), err)
					continue
				}
				if err := c.ParseFlags(args); err != nil {
					t.Errorf("%q: %v", line, err)
				}
				if err := c.ValidateArgs(c.Flags().Args()); err != nil {
					t.Errorf("%q: %v", line, err)
				}
			}
			if found == 0 {
				t.Error("it has no example")
			}
		})
	}
}
