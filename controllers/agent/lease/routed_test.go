package lease

import "testing"

// TestARaiseBeforeTheFirstRouteIsNoChangeOfHands: the epoch that clients are sent to is a later one then, and what is told is the election's.
func TestARaiseBeforeTheFirstRouteIsNoChangeOfHands(t *testing.T) {
	m := settled(t, 3).nodes[0].m
	elected := m.lead.epoch
	m.lead.routed, m.lead.epoch = 0, elected+1
	told := 0
	for _, o := range m.Step(m.now, Routed{Epoch: elected + 1, Outcome: Done}) {
		if n, ok := o.(Note); ok && n.Event.Kind == EventRouted {
			told++
			if n.Event.Epoch != elected {
				t.Errorf("it is told of epoch %d, want %d", n.Event.Epoch, elected)
			}
		}
	}
	if told != 1 || m.lead.routed != elected+1 {
		t.Errorf("told %d times, routed at %d", told, m.lead.routed)
	}
}
