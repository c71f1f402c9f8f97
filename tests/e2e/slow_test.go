package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

// slowness of this machine, from 1 to 4. Where each entry of the kernel is the hypervisor's work, a failover that takes a second elsewhere takes
// seven, and so does everything beside it.
var slowness = sync.OnceValue(bench.Slowness) //nolint:gochecknoglobals // of the machine

// patient is a limit for this machine.
func patient(limit time.Duration) time.Duration { return time.Duration(float64(limit) * slowness()) }

// testMost is what a test may take; one that begins later than that before the end of all could not come to its own.
const testMost = 7 * time.Minute

// inTime skips a test for which no time is left, so that a slow machine shows of the others how they ended. A usual one has a third of the time left over.
func inTime(t *testing.T) {
	t.Helper()
	if end, is := t.Deadline(); is && time.Until(end) < testMost {
		t.Skipf("not begun: %s are left for all tests on the cluster, and it may take %s", time.Until(end).Round(time.Second), testMost)
	}
}
