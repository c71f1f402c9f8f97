package ledger

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestStale(t *testing.T) {
	account := Account{Acks: []Ack{in(1, at(1, "a", 0, 1)), in(2, at(2, "b", 5, 6))}}
	seen := func(term int64, primary bool, began, ended int) Sight {
		k := at(0, "x", began, ended)
		return Sight{Origin: Origin{Term: term}, Primary: primary, Began: k.Began, Ended: k.Ended}
	}
	for name, tc := range map[string]struct {
		sight Sight
		want  time.Duration
	}{
		"the old one before the new one wrote":                 {sight: seen(1, true, 2, 3)},
		"the old one asked before, and answering after":        {sight: seen(1, true, 5, 9)},
		"the old one asked after":                              {sight: seen(1, true, 7, 9), want: 3 * time.Millisecond},
		"the old one asked after, which knows that it follows": {sight: seen(1, false, 7, 9)},
		"the new one": {sight: seen(2, true, 7, 9)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := account.Stale([]Sight{tc.sight}); got != tc.want {
				t.Errorf("Stale() = %s, want %s", got, tc.want)
			}
		})
	}
}

// turning is a primary, a replica, and silent, in turns.
type turning struct{ n int }

func (l *turning) Look(context.Context) (Sight, error) {
	l.n++
	switch l.n % 3 {
	case 0:
		return Sight{}, errors.New("silent")
	case 1:
		return Sight{Origin: Origin{Instance: "a"}}, nil
	}
	return Sight{Origin: Origin{Instance: "a"}, Primary: true}, nil
}

func (l *turning) Close() {}

func TestWatchKeepsPrimariesUpToItsBound(t *testing.T) {
	w := StartWatch(t.Context(), []Looker{&turning{}, &turning{}}, 100*time.Microsecond, time.Second, 5)
	time.Sleep(50 * time.Millisecond)
	sights, dropped := w.Stop()
	if len(sights) != 5 || dropped == 0 {
		t.Errorf("%d sights kept, %d dropped", len(sights), dropped)
	}
	for _, s := range sights {
		if !s.Primary || s.Ended.Before(s.Began) {
			t.Errorf("kept %+v", s)
		}
	}
}
