package node

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
)

// without marks a process that has no tracefs.
const without = "PLIMSOLL_NODE_TEST_WITHOUT_TRACEFS"

// TestWithoutTracefsServersAreSeenAtTheirOwnFunctions runs itself again in a mount namespace without tracefs: where that is is looked up once
// in a process.
func TestWithoutTracefsServersAreSeenAtTheirOwnFunctions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading programs into the kernel needs root")
	}
	if os.Getenv(without) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), without+"=1")
		cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "no tests to run") {
			t.Errorf("without tracefs: %v\n%s", err, out)
		}
		return
	}
	s := newServer(t, "orders-1", attribute.Container{Pod: "3f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("4d", 32)})
	s.isCounted(t, 0)
}
