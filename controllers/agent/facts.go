package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// sampler asks the server how it is and tells the leadership and the reporter.
type sampler struct {
	engine Engine
	keeper *keeper
	clock  lease.Clock
	log    *slog.Logger
	certs  *certificates
	// facts and report take the newest.
	facts  func(lease.Facts)
	report func(sample)
	// status is the member's view of the leadership; nil where nobody tells.
	status func() lease.Status

	wake chan struct{}

	hasData atomic.Bool

	telling sync.Mutex
	ailing  string // why the member cannot do its work
	told    lease.Facts

	mu      sync.Mutex // one sample at a time
	primary int        // PID of the server process that was once seen as primary: it stays one until it ends
	last    sample
	moves   progress
}

// sample is one look at the server.
type sample struct {
	At     time.Time
	Word   word
	Report engine.Report
	// Err of a server that did not answer.
	Err error
	// Stand is how a replica's progress is, and Leader how far the log of the leader goes that it follows.
	Stand  stand
	Leader lease.LeaderAt
	// Wait is what the member waits for while nobody leads.
	Wait lease.Wait
}

const (
	settledEvery   = time.Second
	unsettledEvery = 100 * time.Millisecond
	handOverEvery  = 50 * time.Millisecond
	sampleTimeout  = 2 * time.Second
)

// run samples at a pace that fits what is going on, and at once when the keeper says that something changed.
func (s *sampler) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.now(ctx)
		timer := time.NewTimer(s.pace())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.wake:
		}
		timer.Stop()
	}
}

func (s *sampler) pace() time.Duration {
	w := s.keeper.told()
	s.mu.Lock()
	receiving := s.last.Report.Receiving
	s.mu.Unlock()
	switch {
	case w.Decision.Phase != lease.PhaseNone,
		w.Decision.Role == lease.RoleReplica && w.Decision.Upstream == "" && receiving:
		return handOverEvery
	case !w.Settled && w.Server.Life == up:
		return unsettledEvery
	}
	return settledEvery
}

func (s *sampler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// changed is told by the keeper. A leader's server that is gone is said at once, without a look at its files, which takes as long as the
// log since the last checkpoint is: the others wait for this word and for nothing else.
func (s *sampler) changed() {
	w := s.keeper.told()
	stopped := w.Settled && w.Decision.Role == lease.RoleStop
	if w.Server.Life == down && (stopped || w.Decision.Role == lease.RolePrimary && w.Busy != start) {
		s.tell(s.down(w))
	}
	s.nudge()
}

// down is what is known of a server that is down without a look at its files.
func (s *sampler) down(w word) lease.Facts {
	return lease.Facts{
		Obeys: w.Obeys, Server: lease.ServerStopped, HasData: s.hasData.Load(), StopBudget: s.keeper.budget.get(),
		BackAtOnce: w.Server.Restarting, Full: w.Server.Full, Fell: w.Server.Fell,
	}
}

// tell the leadership, with what the vital signs say at this moment.
func (s *sampler) tell(f lease.Facts) {
	s.telling.Lock()
	defer s.telling.Unlock()
	f.Ailing = s.ailing
	s.told = f
	s.facts(f)
}

// ail says why the member cannot do its work; empty once it can. The leadership hears of it at once and from here: a look at the server
// may hang on the same volume.
func (s *sampler) ail(why string) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.ailing = why
	s.told.Ailing = why
	s.facts(s.told) // older facts do no harm: they claim to obey an older decision
}

// now takes a sample.
func (s *sampler) now(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.keeper.told()
	asking, cancel := context.WithTimeout(ctx, sampleTimeout)
	r, err := s.engine.Driver.Report(asking)
	cancel()
	if ctx.Err() != nil {
		return
	}
	after := s.keeper.told()
	if after.Server.Life != before.Server.Life || after.Server.Kind != before.Server.Kind {
		s.nudge() // the report may be of either; the next one is not
	}
	if err != nil {
		r = engine.Report{LagBytes: -1, AuthFailures: s.last.Report.AuthFailures, Fell: s.last.Report.Fell}
	}
	if r.Position.Timeline != 0 {
		s.hasData.Store(true)
	}
	f := s.footing(before, after, r)
	s.last = sample{At: time.Now(), Word: after, Report: r, Err: err, Stand: s.moves.look(s.clock.Now(), f), Leader: f.Leader, Wait: s.leadership().Wait}
	s.keeper.observe(observed{Unfit: err == nil && s.engine.unfit(r), Connected: connected(r, err), Secrets: s.certs.hash(), Stand: s.last.Stand, Rebuilds: f.Leader.Rebuilds})
	s.tell(s.factsOf(before, after, r, err))
	s.report(s.last)
}

