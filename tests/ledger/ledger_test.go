package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// at is an acknowledgement by an instance that was sent and acknowledged so many milliseconds after the start.
func at(seq int64, instance string, began, ended int) Ack {
	return Ack{Entry: Entry{Seq: seq}, Origin: Origin{Instance: instance}, Began: start.Add(time.Duration(began) * time.Millisecond), Ended: start.Add(time.Duration(ended) * time.Millisecond)}
}

func TestJudge(t *testing.T) {
	account := Account{
		Acks:    []Ack{at(1, "a", 0, 1), at(2, "a", 1, 2), at(4, "a", 3, 4)},
		InDoubt: map[Entry]bool{{Seq: 3}: true},
	}
	stored := func(seqs ...int64) (all []Stored) {
		for order, seq := range seqs {
			all = append(all, Stored{Entry: Entry{Seq: seq}, Order: int64(order)})
		}
		return all
	}
	for name, tc := range map[string]struct {
		held []Stored
		want Verdict
	}{
		"everything acknowledged is there":           {held: stored(1, 2, 4), want: Verdict{Held: 3, Undone: 1}},
		"a write in doubt may be there":              {held: stored(1, 2, 3, 4), want: Verdict{Held: 4}},
		"an acknowledged write that is gone is lost": {held: stored(1, 4), want: Verdict{Held: 2, Undone: 1, Lost: []Entry{{Seq: 2}}}},
		"a write that nobody sent is strange":        {held: stored(1, 2, 4, 9), want: Verdict{Held: 4, Undone: 1, Strange: []Entry{{Seq: 9}}}},
		"a write that is there twice is disordered":  {held: stored(1, 2, 2, 4), want: Verdict{Held: 4, Undone: 1, Disordered: []Entry{{Seq: 2}}}},
		"a write after a later one is disordered":    {held: stored(2, 1, 4), want: Verdict{Held: 3, Undone: 1, Disordered: []Entry{{Seq: 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := account.Judge(tc.held)
			if (got.Err() == nil) != (tc.want.Err() == nil) {
				t.Errorf("Err() = %v", got.Err())
			}
			got.Hash = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGapsAndHands(t *testing.T) {
	for name, tc := range map[string]struct {
		acks  []Ack
		hands int
		gap   time.Duration
	}{
		"one instance all the time":                     {acks: []Ack{at(1, "a", 0, 1), at(2, "a", 2, 30)}, hands: 0, gap: 29 * time.Millisecond},
		"one change":                                    {acks: []Ack{at(1, "a", 0, 1), at(2, "b", 90, 100), at(3, "b", 101, 102)}, hands: 1, gap: 99 * time.Millisecond},
		"a change and back":                             {acks: []Ack{at(1, "a", 0, 1), at(2, "b", 2, 3), at(3, "a", 4, 5)}, hands: 2, gap: 2 * time.Millisecond},
		"the old one's last word that arrives late":     {acks: []Ack{at(1, "a", 0, 1), at(2, "b", 2, 5), at(3, "a", 1, 6), at(4, "b", 7, 8)}, hands: 1, gap: 4 * time.Millisecond},
		"two instances that take turns are two writers": {acks: []Ack{at(1, "a", 0, 1), at(2, "b", 2, 3), at(3, "a", 4, 5), at(4, "b", 6, 7)}, hands: 3, gap: 2 * time.Millisecond},
		"nothing was acknowledged":                      {},
	} {
		t.Run(name, func(t *testing.T) {
			a := Account{Acks: tc.acks}
			if got := a.Hands(); got != tc.hands {
				t.Errorf("Hands() = %d, want %d", got, tc.hands)
			}
			if got := a.LongestGap(time.Time{}).Length(); got != tc.gap {
				t.Errorf("LongestGap() = %s, want %s", got, tc.gap)
			}
		})
	}
}

// in puts an acknowledgement into a term.
func in(term int64, a Ack) Ack {
	a.Term = term
	return a
}

func TestSecondWriters(t *testing.T) {
	for name, tc := range map[string]struct {
		acks []Ack
		want int
	}{
		"terms that follow each other":                                        {acks: []Ack{in(1, at(1, "a", 0, 1)), in(2, at(2, "b", 5, 6)), in(3, at(3, "a", 8, 9))}},
		"the old one's last word comes after the new one's first":             {acks: []Ack{in(2, at(2, "b", 5, 6)), in(1, at(1, "a", 0, 7))}},
		"the old one takes a write that was sent when the new one had":        {acks: []Ack{in(1, at(1, "a", 0, 1)), in(2, at(2, "b", 5, 6)), in(1, at(3, "a", 7, 8))}, want: 1},
		"a write of the old one that came in the same instant proves nothing": {acks: []Ack{in(2, at(2, "b", 5, 6)), in(1, at(3, "a", 6, 8))}},
		"two instances in one term":                                           {acks: []Ack{in(1, at(1, "a", 0, 1)), in(1, at(2, "b", 0, 2))}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Merge(Account{Acks: tc.acks[:1]}, Account{Acks: tc.acks[1:]}).SecondWriters(); len(got) != tc.want {
				t.Errorf("%d acknowledgements of a second writer, want %d: %v", len(got), tc.want, got)
			}
		})
	}
}

func TestARefusedSessionIsKeptWhereAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		keep bool
		most int64
	}{
		"kept, one serves all":               {keep: true, most: 1},
		"not kept, each serves to a refusal": {keep: false, most: 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			var s refusing
			run := Start(t.Context(), Config{Store: &s, Writers: 1, Every: 100 * time.Microsecond, Patience: time.Second, Most: 10, Keep: tc.keep})
			for s.writes.Load() < 20 {
				time.Sleep(time.Millisecond)
			}
			account, err := run.Stop()
			if err != nil {
				t.Fatal(err)
			}
			if n := s.opened.Load(); n > tc.most || !tc.keep && n < 10 || account.Refused < 20 {
				t.Errorf("%d sessions for %d refusals", n, account.Refused)
			}
		})
	}
}

// refusing refuses every write, as a replica does.
type refusing struct{ opened, writes atomic.Int64 }

func (r *refusing) Open(context.Context) (Session, error) { r.opened.Add(1); return r, nil }
func (r *refusing) Close()                                {}

func (r *refusing) Write(context.Context, Entry) (Origin, error) {
	r.writes.Add(1)
	return Origin{}, errors.New("read-only")
}

// flaky takes every write, and says so of all but every third.
type flaky struct{ held chan Stored }

func (f flaky) Open(context.Context) (Session, error) { return f, nil }
func (f flaky) Close()                                {}

func (f flaky) Write(_ context.Context, e Entry) (Origin, error) {
	switch {
	case e.Seq%5 == 0 && len(f.held)%2 == 0: // refused: the same entry comes again
		f.held <- Stored{Order: -1}
		return Origin{}, errors.New("refused")
	case e.Seq%3 == 0:
		f.held <- Stored{Entry: e, Order: int64(len(f.held))}
		return Origin{}, fmt.Errorf("connection lost: %w", ErrInDoubt)
	}
	f.held <- Stored{Entry: e, Order: int64(len(f.held))}
	return Origin{Instance: "a"}, nil
}

func TestRunNeverSendsAnEntryInDoubtAgain(t *testing.T) {
	f := flaky{held: make(chan Stored, 10_000)}
	run := Start(t.Context(), Config{Store: f, Writers: 1, Every: 100 * time.Microsecond, Patience: time.Second, Most: 5_000})
	for n := 0; n < 200; n, _ = run.Acknowledged() {
		time.Sleep(time.Millisecond)
	}
	account, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	close(f.held)
	var held []Stored
	for s := range f.held {
		if s.Order >= 0 {
			held = append(held, s)
		}
	}
	if err := account.Judge(held).Err(); err != nil {
		t.Error(err)
	}
	if len(account.InDoubt) == 0 || account.Refused == 0 {
		t.Errorf("the run saw %d in doubt and %d refused; the store makes both", len(account.InDoubt), account.Refused)
	}
}

func TestRunThatOutgrowsItsBoundSaysSo(t *testing.T) {
	f := flaky{held: make(chan Stored, 1_000)}
	run := Start(t.Context(), Config{Store: f, Writers: 1, Every: 100 * time.Microsecond, Patience: time.Second, Most: 1})
	run.done.Wait()
	if _, err := run.Stop(); err == nil {
		t.Error("no error")
	}
}
