package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// viewPatience is for an agent to let a watcher in.
const viewPatience = 5 * time.Second

// show what the probe of the node sees of this instance, as lines of view.Line, until the agent hangs up, nobody reads them any more, or
// standard input ends: that is how a person who ran this by kubectl is known to have gone.
func show(socket string, want view.Want, in io.Reader, out io.Writer) error {
	conn, err := net.DialTimeout("unix", socket, viewPatience) //nolint:noctx // it has a bound, and nobody calls it off
	if err != nil {
		return fmt.Errorf("the agent that runs here does not show what a probe sees; if it is of this release, its log says why: %w", err)
	}
	defer func() { _ = conn.Close() }() // all has been said
	hello, err := json.Marshal(view.Hello{Want: &want})
	if err != nil {
		return fmt.Errorf("say what to show: %w", err)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(viewPatience)); err != nil {
		return fmt.Errorf("say what to show: %w", err)
	}
	if _, err := conn.Write(append(hello, '\n')); err != nil {
		return fmt.Errorf("say what to show: %w", err)
	}
	ended := make(chan error, 2)
	go func() {
		_, _ = io.Copy(io.Discard, in) // nothing is expected
		ended <- nil
	}()
	go func() {
		_, err := io.Copy(out, conn)
		ended <- err
	}()
	if err := <-ended; err != nil {
		return fmt.Errorf("show what the agent passes on: %w", err)
	}
	return nil
}
