package database

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// positionStep is how far a position must move before it alone is worth a write of status. A server moves its log a little by
// itself for minutes after the last client has gone.
const positionStep = 16 << 20

// positions remembers the positions that status tells, since status has them in the engine's words only. After a restart of the manager
// it is empty, and each status is written once more if a position has moved at all.
type positions struct {
	mu   sync.Mutex
	told map[types.NamespacedName]map[string]engine.Position
}

func newPositions() *positions {
	return &positions{told: map[types.NamespacedName]map[string]engine.Position{}}
}

// note what the status that was just written tells.
func (p *positions) note(s Seen) {
	positions := make(map[string]engine.Position, len(s.Heard))
	for name, h := range s.Heard {
		positions[name] = h.Report.Position
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[s.key()] = positions
}

func (p *positions) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.told, key)
}

// unlessIdle is the status to write: the one that stands, where nothing but positions and lags has moved, and those a little only.
func (p *positions) unlessIdle(s Seen, status v1.DatabaseStatus) v1.DatabaseStatus {
	p.mu.Lock()
	told := p.told[s.key()]
	p.mu.Unlock()
	before := s.Database.Status
	if len(before.Instances) != len(status.Instances) {
		return status
	}
	still := status
	still.Instances = slices.Clone(status.Instances)
	for n, i := range still.Instances {
		old := before.Instances[n]
		said, known := told[i.Name]
		heard, speaks := s.Heard[i.Name]
		if known && speaks && near(said, heard.Report.Position) && lagOf(old) == lagOf(i) {
			still.Instances[n].Position, still.Instances[n].LagBytes = old.Position, old.LagBytes
		}
	}
	if equality.Semantic.DeepEqual(before, still) {
		return before
	}
	return status
}

func near(a, b engine.Position) bool {
	low, high := min(a.Bytes, b.Bytes), max(a.Bytes, b.Bytes)
	return a.Timeline == b.Timeline && high-low < positionStep
}

// lagOf is the class of an instance's lag, -1 if it is not known.
func lagOf(i v1.InstanceStatus) int64 {
	if i.LagBytes == nil {
		return lagClass(-1)
	}
	return lagClass(*i.LagBytes)
}
