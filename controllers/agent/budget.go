package agent

import (
	"slices"
	"sync"
	"time"
)

// stopBudget remembers how long hard stops took, and allows for twice the worst of the last ones.
type stopBudget struct {
	mu   sync.Mutex
	took [8]time.Duration
	next int
}

const (
	leastBudget = 200 * time.Millisecond
	mostBudget  = time.Second
)

func (b *stopBudget) add(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.took[b.next%len(b.took)] = took
	b.next++
}

// all that it remembers, oldest first.
func (b *stopBudget) all() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.took[:min(b.next, len(b.took))])
}

// restore what another one remembered.
func (b *stopBudget) restore(took []time.Duration) {
	for _, t := range took {
		b.add(t)
	}
}

func (b *stopBudget) get() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var worst time.Duration
	for _, t := range b.took {
		worst = max(worst, t)
	}
	return min(max(leastBudget, 2*worst), mostBudget)
}
