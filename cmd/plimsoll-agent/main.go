// Command plimsoll-agent is PID 1 of a database pod, and the init container that brings it there.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// version is set at link time.
var version = "dev" //nolint:gochecknoglobals // the linker sets it

const usage = `plimsoll-agent runs a database inside its pod. The operator starts it; there is nothing to do by hand.

  plimsoll-agent install   copy this program and the user's entry into the pod's volumes (the init container)
  plimsoll-agent run       run as the pod's first process
  plimsoll-agent witness   vote beside two members, without a database
  plimsoll-agent check     say whether this program understands what one that it replaces would leave it (on standard input)
  plimsoll-agent version   print the version
`

func main() {
	os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr))
}

// dispatch runs a command and gives the exit code, which is what counts where the words cannot be written.
func dispatch(args []string, out, errs io.Writer) int {
	if len(args) != 1 {
		_, _ = fmt.Fprint(errs, usage)
		return 2
	}
	var err error
	switch args[0] {
	case "install":
		err = install("/proc/self/exe", engine.BinDir, engine.EtcDir, os.Getuid(), os.Getgid())
	case "run":
		err = run(os.Getenv, out)
	case "witness":
		err = witness(os.Getenv, out)
	case agent.CheckCommand:
		_, err = agent.ReadKept(os.Stdin, lease.BootClock{}.Now())
	case "version", "--version":
		_, _ = fmt.Fprintln(out, version)
	case "help", "-h", "--help":
		_, _ = fmt.Fprint(out, usage)
	default:
		_, _ = fmt.Fprintf(errs, "unknown command %q\n\n%s", args[0], usage)
		return 2
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "plimsoll-agent %s: %v\n", args[0], err)
		return 1
	}
	return 0
}
