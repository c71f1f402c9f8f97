package database

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

func TestWhatAChangeOfHandsLost(t *testing.T) {
	none, some := new(int64), new(int64)
	*some = 14480
	for sentence, row := range map[string]struct {
		told  engine.HandOver
		left  *engine.Left
		bytes *int64
		words string
	}{
		"the first leader took over from nobody": {engine.HandOver{Cause: "bootstrap"}, nil, nil, ""},
		"a switchover hands over all":            {engine.HandOver{Cause: "switchover", From: "orders-1", Synchronous: "none"}, nil, none, "nothing: the old leader handed over all that it had"},
		"a recovery may have lost what a majority held that is gone": {
			engine.HandOver{Cause: "recover", From: "orders-1", Synchronous: "required", Ahead: -1}, nil, nil, "not known until orders-1 is back",
		},
		"nor is that known once the old leader is back without its data": {
			engine.HandOver{Cause: "recover", From: "orders-1", Synchronous: "required", Ahead: -1},
			&engine.Left{}, nil,
			"not known: what orders-1 had cannot be found out any more",
		},
		"a recovery by one that cannot tell who led": {engine.HandOver{Cause: "recover", Synchronous: "required", Ahead: -1}, nil, nil, "not known: the new leader cannot tell who led last"},
		"who comes back has all":                     {engine.HandOver{Cause: "resume", From: "orders-2", Synchronous: "none"}, nil, none, "nothing: the same instance leads again"},
		"required loses nothing": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "required", Ahead: 4711, Quiet: 900},
			nil, none,
			"nothing: a majority holds each write before it is acknowledged (synchronous: required)",
		},
		"what the old leader had is not known until it is back": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "none", Ahead: 4711, Quiet: 940},
			nil, nil,
			"not known until orders-1 is back: 900ms before the election its log was 4711 bytes longer than the new leader's, and what it wrote after that nobody has seen",
		},
		"and nothing is known of one that was never heard": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "preferred", Ahead: -1}, nil, nil, "not known until orders-1 is back",
		},
		"it is back, and had commits": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "none", Ahead: -1},
			&engine.Left{Known: true, Timeline: 1, Bytes: 14480, Commits: 82}, some,
			"82 commits in 14480 bytes of log that only orders-1 had",
		},
		"it is back, and had none": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "none", Ahead: 4711, Quiet: 940},
			&engine.Left{Known: true, Timeline: 1}, none,
			"nothing: orders-1 came back without a commit that the new leader lacks",
		},
		"it is back without its data": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "none"}, &engine.Left{}, nil, "not known: what orders-1 had cannot be found out any more",
		},
		"required is believed before the word of an old leader, whose last commits nobody was told of": {
			engine.HandOver{Cause: "failover", From: "orders-1", Synchronous: "required"},
			&engine.Left{Known: true, Timeline: 1, Bytes: 200, Commits: 1}, none,
			"nothing: a majority holds each write before it is acknowledged (synchronous: required)",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := settled(3)
			row.told.Epoch, row.told.Promoted = 12, noon().UnixMilli()
			s.report("orders-2", func(r *engine.Report) { r.HandOver = &row.told })
			before := handOvers(nil, s.Seen)
			s.report("orders-1", func(r *engine.Report) { r.Left = row.left })
			got := handOvers(before, s.Seen)
			if diff := cmp.Diff(v1.HandOver{LostBytes: row.bytes, Loss: row.words}, v1.HandOver{LostBytes: got[0].LostBytes, Loss: got[0].Loss}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := handOvers(got, s.Seen); !cmp.Equal(got, again) {
				t.Errorf("told again it changes:\n%s", cmp.Diff(got, again))
			}
			lost := foundOut(v1.DatabaseStatus{HandOvers: before}, v1.DatabaseStatus{HandOvers: got})
			if want := row.bytes == some; (len(lost) == 1) != want {
				t.Errorf("%d losses are counted", len(lost))
			}
			if len(foundOut(v1.DatabaseStatus{HandOvers: got}, v1.DatabaseStatus{HandOvers: got})) > 0 {
				t.Error("a loss is counted twice")
			}
		})
	}
}

// TestAnOldWordIsOfAnOldLoss: who has led again since tells of another change of hands.
func TestAnOldWordIsOfAnOldLoss(t *testing.T) {
	s := settled(3)
	s.report("orders-1", func(r *engine.Report) { r.Left = &engine.Left{Known: true, Timeline: 1, Bytes: 100, Commits: 1} })
	got := handOvers([]v1.HandOver{{Epoch: 13, To: "orders-1", From: "orders-2"}, {Epoch: 12, To: "orders-2", From: "orders-1"}}, s.Seen)
	if got[0].LostBytes != nil || got[1].LostBytes != nil {
		t.Errorf("it is taken for a word on %+v", got)
	}
}

// TestARaiseIsTold: a leader that goes on leading under a new epoch, because the Lease came back from a backup, is a line of its own beside
// the change of hands that made it leader, which the backup did not hold.
func TestARaiseIsTold(t *testing.T) {
	s := settled(3)
	at := noon().UnixMilli()
	s.report("orders-2", func(r *engine.Report) {
		r.HandOver = &engine.HandOver{Epoch: 4, From: "orders-1", Cause: "failover", Synchronous: "required", Seen: at - 900, Promoted: at - 200, Routed: at - 100}
		r.Raised = &engine.Raise{Epoch: 5, Why: "the Lease was deleted or restored", At: at}
	})
	before := []v1.HandOver{{Epoch: 3, From: "orders-3", To: "orders-1", Cause: "switchover"}}
	got := handOvers(before, s.Seen)
	var told []string
	for _, h := range got {
		told = append(told, fmt.Sprintf("%d %s>%s %s, %s, %s", h.Epoch, h.From, h.To, h.Cause, h.Why, h.Loss))
	}
	want := []string{
		"5 orders-2>orders-2 raise, the Lease was deleted or restored, nothing: the same instance went on leading",
		"4 orders-1>orders-2 failover, , nothing: a majority holds each write before it is acknowledged (synchronous: required)",
		"3 orders-3>orders-1 switchover, , ",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := handOvers(got, s.Seen); !cmp.Equal(got, again) {
		t.Errorf("told again it changes:\n%s", cmp.Diff(got, again))
	}
	var notes []string
	for _, o := range changes(v1.DatabaseStatus{HandOvers: before}, v1.DatabaseStatus{HandOvers: got}) {
		notes = append(notes, o.Type+" "+o.Reason+" "+o.Note)
	}
	if diff := cmp.Diff([]string{
		"Normal HandOver orders-2 leads on, with the new epoch 5: the Lease was deleted or restored (raise)",
		"Normal HandOver orders-2 took over from orders-1 with epoch 4 in 800 ms (failover)",
	}, notes); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
