package database

import (
	"context"
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
	// Exchange sends an agent the program that it is to become.
	Exchange(ctx context.Context, to Target, p client.Program) error
	// Forget closes what is kept open for a Database that is gone.
	Forget(database types.NamespacedName)
}

// Heard is the newest word of an agent.
type Heard struct {
	Report engine.Report
	At     time.Time
}

// Reports holds the newest report of every instance. It keeps one stream to each agent that it is told to follow, and wakes the
// reconciler when what an instance says of its state changes; a position that moves wakes nobody.
type Reports struct {
	agents Agents
	log    logr.Logger
	max    int

	base   context.Context // ends with Start: streams belong to the elected manager alone
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	streams map[types.NamespacedName]map[string]*stream
	begun   map[types.NamespacedName]time.Time // when a Database was first followed; zero once it is warm
	count   int
	dropped int64 // streams refused at the bound
	broken  int64 // streams that ended by themselves
	stopped bool
}

type stream struct {
	target Target
	cancel context.CancelFunc
	heard  *Heard
	nudged time.Time
}

// NewReports returns an empty store.
func NewReports(agents Agents, log logr.Logger) *Reports {
	base, cancel := context.WithCancel(context.Background())
	return &Reports{agents: agents, log: log, max: maxStreams, base: base, cancel: cancel, streams: map[types.NamespacedName]map[string]*stream{}, begun: map[types.NamespacedName]time.Time{}}
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

// Start waits for the end of the manager, then ends every stream.
func (r *Reports) Start(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.cancel()
	r.done.Wait()
	return nil
}

// Follow makes the targets the ones of a Database that are listened to, and returns what was heard of each by instance.
func (r *Reports) Follow(database types.NamespacedName, targets []Target) map[string]Heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.begun[database]; !known {
		r.begun[database] = time.Now()
	}
	current := r.streams[database]
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.Instance] = true
		if s := current[t.Instance]; s != nil && s.target == t {
			continue
		}
		r.end(database, t.Instance)
		r.begin(database, t)
	}
	for name := range r.streams[database] {
		if !wanted[name] {
			r.end(database, name)
		}
	}
	return r.read(database)
}

// Forget ends the streams of a Database that is gone.
func (r *Reports) Forget(database types.NamespacedName) {
	r.Follow(database, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.begun, database)
}

// Warm says that every agent of a Database was heard since this manager began, or had its time to speak. What silence means is
// not known before.
func (r *Reports) Warm(database types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.begun[database]
	if begun.IsZero() {
		return true
	}
	for _, s := range r.streams[database] {
		if s.heard == nil && time.Since(begun) < warmUp {
			return false
		}
	}
	r.begun[database] = time.Time{}
	return true
}

func (r *Reports) read(database types.NamespacedName) map[string]Heard {
	out := make(map[string]Heard, len(r.streams[database]))
	for name, s := range r.streams[database] {
		if s.heard != nil && time.Since(s.heard.At) < silentAfter {
			out[name] = *s.heard
		}
	}
	return out
}

func (r *Reports) begin(database types.NamespacedName, t Target) {
	if r.stopped {
		return
	}
	if r.count >= r.max {
		r.dropped++
		r.log.Info("too many instances to follow; this one is treated as silent", "database", database, "instance", t.Instance, "bound", r.max)
		return
	}
	ctx, cancel := context.WithCancel(r.base)
	s := &stream{target: t, cancel: cancel}
	if r.streams[database] == nil {
		r.streams[database] = map[string]*stream{}
	}
	r.streams[database][t.Instance] = s
	r.count++
	r.done.Add(1)
	go r.run(ctx, database, s)
}

func (r *Reports) end(database types.NamespacedName, instance string) {
	s := r.streams[database][instance]
	if s == nil {
		return
	}
	s.cancel()
	delete(r.streams[database], instance)
	r.count--
	if len(r.streams[database]) == 0 {
		delete(r.streams, database)
	}
}

// run keeps one stream open until it is no longer wanted.
func (r *Reports) run(ctx context.Context, database types.NamespacedName, s *stream) {
	defer r.done.Done()
	pause := minPause
	for ctx.Err() == nil {
		err := r.listen(ctx, database, s, func() { pause = minPause })
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.broken++
		r.mu.Unlock()
		r.log.V(1).Info("an agent's stream ended", "database", database, "instance", s.target.Instance, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(min(pause/2+rand.N(pause), r.untilSilent(s))):
		}
		if r.expire(database, s) {
			r.wake(database)
		}
		pause = min(2*pause, maxPause)
	}
}

// listen reads one stream. WatchReports ends it when it falls silent: a connection to a machine that lost power never ends by
// itself.
func (r *Reports) listen(ctx context.Context, database types.NamespacedName, s *stream, ok func()) error {
	return r.agents.WatchReports(ctx, s.target, func(report engine.Report) {
		if report.Instance != s.target.Instance || report.UID != s.target.UID {
			return // an address that was given to another pod meanwhile
		}
		ok()
		r.hear(database, s, report)
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
func (r *Reports) expire(_ types.NamespacedName, s *stream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.heard == nil || time.Since(s.heard.At) < silentAfter {
		return false
	}
	s.heard = nil
	return true
}

func (r *Reports) hear(database types.NamespacedName, s *stream, report engine.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := s.heard
	now := time.Now()
	s.heard = &Heard{Report: report, At: now}
	if r.queue == nil {
		return
	}
	request := reconcile.Request{NamespacedName: database}
	if before == nil || !reflect.DeepEqual(stateOf(before.Report), stateOf(report)) {
		r.queue.Add(request)
		return
	}
	if before.Report.AuthFailures == report.AuthFailures {
		return
	}
	// The first refusal is looked at without delay, so that a changed password works at the client's next try.
	due := s.nudged.Add(nudgeEvery)
	switch {
	case !now.Before(due):
		s.nudged = now
		r.queue.Add(request)
	case !s.nudged.After(now):
		s.nudged = due
		r.queue.AddAfter(request, due.Sub(now))
	}
}

func (r *Reports) wake(database types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.queue.Add(reconcile.Request{NamespacedName: database})
	}
}

// each calls f with every instance that was heard of, for metrics.
func (r *Reports) each(f func(database types.NamespacedName, instance string, heard Heard)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for database, streams := range r.streams {
		for name, s := range streams {
			if s.heard != nil && time.Since(s.heard.At) < silentAfter {
				f(database, name, *s.heard)
			}
		}
	}
}

// stateOf is a report without what moves all the time. Volumes and lag count by coarse steps, so that status follows them.
func stateOf(r engine.Report) engine.Report {
	r.Position = engine.Position{Timeline: r.Position.Timeline}
	r.LagBytes = lagClass(r.LagBytes)
	r.Data.Used, r.WAL.Used = percent(r.Data), percent(r.WAL)
	r.WALBytes, r.Connections, r.AuthFailures, r.Slots = 0, 0, 0, nil
	return r
}

// lagClass is -1 for unknown, else the power of sixteen megabytes that the lag is in.
func lagClass(lag int64) int64 {
	if lag < 0 {
		return -1
	}
	var class int64
	for limit := int64(16 << 20); lag >= limit && class < 8; limit *= 16 {
		class++
	}
	return class
}

// percent of a volume that is in use, 0 if its size is not known.
func percent(v engine.VolumeUse) int64 {
	if v.Size <= 0 {
		return 0
	}
	return int64(float64(v.Used) / float64(v.Size) * 100)
}

// counts are the streams that are open, were refused, and ended by themselves.
func (r *Reports) counts() (open int, dropped, broken int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count, r.dropped, r.broken
}
