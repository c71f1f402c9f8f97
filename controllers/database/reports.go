package database

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// silentAfter is when an instance's last report no longer counts: an agent reports every 5 s, so two are missing.
	silentAfter = 12 * time.Second
	// A stream that ends is opened again after a pause that doubles between these.
	minPause = 250 * time.Millisecond
	maxPause = 15 * time.Second
	// nudgeEvery bounds how often a Database is looked at again because logins are refused, which anyone who reaches it can cause.
	nudgeEvery = time.Second
	// warmUp is how long a manager that has just begun waits for the first word of agents that were there before it: without it,
	// every restart of the manager would tell that all Databases are down.
	warmUp = 5 * time.Second
	// maxStreams bounds the streams of one manager.
	maxStreams = 4096
)

// Target is the agent of one instance.
type Target struct {
	Namespace, Database, Instance string
	// UID of the Database.
	UID string
	// PodUID and PodIP of the instance's pod: a new pod is a new target.
	PodUID, PodIP string
}

// Agents is how the manager talks to agents.
type Agents interface {
	// SetAim publishes an aim.
	SetAim(ctx context.Context, to Target, aim engine.Aim) error
	// WatchReports calls heard for each report until the stream or the context ends, or nothing was heard for too long.
	WatchReports(ctx context.Context, from Target, heard func(engine.Report)) error
	// WatchMembers is WatchReports with the reports of other members that this one passes on.
	WatchMembers(ctx context.Context, from Target, heard func(engine.Report)) error
	// Exchange sends an agent the program that it is to become.
	Exchange(ctx context.Context, to Target, p client.Program) error
	// Forget closes what is kept open for a Database that is gone.
	Forget(database types.NamespacedName)
}

// Heard is the newest word of an agent.
type Heard struct {
	Report engine.Report
	At     time.Time
	// Relayed says that the leader passed it on: good to tell how things are, and not enough to change anything by.
	Relayed bool
}

// Reports holds the newest report of every instance, and wakes the reconciler when what an instance says of its state changes; a position
// that moves wakes nobody. Of a Database at rest it keeps one stream, to its leader, which passes on what the others say; else one to
// each agent that it is told to follow.
type Reports struct {
	agents Agents
	log    logr.Logger
	max    int

	base   context.Context // ends with Start: streams belong to the elected manager alone
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	queue     workqueue.TypedRateLimitingInterface[reconcile.Request]
	databases map[types.NamespacedName]*followed
	count     int
	dropped   int64 // streams refused at the bound
	broken    int64 // streams that ended by themselves
	stopped   bool
}

// followed is what is known of one Database's agents.
type followed struct {
	begun   time.Time // when it was first followed; zero once it is warm
	streams map[string]*stream
	leader  string // by the Lease; empty where none is followed
	// plain is until when every agent is heard by itself, and proven since when the leader has had its time to pass others on.
	plain, proven time.Time
	// awaited is true from when a pass wanted each one's own word until the next one has read it, however long the queue is.
	awaited bool
}

// stream is an agent that is followed, over a connection of its own or not.
type stream struct {
	target  Target
	cancel  context.CancelFunc // ends its connection; nil while it has none
	members bool               // it passes others on
	opened  time.Time
	refused bool // at the bound, since it was open last
	heard   *Heard
	relayed time.Time // when the leader last passed on a word of it
	nudged  time.Time
}

// NewReports returns an empty store.
func NewReports(agents Agents, log logr.Logger) *Reports {
	base, cancel := context.WithCancel(context.Background())
	return &Reports{agents: agents, log: log, max: maxStreams, base: base, cancel: cancel, databases: map[types.NamespacedName]*followed{}}
}

// Source hands the reconciler's queue to the store. The queue holds a Database once, so waking it cannot pile up.
func (r *Reports) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue = queue
		return nil
	})
}

// NeedLeaderElection says that only the elected manager opens streams.
func (r *Reports) NeedLeaderElection() bool { return true }

// Start keeps an eye on who is heard until the end of the manager, then ends every stream.
func (r *Reports) Start(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look.C:
			r.look()
		}
	}
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.cancel()
	r.done.Wait()
	return nil
}

// Follow makes the targets the ones of a Database that are listened to, and returns what was heard of each by instance. Leader is who
// leads by the Lease.
func (r *Reports) Follow(database types.NamespacedName, targets []Target, leader string) map[string]Heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.databases[database]
	if f == nil {
		f = &followed{begun: time.Now(), streams: map[string]*stream{}}
		r.databases[database] = f
	}
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.Instance] = true
		if s := f.streams[t.Instance]; s != nil && s.target == t {
			continue
		}
		r.shut(f.streams[t.Instance])
		f.streams[t.Instance] = &stream{target: t}
	}
	for name, s := range f.streams {
		if !wanted[name] {
			r.shut(s)
			delete(f.streams, name)
		}
	}
	f.ledBy(leader)
	r.balance(database, f)
	f.awaited = false
	return f.read()
}

// Forget ends the streams of a Database that is gone.
func (r *Reports) Forget(database types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.databases[database]
	if f == nil {
		return
	}
	for _, s := range f.streams {
		r.shut(s)
	}
	delete(r.databases, database)
}

