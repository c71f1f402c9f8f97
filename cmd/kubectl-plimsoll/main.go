// Command kubectl-plimsoll is the front door of the kubectl plugin.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/plugin"
)

// version is set by the linker.
var version = "dev"

func main() {
	root := plugin.New(plugin.Config{
		Streams: plugin.Streams{
			In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Width: width,
			Terminal: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())),
		},
		Version: version,
		Kubectl: "kubectl",
		Now:     time.Now,
	})
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", oneLine(err.Error()))
		os.Exit(1)
	}
}

// width of the terminal that standard output is, 0 where it is none.
func width() int {
	columns, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// oneLine joins the lines of a text that hold anything.
func oneLine(text string) string {
	var parts []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}
