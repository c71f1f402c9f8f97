// Package ledger is a client that writes all the time, keeps every acknowledgement with its time, and proves afterwards what
// the database kept: nothing acknowledged lost, in order, and one writer at a time. It knows no engine; a Store does.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Entry is one write: the number Seq of writer Writer. No entry is written twice.
type Entry struct {
	Writer int
	Seq    int64
}

// Stored is an entry that a database holds, with its place in the order of commits.
type Stored struct {
	Entry
	Order int64
}

// Ack is an acknowledged write.
type Ack struct {
	Entry
	Origin
	// Began and Ended are when the write was sent and acknowledged.
	Began, Ended time.Time
}

// Origin is who acknowledged a write, by its own word.
type Origin struct {
	Instance string
	// Term is the leadership that the instance wrote under, as the database itself numbers them: it only grows.
	Term int64
}

// ErrInDoubt marks a write of which it is not known whether it took effect.
var ErrInDoubt = errors.New("in doubt")

// Session is one connection of a writer.
type Session interface {
	// Write stores one entry durably and says who took it. An error that wraps ErrInDoubt may have taken effect; any other did not.
	Write(ctx context.Context, e Entry) (Origin, error)
	Close()
}

// Store opens sessions to the writable end of a database.
type Store interface {
	Open(ctx context.Context) (Session, error)
}

// Reader reads back what one instance holds.
type Reader interface {
	Read(ctx context.Context) ([]Stored, error)
}

// Config of a run.
type Config struct {
	Store Store
	// Writers that write side by side, each with a session of its own. First is the number of the first one: runs that share a
	// database have different writers.
	Writers, First int
	// Every is the pause between two writes of one writer.
	Every time.Duration
	// Patience bounds one write, and Dial one connection attempt; Dial zero is Patience.
	Patience, Dial time.Duration
	// Keep a session whose write was refused: for instances that refuse all the time.
	Keep bool
	// Most acknowledgements kept; the run ends with an error beyond it.
	Most int
}

// Run is a ledger that is being written.
type Run struct {
	cfg    Config
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	acks    []Ack
	doubt   map[Entry]bool
	refused int
	last    error
	full    bool
}

// Start begins to write; Stop ends it.
func Start(ctx context.Context, cfg Config) *Run {
	if cfg.Dial == 0 {
		cfg.Dial = cfg.Patience
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{cfg: cfg, cancel: cancel, doubt: map[Entry]bool{}}
	for w := range cfg.Writers {
		r.done.Go(func() { r.write(ctx, cfg.First+w) })
	}
	return r
}

// Newest is the newest acknowledgement so far.
func (r *Run) Newest() (Ack, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acks) == 0 {
		return Ack{}, false
	}
	return r.acks[len(r.acks)-1], true
}

// Acknowledged is how many writes were acknowledged so far, and the last refusal.
func (r *Run) Acknowledged() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acks), r.last
}

// Refused counts the statements and sessions that failed so far. Stop adds those that it calls off.
func (r *Run) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// Stop ends the writers and returns what was acknowledged.
func (r *Run) Stop() (Account, error) {
	r.cancel()
	r.done.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return Account{}, fmt.Errorf("more than %d acknowledgements: raise Most or end the run earlier", r.cfg.Most)
	}
	slices.SortFunc(r.acks, func(a, b Ack) int { return a.Ended.Compare(b.Ended) })
	return Account{Acks: r.acks, InDoubt: r.doubt, Refused: r.refused}, nil
}

// write is one writer: a session is opened anew after every error, and an entry in doubt is never sent again.
func (r *Run) write(ctx context.Context, writer int) {
	var s Session
	defer func() {
		if s != nil {
			s.Close()
		}
	}()
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for seq := int64(1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s == nil {
			var err error
			if s, err = r.open(ctx); err != nil {
				r.refuse(err)
				continue
			}
		}
		e := Entry{Writer: writer, Seq: seq}
		began := time.Now()
		origin, err := r.one(ctx, s, e)
		inDoubt := errors.Is(err, ErrInDoubt)
		switch {
		case err == nil:
			if !r.ack(Ack{Entry: e, Origin: origin, Began: began, Ended: time.Now()}) {
				return
			}
			seq++
			continue
		case inDoubt:
			r.mu.Lock()
			r.doubt[e] = true
			r.mu.Unlock()
			seq++
		}
		r.refuse(err)
		if r.cfg.Keep && !inDoubt {
			continue
		}
		s.Close()
		s = nil
	}
}

func (r *Run) open(ctx context.Context) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Dial)
	defer cancel()
	return r.cfg.Store.Open(ctx)
}

func (r *Run) one(ctx context.Context, s Session, e Entry) (Origin, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Patience)
	defer cancel()
	return s.Write(ctx, e)
}

func (r *Run) ack(a Ack) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acks) >= r.cfg.Most {
		r.full = true
		return false
	}
	r.acks = append(r.acks, a)
	return true
}

func (r *Run) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
	r.last = err
}
