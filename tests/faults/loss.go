package faults

import (
	"fmt"
	"strings"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// leastRecord is less log than one write of the ledger makes in any engine: an entry, its place in the index, and the commit.
const leastRecord = 100

// Loss compares what status says that changes of hands lost with what the ledger found: acknowledged writes that are lost, and writes
// in doubt that are not there. It returns what does not fit. Status counts commits that nobody was told of any more, too, so a loss by
// its word may be one of writes in doubt alone.
func Loss(told []v1.HandOver, lost, undone int) []string {
	var problems []string
	var bytes int64
	for _, h := range told {
		if h.LostBytes == nil {
			problems = append(problems, fmt.Sprintf("status does not say what epoch %d lost: %q", h.Epoch, h.Loss))
			continue
		}
		if (*h.LostBytes == 0) != strings.HasPrefix(h.Loss, nothing) {
			problems = append(problems, fmt.Sprintf("status says that epoch %d lost %d bytes, and in words %q", h.Epoch, *h.LostBytes, h.Loss))
		}
		bytes += *h.LostBytes
	}
	switch {
	case len(problems) > 0:
	case bytes < int64(lost)*leastRecord:
		problems = append(problems, fmt.Sprintf("status says that %d bytes were lost, and %d acknowledged writes are: too few bytes for them", bytes, lost))
	case bytes > 0 && lost+undone == 0:
		problems = append(problems, fmt.Sprintf("status says that %d bytes were lost, and every write that was sent is there", bytes))
	}
	return problems
}

// nothing is how status begins to say that there is no loss.
const nothing = "nothing"
