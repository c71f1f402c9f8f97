package lease

// candidateState is a member's attempt to become leader.
type candidateState struct {
	epoch      uint64
	since      Time // of the current stage
	until      Time // give up then
	resend     Time
	next       Time // no attempt before
	tries      int
	older      int  // attempts one after the other that found a Lease that is not the newest
	asideSince Time // since when it steps aside for better ones; zero when it does not
	answers    map[string]Answer
	reached    []string // who said yes to the pre-vote: the others are not waited for
	swapSent   bool
	record     Record // what it swaps in
	cause      string
	lacks      Wait   // what the newest attempt failed for
	failed     string // and why it was given up
}

// The causes of a leadership, as events tell them.
const (
	causeBootstrap  = "bootstrap"
	causeResume     = "resume"
	causeFailover   = "failover"
	causeSwitchover = "switchover"
	causeRecover    = "recover"
)

func (m *Machine) retryLater() {
	m.cand.tries++
	m.cand.next = m.now.Add(m.backoff(m.cand.tries))
}

// able says whether this member could lead now. Others step aside only for
// members that could.
func (m *Machine) able() bool {
	f := m.facts
	return m.hasFacts && f.HasData && f.Position.Known && !f.Discard && f.Ailing == "" &&
		(f.Server == ServerReplica || f.Server == ServerStopped) &&
		!m.fenced() && !m.aim.Paused && !m.leaving && m.now >= m.voter.handicapUntil
}

func (m *Machine) mayStand() bool {
	v := &m.voter
	if m.now < m.cand.next || !m.able() || m.freeFor(m.cfg.Self) != "" {
		return false
	}
	return v.asideFor != m.cfg.Self || m.now >= v.asideUntil || !v.needed.Known || m.facts.Position.Holds(v.needed)
}

// stand starts an attempt: an heir that has just read the Lease need not read
// it again, and every other reads first. Without the API nobody asks anything,
// so an outage of it cannot unseat a leader.
func (m *Machine) stand() {
	if m.line.Released == 0 && m.line.Expired == 0 {
		m.line.Expired, m.line.Why = max(m.voter.boundUntil, m.started), "nothing was heard of it any more"
	}
	v := &m.voter
	if v.asideFor == m.cfg.Self && m.now < v.asideUntil && m.store.heir && m.store.heirAt > v.leader.at.Add(-m.cfg.Grant) {
		m.startAsking()
		return
	}
	if m.readLease() {
		m.stage = reading
	}
}

func (m *Machine) startAsking() {
	rec := m.store.seen.Record
	m.stage = idle
	if !m.restored() {
		m.cand.older = 0
	}
	if m.recovers() {
		m.startRecovery()
		return
	}
	switch {
	case m.restored():
		m.cand.older++
		m.retryLater()
		if m.standsAside() {
			m.noteOnce(ReasonOlder)
		}
		return
	case !rec.IsVoter(m.cfg.Self):
		m.cand.tries = max(m.cand.tries, 10)
		m.retryLater()
		return
	case !m.rules.electable(rec, m.cfg.Self):
		m.retryLater()
		if m.cand.tries > 2 { // a read may have crossed a swap
			m.noteOnce("writes were acknowledged that only " + rec.Leader + " is known to hold; nobody else may lead until it is back")
		}
		return
	case m.mine() || !m.mayStand():
		return
	}
	m.cand.answers = map[string]Answer{}
	m.cand.since = m.now
	if v := &m.voter; v.asideFor == m.cfg.Self && m.now < v.asideUntil {
		m.cand.cause = causeFailover
		if v.needed.Known {
			m.cand.cause = causeSwitchover
		}
		m.startStanding() // the release was the pre-vote: the leader has ended and chose
		return
	}
	m.cand.cause = causeFailover
	m.stage = asking
	for _, v := range rec.Voters {
		if v != m.cfg.Self {
			m.send(v, Request{Kind: KindPreVote, Epoch: max(rec.Epoch, m.voter.promise.Epoch) + 1, Led: m.ledBy(rec), Version: rec.Version})
		}
	}
}

