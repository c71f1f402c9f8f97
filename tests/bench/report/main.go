// Command report draws docs/benchmarks.md from docs/benchmarks/*.json.
package main

import (
	"fmt"
	"os"

	"github.com/plimsoll-dev/plimsoll-operator/tests/bench"
)

func main() {
	page, err := bench.Page("docs/benchmarks")
	if err == nil {
		err = os.WriteFile("docs/benchmarks.md", []byte(page), 0o644) //nolint:gosec // a page of the documentation
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-report:", err)
		os.Exit(1)
	}
}
