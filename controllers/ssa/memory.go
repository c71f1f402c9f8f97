package ssa

import (
	"crypto/sha256"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxRemembered bounds what the writer remembers of its own writes, at 32 bytes each: some seventeen objects of each Database. What falls
// out is compared again, no more.
const maxRemembered = 1 << 16

// written is what the API server made of an apply.
type written struct {
	uid     types.UID
	version string
	sum     [sha256.Size]byte
}

// short sums stand for texts: they are many, and nothing but whether they are the same is asked of them.
type short [16]byte

func shorten(texts ...string) short {
	sum := sha256.New()
	for _, text := range texts {
		sum.Write([]byte(text + "\x00"))
	}
	return short(sum.Sum(nil)[:16])
}

func (w written) short() short { return shorten(string(w.uid), w.version, string(w.sum[:])) }

// memory of what was last written of each object, or found to be as it should.
type memory struct {
	most int

	mu    sync.Mutex
	known map[short]short // by the object's name
}

func newMemory(most int) *memory { return &memory{most: most, known: map[short]short{}} }

func (m *memory) keep(object string, w written) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := shorten(object)
	if _, known := m.known[key]; !known && len(m.known) >= m.most {
		for other := range m.known {
			delete(m.known, other)
			break
		}
	}
	m.known[key] = w.short()
}

func (m *memory) has(object string, w written) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, known := m.known[shorten(object)]
	return known && kept == w.short()
}