func (m *Machine) progressAsking() {
	if m.cand.cause == causeRecover {
		m.progressRecovery()
		return
	}
	rec := m.store.seen.Record
	yes, behind, better := 1, 1, ""
	for _, v := range rec.Voters {
		a, ok := m.cand.answers[v]
		if !ok || !a.OK {
			continue
		}
		yes++
		own := m.facts.Position
		if !a.Position.Known || m.rules.covers(own, a.Position) {
			behind++
		}
		if a.Able && a.Position.Known && (a.Position.Compare(own) > 0 || a.Position.Compare(own) == 0 && v < m.cfg.Self) {
			better = v
		}
	}
	waited := m.now.Sub(m.cand.since)
	need := m.rules.majority(len(rec.Voters))
	switch {
	case waited < m.cfg.Ask && len(m.cand.answers) < len(rec.Voters)-1:
	case yes < need && waited < m.cfg.Heartbeat && len(m.cand.answers) < len(rec.Voters)-1:
	case yes < need:
		m.stage, m.cand.lacks = idle, m.lacking()
		m.retryLater()
	case better != "" && m.stepsAside():
		m.stage, m.cand.lacks = idle, Wait{For: WaitAside, Who: better, Why: "it holds more"}
		m.cand.next = m.now.Add(m.cfg.Heartbeat)
	case behind < need && waited < m.cfg.Heartbeat:
		// Somebody who could not lead holds more; wait for the others' answers.
	case behind < need:
		m.stage, m.cand.lacks = idle, m.lacking()
		m.retryLater()
	default:
		m.startStanding()
	}
}

// stepsAside is patient with better members, but not for ever: one of them may
// be cut off from the API.
func (m *Machine) stepsAside() bool {
	if m.cand.asideSince == 0 {
		m.cand.asideSince = m.now
	}
	return m.now.Sub(m.cand.asideSince) < m.cfg.Aside
}

func (m *Machine) startStanding() {
	epoch := max(m.store.seen.Record.Epoch, m.voter.promise.Epoch)
	for _, a := range m.cand.answers {
		epoch = max(epoch, a.Promise)
	}
	if m.cand.cause == causeRecover && m.restored() {
		epoch += leapEpochs
	}
	m.cand.epoch = epoch + 1
	m.cand.reached = nil
	for name, a := range m.cand.answers {
		if a.OK {
			m.cand.reached = append(m.cand.reached, name)
		}
	}
	m.cand.since, m.cand.resend = m.now, m.now
	m.cand.until = m.now.Add(m.cfg.Hold)
	m.cand.answers = map[string]Answer{}
	m.voter.holdUntil = m.cand.until
	m.stage = standing
	m.keeps(m.cand.epoch, m.cfg.Self) // its own support is bound by the same rules
}

func (m *Machine) progressStanding() {
	rec, epoch := m.store.seen.Record, m.cand.epoch
	if m.promised(epoch, m.cfg.Self) != "" {
		m.stage = idle
		m.retryLater()
		return
	}
	if m.cand.cause != causeRecover && !m.rules.electable(rec, m.cfg.Self) {
		m.giveUp("the Lease came to name another as the only one that holds all", "")
		return
	}
	if m.now >= m.cand.resend && m.cand.cause != causeRecover {
		m.cand.resend = m.now.Add(m.cfg.Heartbeat / 2)
		for _, v := range rec.Voters {
			if _, ok := m.cand.answers[v]; !ok && v != m.cfg.Self {
				m.send(v, Request{Kind: KindSupport, Epoch: epoch, Led: m.ledBy(rec), Version: rec.Version})
			}
		}
	}
	if !m.keeps(epoch, m.cfg.Self) || !m.final() {
		if m.now >= m.cand.until {
			m.giveUp("its own receiving did not end in time", "")
		}
		return
	}
	if m.cand.cause == causeRecover {
		m.startSwapping(m.recoveryRecord())
		return
	}
	support, better := m.supported(rec)
	switch {
	case support >= m.rules.majority(len(rec.Voters)):
		next := rec.next(epoch, m.cfg.Self, m.facts.Position)
		if m.cand.cause == causeSwitchover {
			next.Switchover = m.voter.switchover
		}
		m.startSwapping(next)
	case len(m.cand.answers) == len(rec.Voters)-1,
		m.heard(m.cand.reached) && m.now.Sub(m.cand.since) >= m.cfg.Ask:
		// Mostly two that stood in the same instant, each better by what it knew.
		m.cand.lacks = m.lacking()
		m.giveUp("not enough support", better)
	case m.now >= m.cand.until:
		m.cand.lacks = m.lacking()
		m.giveUp("too few answers", better)
	}
}

