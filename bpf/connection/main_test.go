package connection

import (
	"os"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// TestMain runs the tests where the hierarchy of cgroup v2 can be mounted whatever the machine has.
func TestMain(m *testing.M) {
	if os.Getenv(serving) != "" {
		serve()
		return
	}
	os.Exit(observed.Run(m.Run))
}
