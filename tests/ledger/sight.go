package ledger

import (
	"context"
	"sync"
	"time"
)

// Sight is what one instance said of itself when a reader asked.
type Sight struct {
	Origin
	// Primary by its own word.
	Primary bool
	// Began and Ended are when it was asked and had answered.
	Began, Ended time.Time
}

// Looker asks one instance what it is, over a session that it keeps.
type Looker interface {
	Look(ctx context.Context) (Sight, error)
	Close()
}

// Watch is the readers of every instance.
type Watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	most   int

	mu      sync.Mutex
	sights  []Sight
	dropped int
}

// StartWatch has each looker look at a pace, with a bound on one look and on what is kept of primaries; replicas' words are not kept.
func StartWatch(ctx context.Context, lookers []Looker, every, patience time.Duration, most int) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{cancel: cancel, most: most}
	for _, l := range lookers {
		w.done.Go(func() { w.look(ctx, l, every, patience) })
	}
	return w
}

func (w *Watch) look(ctx context.Context, l Looker, every, patience time.Duration) {
	defer l.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		began := time.Now()
		s, err := l.Look(asking)
		cancel()
		if err != nil || !s.Primary {
			continue // one that does not answer misleads nobody
		}
		s.Began, s.Ended = began, time.Now()
		w.keep(s)
	}
}

func (w *Watch) keep(s Sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sights) >= w.most {
		w.dropped++
		return
	}
	w.sights = append(w.sights, s)
}

// Stop ends the readers and returns what they saw of primaries, and how many sights were too many to keep.
func (w *Watch) Stop() ([]Sight, int) {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sights, w.dropped
}

// Stale says for how long an instance went on to answer readers as primary after a later term had acknowledged a write; zero for not
// at all. Such an instance loses no write, but what it says is old.
func (a Account) Stale(sights []Sight) time.Duration {
	first := a.begins()
	var longest time.Duration
	for _, s := range sights {
		if since, yes := over(first, s.Term, s.Began); yes && s.Primary {
			longest = max(longest, s.Ended.Sub(since))
		}
	}
	return longest
}
