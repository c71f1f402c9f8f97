package lease

import (
	"slices"
	"testing"
	"time"
)

// TestTimeToNewLeader measures from the fault to the promoted server, in a
// world whose network and API answer within milliseconds.
func TestTimeToNewLeader(t *testing.T) {
	tests := map[string]struct {
		do      func(w *world, leader *node)
		atWorst time.Duration
	}{
		"the leader's pod is gone at once": {
			func(_ *world, n *node) { n.crash() }, 4600 * time.Millisecond,
		},
		"the leader is cut off": {
			func(w *world, n *node) {
				for _, o := range w.nodes {
					w.cut[[2]string{o.name, n.name}], w.cut[[2]string{n.name, o.name}] = true, true
				}
			}, 4600 * time.Millisecond,
		},
		"the leader's agent is frozen": {
			func(_ *world, n *node) { n.frozen = true }, 4600 * time.Millisecond,
		},
		"the leader's server dies": {
			func(_ *world, n *node) { n.kill(); n.report() }, 300 * time.Millisecond,
		},
		"the leader is told to terminate": {
			func(_ *world, n *node) { n.leaving = true; n.step(Leaving{}) }, 700 * time.Millisecond,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			for seed := range uint64(60) {
				w := newWorld(seed, 3, safeRules())
				w.verbose = true
				w.run(8*time.Second + w.between(0, time.Second))
				old := w.counts["promoted"]
				leader := w.byName[w.lease.Record.Leader]
				start := w.now
				test.do(w, leader)
				for w.counts["promoted"] == old && w.now < start+10*time.Second {
					w.run(time.Millisecond)
				}
				if w.violation != "" {
					t.Fatalf("seed %d: %s", seed, w.violation)
				}
				took = append(took, w.now-start)
				if w.now-start > test.atWorst {
					t.Errorf("seed %d took %s\n%s", seed, w.now-start, w.tail(25))
				}
			}
			slices.Sort(took)
			t.Logf("%s: median %s, p95 %s, worst %s", name, took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
		})
	}
}
