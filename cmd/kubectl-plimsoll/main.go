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
		Streams: plugin.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))},
		Version: version,
		Kubectl: "kubectl",
		Now:     time.Now,
	})
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}
