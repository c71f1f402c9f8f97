package database

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// attention is how long every agent of a Database is heard by itself after something was decided, or the leader's stream was in doubt.
	attention = 15 * time.Second
	// firstRelay is how long a leader has, from the opening of its stream, to pass on the others' first words, and nextRelay how long a
	// member may then be missing from what it tells: an agent speaks each 5 s.
	firstRelay = 2 * time.Second
	nextRelay  = 7 * time.Second
	// lookEvery is how often it is asked who is missing.
	lookEvery = time.Second
)

// ledBy notes who leads by the Lease. A new leader gets its time to pass the others on.
func (f *followed) ledBy(leader string) {
	if f.streams[leader] == nil {
		leader = ""
	}
	if leader != f.leader {
		f.leader, f.proven = leader, time.Time{}
		f.forgetRelayed()
	}
}

func (f *followed) forgetRelayed() {
	for _, s := range f.streams {
		s.relayed = time.Time{}
	}
}

// saysOf takes the leader's own word: one that does not lead speaks for nobody.
func (f *followed) saysOf(report engine.Report) {
	if !report.Leading {
		f.attend()
	}
}

// attend has every agent heard by itself for a while.
func (f *followed) attend() {
	f.plain = time.Now().Add(attention)
	f.forgetRelayed()
}

// each says that every agent is heard by itself now.
func (f *followed) each() bool { return f.awaited || !time.Now().After(f.plain) }

// doubt what a leader passed on: its stream has ended.
func (r *Reports) doubt(database types.NamespacedName, by *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.databases[database]; f != nil && by == f.streams[f.leader] {
		f.attend()
		r.balance(database, f)
	}
}

// balance opens and shuts connections, so that each agent is heard over its own or through the leader. What was opened to be sure is shut
// only once the leader has passed on a word.
func (r *Reports) balance(database types.NamespacedName, f *followed) {
	now := time.Now()
	lead := f.streams[f.leader]
	relays := lead != nil && !f.each()
	if relays && !lead.members {
		r.shut(lead)
		r.open(database, lead, true)
		f.proven = now.Add(firstRelay)
	}
	for _, s := range f.streams {
		passed := relays && now.Sub(s.relayed) < nextRelay
		switch {
		case s == lead && s.cancel != nil:
		case s.cancel != nil && passed && s.heard != nil:
			r.shut(s)
		case s.cancel == nil && !passed && (!relays || now.After(f.proven)):
			r.open(database, s, false)
		}
	}
}

// passedOn takes a word that a leader passed on of another member. It does not count while that one is heard by itself.
func (r *Reports) passedOn(ctx context.Context, database types.NamespacedName, by *stream, report engine.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.databases[database]
	if ctx.Err() != nil || f == nil || by != f.streams[f.leader] || f.each() || !by.leads() {
		return
	}
	s := f.streams[report.Instance]
	if s == nil {
		return
	}
	s.relayed = time.Now()
	if s.cancel == nil || s.heard == nil {
		r.take(database, s, Heard{Report: report, At: s.relayed, Relayed: true}, false)
	}
	r.balance(database, f)
}

// leads by its own word.
func (s *stream) leads() bool { return s.fresh() && !s.heard.Relayed && s.heard.Report.Leading }

// Attend has every agent of a Database heard by itself, since something is to be decided: what a leader passed on is no ground to act. A
// member that is not heard within warmUp is silent, whatever was passed on.
func (r *Reports) Attend(database types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.databases[database]
	if f == nil {
		return
	}
	f.attend()
	r.balance(database, f)
	for _, s := range f.streams {
		if s.heard != nil && s.heard.Relayed && (s.cancel == nil || time.Since(s.opened) > warmUp) {
			s.heard = nil // without a connection of its own because there are too many
		}
		f.awaited = f.awaited || s.heard != nil && s.heard.Relayed
	}
}

// look after members that nobody passes on any more, and those whose last word is too old.
func (r *Reports) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for database, f := range r.databases {
		r.balance(database, f)
		for _, s := range f.streams {
			if s.cancel == nil && s.expire() && r.queue != nil {
				r.queue.Add(requestFor(database))
			}
		}
	}
}
