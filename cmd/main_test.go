package main

import (
	"testing"

	"go.uber.org/goleak"
)

// A watch of metadata that is stopped while an event is on its way never ends in client-go; a manager stops its watches only when it
// ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}
