package agent

import (
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// After a body that was too large the standard library's server waits half a second before it closes, and cannot be hurried.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func port(n int) string { return strconv.Itoa(n) }

// must returns the value or ends the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
