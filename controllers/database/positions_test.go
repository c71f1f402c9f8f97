package database

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestPositionsAloneAreWrittenByLargeSteps(t *testing.T) {
	for sentence, row := range map[string]struct {
		change func(*engine.Report)
		want   bool
	}{
		"nothing moved": {func(*engine.Report) {}, false},
		"the log grew by what an idle server writes": {func(r *engine.Report) { r.Position.Bytes, r.Position.Text = 200, "0/C8" }, false},
		"the log grew by a segment": {
			func(r *engine.Report) { r.Position.Bytes, r.Position.Text = 100+positionStep, "0/1000064" }, true,
		},
		"another timeline": {func(r *engine.Report) { r.Position.Timeline = 2 }, false}, // its words are the same
		"another timeline and position": {
			func(r *engine.Report) { r.Position = engine.Position{Timeline: 2, Bytes: 200, Text: "0/C8"} }, true,
		},
		"a little lag":                     {func(r *engine.Report) { r.LagBytes = 4096 }, false},
		"much lag":                         {func(r *engine.Report) { r.LagBytes = positionStep }, true},
		"a lag that is not known any more": {func(r *engine.Report) { r.LagBytes = -1 }, true},
		"a position and something else": {
			func(r *engine.Report) { r.Position.Bytes, r.Position.Text, r.Ready = 200, "0/C8", false }, true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s, p := settled(3), newPositions()
			pass := func() bool {
				now := summarise(s.Seen, decide(s.Seen, surroundings(), noon()), Acted{}, noon())
				status := p.unlessIdle(s.Seen, now)
				changed := !cmp.Equal(s.Database.Status, status)
				if changed {
					if diff := cmp.Diff(now, status); diff != "" {
						t.Errorf("what is written is not what was seen:\n%s", diff)
					}
					s.Database.Status = status
					p.note(s.Seen)
				}
				return changed
			}
			if !pass() {
				t.Fatal("the first status was not written")
			}
			s.report("orders-3", row.change)
			if got := pass(); got != row.want {
				t.Errorf("written: %t, want %t", got, row.want)
			}
			if pass() {
				t.Error("the same was written twice")
			}
		})
	}
}

func TestPositionsOfOneThatIsGoneAreForgotten(t *testing.T) {
	s, p := settled(3), newPositions()
	p.note(s.Seen)
	p.forget(s.key())
	if len(p.told) != 0 {
		t.Errorf("%d are kept", len(p.told))
	}
}
