package lease

import (
	"fmt"
	"time"
)

// stage is what a member is busy with.
type stage string

const (
	idle     stage = "Idle"     // votes, and follows a leader if there is one
	reading  stage = "Reading"  // wants to stand: reads the Lease
	asking   stage = "Asking"   // pre-vote
	standing stage = "Standing" // collects support
	swapping stage = "Swapping" // writes itself into the Lease
	claiming stage = "Claiming" // the Lease names it: collects grants
	leading  stage = "Leading"
	stopping stage = "Stopping" // led, and must hard-stop before it may release
)

// Machine is one member's part of the protocol. It is deterministic: all that
// it knows comes in through Step, all that it wants goes out as outputs.
type Machine struct {
	cfg     Config
	rules   rules
	now     Time
	out     []Output
	started Time
	stage   stage

	facts     Facts
	hasFacts  bool
	discardAt Time // when the agent first asked to discard the data
	aim       Aim
	leaving   bool

	voter    voterState
	store    storeState
	cand     candidateState
	lead     leaderState
	recovery recoverState
	sent     map[uint64]sentRequest
	seq      uint64
	back     bool   // Promise.Run counts this run
	ended    uint64 // highest epoch of this member's own that is over; there is no resume after a release
	outbox   release
	line     Line
	lineAt   Time // when the line began
	waiting  Wait // for a leader
	decided  Decision
	off      uint64 // serial since which the decision names no upstream
	roleAt   uint64 // serial since which role and phase are what they are
	syncAt   uint64 // serial since which the synchronous list is what it is
	told     map[string]bool
}

// sentRequest is kept until its answer comes or can no longer matter.
type sentRequest struct {
	to    string
	kind  Kind
	at    Time
	epoch uint64
}

// maxSent bounds the requests whose answers are awaited.
const maxSent = 512

// NewMachine returns the machine of a member that has just started, whose
// server is stopped, and whose promise file held p (or did not exist).
func NewMachine(cfg Config, now Time, p Promise, found bool) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("start member %s: %w", cfg.Self, err)
	}
	m := &Machine{
		cfg: cfg, rules: safeRules(), now: now, started: now, stage: idle, seq: firstSeq(p.Run, cfg.FirstSeq),
		sent: map[uint64]sentRequest{}, told: map[string]bool{},
	}
	m.voter = voterState{promise: p, disk: p, found: found}
	m.decided.Role = RoleNone
	return m, nil
}

// The number of a request is made of the run and of a random start within it: numbers grow within a run, and from one run that claims or
// releases a leadership to the next. So a voter can tell a release that an earlier run sent from the newest grant.
const (
	runBits = 40
	maxRun  = 1 << 23
)

func firstSeq(run, random uint64) uint64 { return run<<runBits | random&(1<<(runBits-1)-1) }

// comesBack makes sure that this run's requests are newer than those of any run before, also if it crashes, and says whether they are.
func (m *Machine) comesBack() bool {
	v := &m.voter
	if !m.back {
		m.back = true
		p := v.promise
		p.Run = (p.Run + 1) % maxRun
		m.seq = firstSeq(p.Run, m.cfg.FirstSeq)
		m.persist(p)
	}
	return v.disk.Run == v.promise.Run
}

// Step tells the machine one thing and returns what is to be done, in order.
func (m *Machine) Step(now Time, in Input) []Output {
	m.now = max(m.now, now)
	m.out = nil
	m.expire() // before anything else: a thawed leader must not act on what waited for it
	switch in := in.(type) {
	case Tick:
	case Received:
		m.receive(in)
	case Answered:
		m.answered(in.Answer)
	case LeaseRead:
		m.leaseRead(in)
	case LeaseSwapped:
		m.leaseSwapped(in)
	case Persisted:
		m.persisted(in)
	case Routed:
		m.routed(in)
	case Facts:
		if in.Discard && !m.facts.Discard {
			m.discardAt = m.now
		}
		m.facts, m.hasFacts = in, true
	case Aim:
		m.wanted(in)
	case Leaving:
		m.leaving = true
	}
	// Each pass may enable the next stage; the bound only guards against a bug.
	for range 8 {
		before := m.stage
		m.progress()
		if m.stage == before {
			break
		}
	}
	m.decide()
	m.account()
	return m.out
}

