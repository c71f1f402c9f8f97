package agent

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// reporter composes the agent's report and tells those who watch when it changes.
type reporter struct {
	cfg   Config
	clock lease.Clock
	certs *certificates
	// restartDone reads the newest token.
	restartDone func() string
	// exchange is what is told of the exchange of this program; nil for nothing.
	exchange func() (digest string, under *engine.Exchange)

	mu           sync.Mutex
	aim          engine.Aim
	revision     string
	hasAim       bool
	until        lease.Time // when the aim's switchover expires
	recoverUntil lease.Time // and its recovery
	sample       sample
	handOver     *engine.HandOver
	raised       *engine.Raise
	heard        lease.LeaderAt    // the newest word of a leader that this member followed
	former       string            // the newest leader that was known
	ailing       string            // why the member cannot do its work
	step         lease.Time        // when the server last kept up with its leader, or had none to keep up with
	aborted      map[string]string // switchover or recovery that was called off, and why; of the newest few
	current      engine.Report
	at           time.Time
	changed      chan struct{} // closed and made anew at each change
}

func newReporter(cfg Config, clock lease.Clock, certs *certificates, restartDone func() string) *reporter {
	return &reporter{cfg: cfg, clock: clock, certs: certs, restartDone: restartDone, aborted: map[string]string{}, changed: make(chan struct{})}
}

// get returns the newest report, when it was made, and a channel that is closed at the next change of state.
func (r *reporter) get() (engine.Report, time.Time, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.at, r.changed
}

func (r *reporter) want(a engine.Aim, revision string, until, recoverUntil lease.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aim, r.revision, r.hasAim, r.until, r.recoverUntil = a, revision, true, until, recoverUntil
	r.compose()
}

func (r *reporter) look(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sample = s
	if s.Leader.End.Known {
		r.heard = s.Leader
	}
	if d := s.Word.Decision; d.Role != lease.RoleReplica || d.Upstream == "" || s.Report.LagBytes >= 0 || r.step == 0 {
		r.step = r.clock.Now()
	}
	r.compose()
}

// behindFor is how long a replica may receive nothing from a leader that there is before it is not ready any more: what it says to readers
// grows old. One whose leader is gone goes on serving them.
const behindFor = 15 * time.Second

// ail says why the member cannot do its work; empty once it can.
func (r *reporter) ail(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ailing = why
	r.compose()
}

// keep what was not looked up of this very moment; false while a report is being made, which asks volumes.
func (r *reporter) keep() (keptReporter, bool) {
	if !r.mu.TryLock() {
		return keptReporter{}, false
	}
	defer r.mu.Unlock()
	return keptReporter{HandOver: r.handOver, Raised: r.raised, Former: r.former, Step: r.step, Aborted: maps.Clone(r.aborted)}, true
}

// maxAborted bounds the switchovers that are remembered as called off.
const maxAborted = 8

// event takes what the protocol tells of a change of hands.
func (r *reporter) event(e lease.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, at := r.clock.Now(), time.Now()
	switch e.Kind {
	case lease.EventElected, lease.EventPromoted, lease.EventRouted:
		r.handOver = &engine.HandOver{
			Epoch: int64(e.Epoch), Cause: e.Cause, Why: e.Line.Why, From: r.handOverFrom(e),
			Waited: e.Line.WaitedFor(), Seen: wall(e.Line.Seen, now, at), Released: wall(e.Line.Released, now, at),
			Expired: wall(e.Line.Expired, now, at), Elected: wall(e.Line.Elected, now, at),
			Promoted: wall(e.Line.Promoted, now, at), Routed: wall(e.Line.Routed, now, at),
			Synchronous: r.aim.Synchronous, Ahead: -1,
		}
		if h := r.heard; h.End.Known && h.Name == r.handOver.From && e.Line.Elected > h.Heard {
			r.handOver.Quiet = e.Line.Elected.Sub(h.Heard).Milliseconds()
		}
	case lease.EventRaised:
		r.raised = &engine.Raise{Epoch: int64(e.Epoch), Why: e.Cause, At: at.UnixMilli()}
	case lease.EventAborted:
		if s := r.aim.Switchover; s != nil {
			r.callOff(s.ID, e.Cause)
		}
	case lease.EventRefused:
		if o := r.aim.Recovery; o != nil {
			r.callOff(o.ID, e.Cause)
		}
	case lease.EventReleased, lease.EventExpired, lease.EventSuperseded, lease.EventGaveUp, lease.EventMembers,
		lease.EventDegraded, lease.EventRestored, lease.EventIgnored, lease.EventBroken:
		return
	}
	r.compose()
}

// measured is the newest change of hands with how far the old leader was ahead, by the record that says where the new one began.
func (r *reporter) measured(record lease.Record) *engine.HandOver {
	h := r.handOver
	if h == nil || int64(record.Epoch) != h.Epoch || !record.Start.Known || r.heard.Name != h.From || r.heard.End.Rank != record.Start.Rank {
		return h
	}
	told := *h
	told.Ahead = int64(max(r.heard.End.At, record.Start.At) - record.Start.At)
	r.handOver = &told
	return r.handOver
}

