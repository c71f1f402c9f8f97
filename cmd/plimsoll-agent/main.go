// Command plimsoll-agent is PID 1 of a database pod, and the init container that brings it there.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// version is set at link time.
var version = "dev" //nolint:gochecknoglobals // the linker sets it

const usage = `plimsoll-agent runs a database inside its pod. The operator starts it; there is nothing to do by hand.

  plimsoll-agent install      copy this program and the user's entry into the pod's volumes (the init container)
  plimsoll-agent run          run as the pod's first process
  plimsoll-agent witness      vote beside two members, without a database
  plimsoll-agent check        say whether this program understands what one that it replaces would leave it (on standard input)
  plimsoll-agent view table   show what the probe of the node counts of this instance's statements, each second, until standard input ends
  plimsoll-agent view told    show statements that were slow or failed, as they end
  plimsoll-agent view all     show both
  plimsoll-agent version      print the version
`

func main() {
	os.Exit(dispatch(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// dispatch runs a command, of one word or more, and gives the exit code, which is what counts where the words cannot be written.
func dispatch(args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 0 {
		_, _ = fmt.Fprint(errs, usage)
		return 2
	}
	command := strings.Join(args, " ")
	var err error
	switch command {
	case "install":
		err = install("/proc/self/exe", engine.BinDir, engine.EtcDir, os.Getuid(), os.Getgid())
	case "run":
		err = run(os.Getenv, out)
	case "witness":
		err = witness(os.Getenv, out)
	case agent.CheckCommand:
		_, err = agent.ReadKept(in, lease.BootClock{}.Now())
	case "view table":
		err = show(view.Socket, view.Want{Table: true}, in, out)
	case "view told":
		err = show(view.Socket, view.Want{Told: true}, in, out)
	case "view all":
		err = show(view.Socket, view.Want{Table: true, Told: true}, in, out)
	case "version", "--version":
		_, _ = fmt.Fprintln(out, version)
	case "help", "-h", "--help":
		_, _ = fmt.Fprint(out, usage)
	default:
		_, _ = fmt.Fprintf(errs, "unknown command %q\n\n%s", command, usage)
		return 2
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "plimsoll-agent %s: %v\n", command, err)
		return 1
	}
	return 0
}