// Warm says that every agent of a Database was heard since this manager began, or had its time to speak. What silence means is
// not known before.
func (r *Reports) Warm(database types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.databases[database]
	if f == nil || f.begun.IsZero() {
		return true
	}
	for _, s := range f.streams {
		if s.heard == nil && time.Since(f.begun) < warmUp {
			return false
		}
	}
	f.begun = time.Time{}
	return true
}

func (f *followed) read() map[string]Heard {
	out := make(map[string]Heard, len(f.streams))
	for name, s := range f.streams {
		if s.fresh() {
			out[name] = *s.heard
		}
	}
	return out
}

// fresh says that the last word still counts.
func (s *stream) fresh() bool { return s.heard != nil && time.Since(s.heard.At) < silentAfter }

// open a connection to an agent that has none.
func (r *Reports) open(database types.NamespacedName, s *stream, members bool) {
	if r.stopped {
		return
	}
	if r.count >= r.max {
		if !s.refused { // it is tried again each second
			r.dropped++
			r.log.Info("too many instances to follow; this one is treated as silent", "database", database, "instance", s.target.Instance, "bound", r.max)
		}
		s.refused = true
		return
	}
	ctx, cancel := context.WithCancel(r.base)
	s.cancel, s.members, s.opened, s.refused = cancel, members, time.Now(), false
	r.count++
	r.done.Add(1)
	go r.run(ctx, database, s, members)
}

func (r *Reports) shut(s *stream) {
	if s == nil || s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel, s.members = nil, false
	r.count--
}

// run keeps one stream open until it is no longer wanted.
func (r *Reports) run(ctx context.Context, database types.NamespacedName, s *stream, members bool) {
	defer r.done.Done()
	pause, known := minPause, false
	for ctx.Err() == nil {
		err := r.listen(ctx, database, s, members, func() { pause, known = minPause, true })
		if ctx.Err() != nil {
			return
		}
		r.log.V(1).Info("an agent's stream ended", "database", database, "instance", s.target.Instance, "error", err)
		// One that ends in good order has lasted for its time, or its agent leaves: that shows when it is dialled again.
		if !errors.Is(err, io.EOF) {
			r.mu.Lock()
			r.broken++
			r.mu.Unlock()
			if members && known { // one that never spoke has its time: a manager that has just begun does not know the authority yet
				r.doubt(database, s)
			}
			known = false
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(pause/2+rand.N(pause), r.untilSilent(s))):
		}
		if r.expire(s) {
			r.wake(database)
		}
		pause = min(2*pause, maxPause)
	}
}

// listen reads one stream. WatchReports ends it when it falls silent: a connection to a machine that lost power never ends by
// itself.
func (r *Reports) listen(ctx context.Context, database types.NamespacedName, s *stream, members bool, ok func()) error {
	watch := r.agents.WatchReports
	if members {
		watch = r.agents.WatchMembers
	}
	return watch(ctx, s.target, func(report engine.Report) {
		switch {
		case report.UID != s.target.UID:
			return // an address that was given to another pod meanwhile
		case report.Instance == s.target.Instance:
			ok()
			r.hear(ctx, database, s, report)
		case members:
			r.passedOn(ctx, database, s, report)
		}
	})
}

// untilSilent is when the last report will no longer count, so that nobody is told late.
func (r *Reports) untilSilent(s *stream) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.heard == nil {
		return maxPause * 2
	}
	return max(time.Until(s.heard.At.Add(silentAfter)), 0)
}

// expire drops a report that is too old to count and says whether it did.
func (r *Reports) expire(s *stream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.expire()
}

func (s *stream) expire() bool {
	if s.heard == nil || s.fresh() {
		return false
	}
	s.heard = nil
	return true
}

// hear takes an instance's own word.
func (r *Reports) hear(ctx context.Context, database types.NamespacedName, s *stream, report engine.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return // of a connection that was given up meanwhile
	}
	f := r.databases[database]
	first := s.heard != nil && s.heard.Relayed // what waits for it goes on
	r.take(database, s, Heard{Report: report, At: time.Now()}, first)
	if f != nil && s == f.streams[f.leader] {
		f.saysOf(report)
		r.balance(database, f)
	}
}

// take a word, and wake the reconciler for news, or in any case.
func (r *Reports) take(database types.NamespacedName, s *stream, word Heard, anyCase bool) {
	before := s.heard
	s.heard = &word
	if r.queue == nil {
		return
	}
	request := requestFor(database)
	if before == nil || anyCase || !reflect.DeepEqual(stateOf(before.Report), stateOf(word.Report)) {
		r.queue.Add(request)
		return
	}
	if before.Report.AuthFailures == word.Report.AuthFailures {
		return
	}
	// The first refusal is looked at without delay, so that a changed password works at the client's next try.
	due := s.nudged.Add(nudgeEvery)
	switch {
	case !word.At.Before(due):
		s.nudged = word.At
		r.queue.Add(request)
	case !s.nudged.After(word.At):
		s.nudged = due
		r.queue.AddAfter(request, due.Sub(word.At))
	}
}

func (r *Reports) wake(database types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.queue.Add(requestFor(database))
	}
}

func requestFor(database types.NamespacedName) reconcile.Request {
	return reconcile.Request{NamespacedName: database}
}

// each calls f with every instance that was heard of, for metrics.
func (r *Reports) each(f func(database types.NamespacedName, instance string, heard Heard)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for database, followed := range r.databases {
		for name, s := range followed.streams {
			if s.fresh() {
				f(database, name, *s.heard)
			}
		}
	}
}