func (r *reporter) callOff(id, why string) {
	if len(r.aborted) >= maxAborted {
		clear(r.aborted)
	}
	r.aborted[id] = why
}

// handOverFrom is who led before; the first word of a hand-over knows it, the later ones keep it.
func (r *reporter) handOverFrom(e lease.Event) string {
	if r.handOver != nil && r.handOver.Epoch == int64(e.Epoch) {
		return r.handOver.From
	}
	if r.former == r.cfg.Instance {
		return ""
	}
	return r.former
}

// compose makes the report anew and wakes those who watch, if the state differs.
func (r *reporter) compose() {
	next := r.build()
	differs := !reflect.DeepEqual(stateOf(next), stateOf(r.current))
	r.current, r.at = next, time.Now()
	if next.Leader != "" && (next.Leader != r.cfg.Instance || next.Leading) {
		r.former = next.Leader // until another one is known: between two leaders there is none; nor does one lead that has just been elected
	}
	if differs {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

func (r *reporter) build() engine.Report {
	w, d := r.sample.Word, r.sample.Word.Decision
	out := r.sample.Report
	out.Instance, out.UID, out.AgentVersion = r.cfg.Instance, r.cfg.UID, r.cfg.Version
	out.Revision, out.Architecture, out.Goroutines = r.revision, runtime.GOARCH, runtime.NumGoroutine()
	if r.exchange != nil {
		out.AgentDigest, out.Exchange = r.exchange()
	}
	// A member that lost its promise with its volume still has read the Lease.
	out.Epoch, out.Leader, out.Voters = int64(max(d.Epoch, d.Record.Epoch)), d.Leader, d.Record.Voters
	if out.Leader == "" && d.Record.Epoch >= d.Epoch {
		out.Leader = d.Record.Leader
	}
	out.Leading = d.Role == lease.RolePrimary
	out.MemoryKills = memoryKills(r.cfg.CgroupDir)
	if out.Leading && r.aim.Synchronous == synchronousPreferred {
		out.SyncWanted = d.SyncNeed // what it would wait for, if enough were there
	}
	out.RestartDone = r.restartDone()
	out.SecretsHash = r.certs.hash()
	if w.Server.Life == up {
		out.SecretsHash = w.Server.Uses // what is mounted but not taken yet must not be withdrawn
	}
	out.Data, out.WAL = r.current.Data, r.current.WAL
	if r.ailing == "" { // of one that hangs nothing is asked
		out.Data, out.WAL = volume(r.cfg.DataDir), volume(r.cfg.WALDir)
	}
	out.HandOver, out.Raised = r.measured(d.Record), r.raised
	if wait := r.sample.Wait; wait.For != lease.WaitNothing {
		out.Waits = &engine.Wait{For: string(wait.For), Text: wait.Words()}
	}
	out.Requests = r.answers()
	out.Converged = w.Settled && r.hasAim && w.Server.Life == wantedLife(d) && w.Trouble == (trouble{})
	if w.Server.Life != up {
		out.Ready = false
	}
	out.Role, out.State = roleTold(w, out), stateTold(w, r.aim, out.State)
	if d.Role == lease.RolePrimary && out.Role != engine.Primary || d.Role == lease.RoleStop || w.Server.Quiesced {
		out.Ready = false
	}
	if r.ailing != "" {
		out.Ready, out.Converged, out.Reason, out.Problem = false, false, volumeHangs, r.ailing
		return out
	}
	if out.Reason == "" && d.Reason == lease.ReasonOlder {
		out.Reason, out.Problem = leaseOlder, d.Reason
	}
	r.progress(&out)
	if still := r.clock.Now().Sub(r.step); out.Ready && out.Role == engine.Replica && still >= behindFor {
		out.Ready = false
		if out.Reason == "" {
			out.Reason, out.Problem = "NotFollowing", fmt.Sprintf("it has received nothing from %s for more than %s", d.Upstream, behindFor)
		}
	}
	switch {
	case w.Trouble.Reason == noPrimary && alone(d, r.cfg.Instance):
		out.Reason, out.Problem = "DataLost", "this instance has lost its data, and no other one holds it: bring the volume's content back from a backup, or delete the Database and create it anew; if another instance is left with data, kubectl plimsoll recover gives it the lead"
	case w.Trouble.Reason != "":
		out.Reason, out.Problem = w.Trouble.Reason, w.Trouble.Text
	case out.Reason != "":
	case r.sample.Err != nil && w.Server.Life == up && w.Server.Became != nil:
		out.Reason, out.Problem = "NotAnswering", "the server does not answer: "+r.sample.Err.Error()
	case w.Server.Life == down && w.Waits != "" && d.Role != lease.RoleStop:
		out.Reason, out.Problem = "Waiting", w.Waits
	case roomless(out.Data):
		out.Reason, out.Problem = volumeFull, "the data volume is full: raise spec.storage.size"
	case roomless(out.WAL):
		out.Reason, out.Problem = volumeFull, "the volume of the write-ahead log is full: raise spec.storage.wal.size"
	}
	return out
}

// progress tells of a replica that stands still: it is not ready, whatever it says of itself, and of one that something holds why.
func (r *reporter) progress(out *engine.Report) {
	st := r.sample.Stand
	if r.sample.Word.Decision.Role != lease.RoleReplica || !st.Failing && !st.Held {
		return
	}
	out.Ready = out.Ready && !st.Failing
	if out.Reason != "" {
		return // the driver knows why
	}
	out.Reason, out.Problem = standsStill, st.Words
	if st.Held {
		out.Reason = replayHeld
		return
	}
	if why := r.sample.Word.Withheld; why != "" {
		out.Problem += "; it is not copied anew: " + why
	}
}

const (
	// standsStill is the reason of a replica that applies nothing although its leader goes on; replayHeld of one that is kept from it.
	standsStill = "StandsStill"
	replayHeld  = "ReplayHeld"
)

// leaseOlder is the reason of a member that would take over, and may not: the Lease came back from a backup, or was lost, and nobody leads.
const leaseOlder = "LeaseOlder"

// roomless says that a volume has no room left to speak of.
func roomless(v engine.VolumeUse) bool { return v.Size > 0 && v.Size-v.Used < leastRoom }

// noPrimary is a driver's reason for data that it can copy from nobody.
const noPrimary = "NoPrimary"

// alone says that the member is the only voter by the Lease: nobody else has what was acknowledged.
func alone(d lease.Decision, self string) bool {
	return len(d.Record.Voters) == 1 && d.Record.Voters[0] == self
}

func wantedLife(d lease.Decision) life {
	if d.Role == lease.RoleStop || d.Role == lease.RoleNone {
		return down
	}
	return up
}

func roleTold(w word, r engine.Report) engine.Kind {
	if w.Server.Life != up {
		return engine.Stopped
	}
	if r.Role == "" {
		return engine.Replica // of a server that starts; nobody takes it for a primary before it says so
	}
	return r.Role
}

// stateTold is the server's state in a word; the driver's word holds where it knows better.
func stateTold(w word, a engine.Aim, said string) string {
	switch {
	case w.Server.Life == up && said == "running":
		return "running"
	case w.Server.Life == up:
		return "starting"
	case w.Busy == prepare && said != "" && said != "stopped":
		return said
	case w.Trouble.Reason != "":
		return "failed"
	case a.Stop:
		return "fenced"
	}
	return "stopped"
}

// answers to the request that the aim holds.
func (r *reporter) answers() []engine.Answer {
	s, d := r.aim.Switchover, r.sample.Word.Decision
	if o := r.aim.Recovery; o != nil {
		return []engine.Answer{r.recovering(*o)}
	}
	if s == nil {
		return nil
	}
	a := engine.Answer{ID: s.ID, State: "Running"}
	why, aborted := r.aborted[s.ID]
	switch {
	case d.Record.Switchover == s.ID:
		a.State = "Done"
	case d.Role != lease.RolePrimary:
		return nil // the leader answers
	case aborted:
		a.State, a.Message = "Failed", why
	case d.Phase != lease.PhaseNone:
	case r.clock.Now() >= r.until:
		a.State, a.Message = "Expired", "no fit member could take over in time"
	default:
		a.Message = "waits for a fit member to take over"
	}
	return []engine.Answer{a}
}

// recovering is how far a recovery is.
func (r *reporter) recovering(o engine.Recovery) engine.Answer {
	rec := r.sample.Word.Decision.Record
	a := engine.Answer{ID: o.ID, State: "Running"}
	why, refused := r.aborted[o.ID]
	switch {
	case rec.Recovered.ID == o.ID && r.sample.Report.Role == engine.Primary:
		a.State, a.Message = "Done", fmt.Sprintf("%s leads with epoch %d, at first as the only voter", r.cfg.Instance, rec.Epoch)
	case rec.Recovered.ID == o.ID:
		a.Message = r.cfg.Instance + " has the lead by the Lease, and is being promoted"
	case refused:
		a.State, a.Message = "Failed", why
	case r.clock.Now() >= r.recoverUntil:
		a.State, a.Message = "Expired", "it could not be begun in time"
	default:
		a.Message = "asks the others whether they know of a leader"
	}
	return a
}

// stateOf leaves out what changes all the time and is no change of state.
func stateOf(r engine.Report) engine.Report {
	r.Applied, r.Effort, r.Fell = engine.Position{}, 0, 0
	r.Position, r.LagBytes, r.WALBytes, r.Connections = engine.Position{}, 0, 0, 0
	r.Data, r.WAL, r.Goroutines = engine.VolumeUse{}, engine.VolumeUse{}, 0
	slots := make([]engine.Slot, len(r.Slots))
	for i, s := range r.Slots {
		s.Retained = 0
		slots[i] = s
	}
	r.Slots = slots
	return r
}

// volume measures the file system at the path; zero if there is none.
func volume(path string) engine.VolumeUse {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return engine.VolumeUse{}
	}
	size := int64(s.Blocks) * s.Bsize
	return engine.VolumeUse{Size: size, Used: size - int64(s.Bavail)*s.Bsize}
}
