// Package observed is what tests of programs in the kernel share: a mount namespace of their own, and a real PostgreSQL to measure.
package observed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// inside marks the second process of Run.
const inside = "PLIMSOLL_KERNEL_TEST_INSIDE"

// Run runs a package's tests in a mount namespace of their own, where they may mount what the machine has not, and gives back the exit code.
// Without root it runs them as they are: they leave out what they cannot do.
func Run(tests func() int) int {
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		return tests()
	}
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "run the tests in a mount namespace:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// NeedsRoot skips a test that loads programs into the kernel.
func NeedsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading programs into the kernel needs root")
	}
}

// NeedsServer skips a test that measures a real server, unless this is the run that may leave out nothing.
func NeedsServer(t *testing.T) {
	t.Helper()
	NeedsRoot(t)
	_, err := os.Stat(Bin + "postgres")
	if err != nil && os.Getenv("PLIMSOLL_KERNEL_TESTS") == "" {
		t.Skipf("the server that is measured: %v: install the Debian package postgresql-15", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