func (m *Machine) progress() {
	m.retryPersist()
	m.reconsiderParked()
	m.resendRelease()
	switch m.stage {
	case idle:
		m.progressIdle()
	case asking:
		m.progressAsking()
	case standing:
		m.progressStanding()
	case swapping:
		m.progressSwapping()
	case claiming, leading:
		m.progressLeader()
	case stopping:
		m.progressStopping()
	case reading:
	}
}

func (m *Machine) wanted(a Aim) {
	m.aim = a
	if m.voter.promise.Fenced != a.Fenced {
		p := m.voter.promise
		p.Fenced = a.Fenced
		m.persist(p)
	}
}

// fenced reads the persisted word, which is the aim's as soon as one came.
func (m *Machine) fenced() bool { return m.voter.promise.Fenced }

func (m *Machine) emit(o Output) { m.out = append(m.out, o) }

func (m *Machine) note(k EventKind, epoch uint64, cause string) {
	m.emit(Note{Event{Kind: k, Epoch: epoch, Cause: cause, Line: m.waited()}})
}

// noteOnce tells a standing trouble once per run, not once per attempt.
func (m *Machine) noteOnce(cause string) {
	if !m.told[cause] && len(m.told) < 64 {
		m.told[cause] = true
		m.note(EventBroken, m.voter.promise.Epoch, cause)
	}
}

func (m *Machine) send(to string, r Request) {
	m.seq++
	r.Database, r.From, r.Seq = m.cfg.Database, m.cfg.Self, m.seq
	for seq, s := range m.sent {
		if len(m.sent) >= maxSent || m.now.Sub(s.at) > m.cfg.Grant {
			delete(m.sent, seq)
		}
	}
	m.sent[m.seq] = sentRequest{to: to, kind: r.Kind, at: m.now, epoch: r.Epoch}
	m.emit(Send{To: to, Request: r})
}

func (m *Machine) answered(a Answer) {
	s, ok := m.sent[a.Seq]
	if !ok || s.to != a.From || a.Database != m.cfg.Database {
		return // late, of an earlier run, or of another Database
	}
	delete(m.sent, a.Seq)
	switch s.kind {
	case KindGrant:
		m.grantAnswered(s, a)
	case KindPreVote:
		if m.stage == asking && m.cand.cause != causeRecover && s.at >= m.cand.since {
			m.cand.answers[a.From] = a
		}
	case KindSupport:
		if m.stage == standing && s.epoch == m.cand.epoch {
			m.cand.answers[a.From] = a
		}
	case KindRelease:
		delete(m.outbox.to, a.From)
	case KindStatus:
		if m.stage == asking && m.cand.cause == causeRecover && s.at >= m.cand.since {
			m.cand.answers[a.From] = a
		}
	}
}

// Next returns when the machine wants a Tick at the latest.
func (m *Machine) Next() Time {
	next := m.now.Add(m.cfg.MaxRetry)
	at := func(t Time) {
		if t > m.now {
			next = min(next, t)
		}
	}
	at(m.started.Add(m.cfg.Grant))
	at(m.voter.boundUntil)
	at(m.voter.holdUntil)
	at(m.voter.asideUntil)
	at(m.voter.handicapUntil)
	at(m.voter.persistRetry)
	at(m.store.next)
	at(m.cand.next)
	if !m.store.seen.HasRecord {
		at(m.store.readAt.Add(2 * m.cfg.Heartbeat))
	}
	if len(m.voter.parked) > 0 || len(m.outbox.to) > 0 {
		at(m.now.Add(m.cfg.Heartbeat / 5))
	}
	switch m.stage {
	case asking, standing, swapping:
		at(m.now.Add(m.cfg.Heartbeat / 10))
	case claiming, leading:
		at(max(m.lead.nextRound, m.now+1)) // one that is due now was asked for after this step's
		at(m.lead.stopAt(m.facts.StopBudget))
		at(m.lead.routeNext)
		at(m.lead.until)
		at(m.lead.handUntil)
		if m.lead.step.shortSince != 0 {
			at(m.lead.step.shortSince.Add(m.patience()))
		}
	case idle, reading, stopping:
	}
	return next
}

// backoff doubles from a fifth of a heartbeat, with a jitter that differs
// between members but not between runs of a simulation.
func (m *Machine) backoff(tries int) time.Duration {
	d := m.cfg.Heartbeat / 5 << min(tries, 10)
	h := uint64(14695981039346656037)
	for _, c := range []byte(m.cfg.Self) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ uint64(tries)) * 1099511628211
	return min(d, m.cfg.MaxRetry) + time.Duration(h%uint64(m.cfg.Heartbeat/5))
}
