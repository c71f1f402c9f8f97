package node

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/attribute"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// confined holds, in the process that the next test starts, whom it is to measure, and confinedHierarchy where it finds cgroups.
const (
	confined          = "PLIMSOLL_NODE_TEST_CONFINED"
	confinedHierarchy = "PLIMSOLL_NODE_TEST_CONFINED_HIERARCHY"
)

// TestTheCapabilitiesOfTheManifestAreEnough runs the probe as a Probe's DaemonSet does: as root with four of them, and no way to more.
func TestTheCapabilitiesOfTheManifestAreEnough(t *testing.T) {
	if of := os.Getenv(confined); of != "" {
		measuresConfined(t, of)
		return
	}
	s := newServer(t, "orders-1", attribute.Container{Pod: "4f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34", ID: strings.Repeat("5e", 32)})
	of, err := json.Marshal(s.Instance)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		out []byte
		err error
	}
	answered := make(chan answer)
	go func() {
		// A child has what its parent's thread has; this one ends with its goroutine.
		runtime.LockOSThread()
		a := answer{err: confine()}
		if a.err == nil {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
			cmd.Env = append(os.Environ(), confined+"="+string(of), confinedHierarchy+"="+hierarchy)
			a.out, a.err = cmd.CombinedOutput()
		}
		answered <- a
	}()
	if a := <-answered; a.err != nil || strings.Contains(string(a.out), "no tests to run") {
		t.Errorf("with four capabilities: %v\n%s", a.err, a.out)
	}
}

// confine gives all other capabilities of this thread's children away.
func confine() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains([]uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE}, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func measuresConfined(t *testing.T, of string) {
	t.Helper()
	s := &server{}
	if err := json.Unmarshal([]byte(of), &s.Instance); err != nil {
		t.Fatal(err)
	}
	s.Server = &observed.Server{Port: int(s.Instance.Port)}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if want := "CapEff:\t000000c000280000\n"; !strings.Contains(string(status), want) {
		t.Fatalf("this process has other capabilities than %q:\n%s", want, status)
	}
	s.isCounted(t, 1)
}