// supported counts the voters that support this member, itself among them, and names one that holds more and could lead.
func (m *Machine) supported(rec Record) (support int, better string) {
	own := m.facts.Position
	support, most := 1, own
	for _, v := range rec.Voters {
		a, ok := m.cand.answers[v]
		if !ok || !a.OK {
			continue
		}
		// A witness only promises. So that one of any majority holds what was acknowledged, enough of the others must have it before it
		// is: leaderDecision and fitsMark see to that.
		if m.rules.covers(own, a.Position) || !a.HasData && (v == rec.Witness || m.rules.blind(m.ledBy(rec) > 0)) {
			support++
		}
		if a.Able && a.Position.Known && a.Position.Compare(most) > 0 {
			most, better = a.Position, v
		}
	}
	return support, better
}

func (m *Machine) startSwapping(next Record) {
	m.cand.record = next
	m.stage, m.cand.swapSent = swapping, false
	m.cand.until = m.now.Add(m.cfg.Hold)
}

// ledBy is the epoch by which the record names this member, with its data, as the last leader; else zero. Nobody led since, or the
// record would say so and this member's swap over it would fail: every commit is in its own log.
func (m *Machine) ledBy(rec Record) uint64 {
	if rec.Leader != m.cfg.Self || !m.facts.HasData {
		return 0
	}
	return rec.Epoch
}

// heard says that all of these, and at least one, have answered.
func (m *Machine) heard(names []string) bool {
	for _, n := range names {
		if _, ok := m.cand.answers[n]; !ok {
			return false
		}
	}
	return len(names) > 0
}

func (m *Machine) progressSwapping() {
	if m.store.busy {
		return
	}
	// A bootstrap has no time to be in: nobody else may do it, and epoch 1 comes once.
	late := m.now >= m.cand.until && m.cand.cause != causeBootstrap
	if late || m.promised(m.cand.epoch, m.cfg.Self) != "" {
		m.giveUp("the swap did not come through in time", "")
		return
	}
	if !m.cand.swapSent {
		m.cand.swapSent = m.swapLease(m.cand.record)
		return
	}
	m.readLease() // the swap failed, or nobody knows
}

func (m *Machine) candidateReadLease() {
	s, c := m.store.seen, &m.cand
	switch {
	case s.HasRecord && s.Record.Epoch == c.epoch && s.Record.Leader == m.cfg.Self && s.Record.Version == c.record.Version:
		m.claim(c.epoch)
	case c.record.Version == 1 && !s.HasRecord && s.Bootstrap == m.cfg.Self,
		c.cause == causeRecover && s.ResourceVersion == m.aim.Recovery.LeaseVersion,
		s.HasRecord && s.Record.Version+1 == c.record.Version && s.Record.Epoch < c.epoch:
		// Still what it was when the voters were counted: again, on this version,
		// which also voids the earlier attempt if that is still on its way.
		c.swapSent = false
	default:
		m.giveUp("another was faster", "")
	}
}

// giveUp ends a candidacy. Its voters are free at once, and pointed at a
// better member where there is one.
func (m *Machine) giveUp(cause, heir string) {
	epoch := m.cand.epoch
	m.stage = idle
	m.cand.failed = cause
	m.note(EventGaveUp, epoch, cause)
	m.retryLater()
	m.end(epoch)
	m.startRelease(m.store.seen.Record.Voters, Request{Kind: KindRelease, Epoch: epoch, Heir: heir, Cause: cause})
	if heir != "" {
		m.voter.asideFor, m.voter.asideUntil = heir, m.now.Add(m.cfg.Aside)
	}
}

// end makes the end of this member's own epoch stick.
func (m *Machine) end(epoch uint64) {
	v := &m.voter
	m.ended = max(m.ended, epoch)
	if v.promise.Epoch == epoch && v.promise.Candidate == m.cfg.Self {
		p := v.promise
		p.Released = true
		m.persist(p)
	}
	v.void = epochOf{epoch, m.cfg.Self}
	v.holdUntil = 0
	if v.bound == m.cfg.Self {
		v.boundUntil = 0
	}
}
