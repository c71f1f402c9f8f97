// Package journal tells of statements that were slow or failed, one by one.
package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Sink takes entries to where people look for them.
type Sink interface {
	// Name of the sink in metrics and logs.
	Name() string
	// Send returns when all entries are taken, or with the reason why they are not: RefusedError, or any other if nobody answered.
	Send(ctx context.Context, entries []Entry) error
}

// RefusedError says that a sink was reached, and did not want so many entries.
type RefusedError struct {
	Entries int
	Why     error
}

func (e *RefusedError) Error() string { return e.Why.Error() }

// Unwrap gives the reason.
func (e *RefusedError) Unwrap() error { return e.Why }

// Bounds.
const (
	// mostWaiting bounds the entries that wait for a sink. One has at most some kilobytes.
	mostWaiting = 4096
	// mostAtOnce bounds those that are sent at one time, and linger is how long the first of them waits for others.
	mostAtOnce, linger = 256, 500 * time.Millisecond
	// sendMost bounds one Send, and lastMost all that are under way or to come when the journal ends.
	sendMost, lastMost = time.Minute, 5 * time.Second
)

// Journal hands entries to sinks, each of which has a queue of its own: one that is slow holds up nobody.
type Journal struct {
	desks []*desk
}

// desk is a sink and who waits for it.
type desk struct {
	sink    Sink
	metrics *Metrics
	log     logr.Logger
	waiting chan Entry
	said    string // the last failure that was logged
}

// New makes a journal of these sinks.
func New(metrics *Metrics, log logr.Logger, sinks ...Sink) *Journal {
	j := &Journal{}
	for _, s := range sinks {
		metrics.begin(s.Name())
		j.desks = append(j.desks, &desk{sink: s, metrics: metrics, log: log.WithValues("sink", s.Name()), waiting: make(chan Entry, mostWaiting)})
	}
	return j
}

// Add takes entries and never waits: what finds no room is counted as lost.
func (j *Journal) Add(entries []Entry) {
	for _, d := range j.desks {
		for i, e := range entries {
			select {
			case d.waiting <- e:
				continue
			default:
			}
			d.metrics.lost(d.sink.Name(), lostQueue, len(entries)-i)
			break
		}
	}
}

// Run sends until ctx ends, and then for a moment what is waiting.
func (j *Journal) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, d := range j.desks {
		all.Go(func() { d.run(ctx) })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	const more = 2 * lastMost // a write to a pipe that nobody reads never ends
	select {
	case <-ended:
		return nil
	case <-time.After(more):
		return fmt.Errorf("a receiver of statements has not ended within %v", more)
	}
}

func (d *desk) run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastMost, cancel) })()
	for ctx.Err() == nil {
		d.send(sending, d.gather(ctx))
	}
	for entries := d.there(); len(entries) > 0; entries = d.there() {
		d.send(sending, entries)
	}
}

// gather waits for an entry, and a moment longer for others.
func (d *desk) gather(ctx context.Context) []Entry {
	var entries []Entry
	select {
	case <-ctx.Done():
		return nil
	case e := <-d.waiting:
		entries = append(entries, e)
	}
	enough := time.NewTimer(linger)
	defer enough.Stop()
	for len(entries) < mostAtOnce {
		select {
		case e := <-d.waiting:
			entries = append(entries, e)
		case <-enough.C:
			return entries
		case <-ctx.Done():
			return entries
		}
	}
	return entries
}

// there is what is waiting now.
func (d *desk) there() (entries []Entry) {
	for len(entries) < mostAtOnce {
		select {
		case e := <-d.waiting:
			entries = append(entries, e)
		default:
			return entries
		}
	}
	return entries
}

func (d *desk) send(ctx context.Context, entries []Entry) {
	if len(entries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendMost)
	defer cancel()
	name := d.sink.Name()
	err := d.sink.Send(ctx, entries)
	lost := 0
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		lost = min(refused.Entries, len(entries))
		d.metrics.lost(name, lostRefused, lost)
	case err != nil:
		lost = len(entries)
		d.metrics.lost(name, lostFailed, lost)
	}
	d.metrics.sent(name, len(entries)-lost)
	d.say(err)
}

// say logs a failure when it is another one than the last.
func (d *desk) say(err error) {
	if err == nil {
		if d.said != "" {
			d.log.Info("statements are told again")
		}
		d.said = ""
		return
	}
	if said := err.Error(); said != d.said {
		d.said = said
		d.log.Error(err, "statements that were slow or failed are not told")
	}
}