func (s *sampler) leadership() lease.Status {
	if s.status == nil {
		return lease.Status{}
	}
	return s.status()
}

// footing of a replica, by the newest report.
func (s *sampler) footing(before, w word, r engine.Report) footing {
	f := footing{Replica: w.Decision.Role == lease.RoleReplica && r.Role != engine.Primary, Turn: w.Turn}
	if w.Decision.Upstream != "" {
		f.Leader = s.leadership().Leader
	}
	f.Fell, f.Newest = r.Fell, w.Newest
	if w.Server.Life == up && before.PID == w.PID {
		f.PID, f.Applied, f.Streams, f.Effort, f.Hold = w.PID, r.Applied, r.LagBytes >= 0, r.Effort, r.Hold
	}
	return f
}

// pause the looks at the server: none is under way, and none begins until the lock is given back; false if that takes too long.
func (s *sampler) pause(patience time.Duration) bool {
	for end := time.Now().Add(patience); !s.mu.TryLock(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// connected counts the replicas that stream now, for mode preferred; negative for unknown.
func connected(r engine.Report, err error) int {
	if err != nil || r.Role != engine.Primary {
		return -1
	}
	return len(r.Streaming)
}

// factsOf says only what holds before and after the report was taken; between, the server may have ended or begun.
func (s *sampler) factsOf(before, after word, r engine.Report, err error) lease.Facts {
	f := lease.Facts{
		Obeys: min(before.Obeys, after.Obeys), HasData: s.hasData.Load(), StopBudget: s.keeper.budget.get(), Fell: after.Server.Fell,
		Receiving: err == nil && after.Server.Life == up && r.Receiving,
		Prepared:  before.Server.Checkpointed && after.Server.Checkpointed,
		Quiesced:  before.Server.Quiesced && after.Server.Quiesced && after.Server.Life == up,
	}
	f.BackAtOnce = after.Server.Life != up && after.Server.Restarting
	f.Discard, f.Full = discards(after), after.Server.Life != up && after.Server.Full
	f.CanWait = f.Discard && after.Server.Planned.Anew
	if err == nil && r.Position.Timeline != 0 {
		f.Position = lease.Position{Known: true, Rank: r.Position.Timeline, At: r.Position.Bytes, Text: r.Position.Text}
	}
	if connected(r, err) >= 0 {
		f.Following, f.Counted = r.Streaming, true
	}
	f.Server = serverState(before, after, r, err)
	if f.Server == lease.ServerUnknown && after.Server.Life == up && before.Server.Life == up && s.wasPrimary(after) {
		f.Server = lease.ServerPrimary
	}
	if f.Server == lease.ServerPrimary {
		s.primary = after.PID
	}
	return f
}

// wasPrimary says that this very server process was seen as primary: it cannot have become anything else.
func (s *sampler) wasPrimary(w word) bool { return w.PID != 0 && s.primary == w.PID }

func serverState(before, after word, r engine.Report, err error) lease.ServerState {
	switch {
	case before.Server.Life == down && after.Server.Life == down && after.Busy != start:
		return lease.ServerStopped
	case before.Server.Life != up || after.Server.Life != up:
		return lease.ServerUnknown
	case err == nil && r.State == "running" && r.Role == engine.Primary:
		return lease.ServerPrimary
	case before.Server.Kind == engine.Replica && after.Server.Kind == engine.Replica:
		return lease.ServerReplica // started in recovery and never told to leave it
	}
	return lease.ServerUnknown
}

// discards says that this member waits to be no voter, because its data must be rewound or copied anew.
func discards(w word) bool {
	return w.Server.Life == down && w.Decision.Role == lease.RoleReplica && w.Server.Planned != nil && w.Server.Discards
}
