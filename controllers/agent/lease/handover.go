package lease

import "slices"

// handOver is the orderly end of a leadership.
type handOver struct {
	phase   Phase
	id      string // of the switchover that asked
	heir    string // empty: nobody is fit, and the leader leaves all the same
	forced  bool   // the leader has to go, with or without a fit heir
	needed  Position
	aborted string // id of the switchover that was called off
	since   Time   // when it was begun
	fitAt   Time   // when the heir was fit last
}

// unwanted stands for the id of a hand-over because the leader is no member any
// more, or must discard its data.
const unwanted = "unwanted"

// progressHandOver walks prepare, quiesce, stop. It may turn back until the
// stop, and never after.
func (m *Machine) progressHandOver() {
	l, h := &m.lead, &m.lead.hand
	if h.heir != "" && m.fit(h.heir) {
		h.fitAt = m.now
	}
	id, heir, forced := m.wantsHandOver()
	if h.phase == PhaseNone {
		if id == "" && !forced && heir == "" {
			return
		}
		if forced && (m.alone() || !l.promoted) {
			m.stopForHandOver()
			return
		}
		if heir == "" && !forced || !l.promoted {
			return
		}
		*h = handOver{phase: PhasePreparing, id: id, heir: heir, forced: forced, aborted: h.aborted, since: m.now, fitAt: m.now}
		l.handUntil = m.now.Add(m.cfg.HandOver)
		l.nextRound = m.now
		return
	}
	h.forced = h.forced || forced
	if id != "" && heir == h.heir {
		h.id = id // it was asked for anew meanwhile
	}
	if h.forced && h.heir == "" || h.forced && !m.fit(h.heir) {
		h.heir = m.bestHeir()
	}
	obeyed := m.facts.Obeys >= m.roleAt && m.decided.Phase == h.phase
	if !obeyed || !m.facts.Quiesced {
		h.needed = Position{} // whatever was final is not any more
	}
	switch {
	case !h.forced && heir != h.heir:
		m.abortHandOver("no longer wanted, or the target is no longer fit")
	case m.now >= l.handUntil && m.looks():
		m.abortHandOver(m.unusable())
	case m.now >= l.handUntil && !h.forced:
		m.abortHandOver("out of time")
	case m.now >= l.handUntil:
		m.stopForHandOver()
	case h.phase == PhasePreparing && obeyed && m.facts.Prepared && m.successible():
		h.phase = PhaseQuiescing
		l.handUntil = m.now.Add(m.cfg.HandOver / 4)
		l.nextRound = m.now
	case h.phase == PhaseQuiescing && obeyed && m.facts.Quiesced && m.facts.Position.Known:
		m.passOn()
	}
}

// lookTime is how long a leader that has to go waits for the look at the Lease, in heartbeats.
const lookTime = 4

// looks says that a hand-over waits for a look at the Lease that is younger than itself, or for the repair of what was seen. Should it have
// been deleted, or etcd restored from a backup, nobody may be elected by what stands there: a leader that goes, perhaps because the backup
// knows its pod under an older UID, is the last who can repair it. And without the API server nobody can take over: one that need not go leads on, until the hand-over is called off.
func (m *Machine) looks() bool {
	h := m.lead.hand
	return h.phase == PhasePreparing && (m.store.readAt < h.since || m.restored()) && !m.hurries()
}

// unusable says why the Lease elects nobody after a look that was waited for in vain.
func (m *Machine) unusable() string {
	if m.store.readAt >= m.lead.hand.since {
		return "the Lease is missing or older than what stood there, and nobody is elected by it"
	}
	return "the API server does not answer, and nobody is elected without it"
}

// hurries says that this leader has to go, and has waited for the API server for long enough.
func (m *Machine) hurries() bool {
	h := m.lead.hand
	return h.forced && m.now.Sub(h.since) >= lookTime*m.cfg.Heartbeat
}

// successible says that the heir can be elected by the Lease, as far as that can be known in time: it was looked at, a repair has landed,
// and the heir has promised itself to the epoch that stands there now.
func (m *Machine) successible() bool {
	l := &m.lead
	if m.hurries() {
		return true
	}
	heir := l.hand.heir
	return !m.looks() && !l.change.active && (heir == "" || m.fit(heir) && l.peers[heir].answer.Promise >= l.epoch)
}

// passOn stops for the heir once it holds all, now that no session writes any more.
func (m *Machine) passOn() {
	l, h := &m.lead, &m.lead.hand
	if !h.needed.Known {
		l.nextRound = min(l.nextRound, m.now) // whether the heir has it, is asked at once
	}
	h.needed = m.facts.Position
	if h.heir != "" && l.peers[h.heir].answer.Position.Holds(h.needed) && m.fit(h.heir) {
		m.stopForHandOver()
	}
}

func (m *Machine) stopForHandOver() {
	h := &m.lead.hand
	cause := "handed over"
	if h.forced || m.leaving || m.fenced() {
		cause = "leaving"
	}
	by := m.deadline()
	if m.alone() {
		by = 0 // nobody else can lead: the server may take its time to write all out
	}
	m.stop(cause, by)
	if h.needed.Known {
		h.phase = PhaseStopping
	}
}

func (m *Machine) abortHandOver(why string) {
	l := &m.lead
	m.note(EventAborted, l.epoch, why)
	if l.hand.id == unwanted {
		m.voter.handicapUntil = m.now.Add(m.cfg.Handicap) // the next try
	}
	l.hand = handOver{aborted: l.hand.id}
	l.handUntil = 0
	l.nextRound = m.now
}

// wantsHandOver says whether and to whom the leader shall hand over now.
func (m *Machine) wantsHandOver() (id, heir string, forced bool) {
	s, l := m.aim.Switchover, &m.lead
	target := s.Target
	if target == "" {
		target = m.keepHeir() // the choice is the leader's
	}
	switch {
	case m.leaving || m.fenced():
		return "", m.bestHeir(), true
	case s.ID != "" && s.ID != l.hand.aborted && s.ID != l.record.Switchover && target != m.cfg.Self &&
		m.now < s.Expires && (m.fit(target) || m.bears(target)):
		return s.ID, target, false
	case len(m.aim.Members) > 0 && (m.facts.Discard || !slices.Contains(m.aim.Members, m.cfg.Self)) &&
		m.now >= m.voter.handicapUntil && m.now >= m.line.Elected.Add(m.cfg.Handicap):
		// Not at once: two members with aims of different age would pass it to and fro.
		return unwanted, m.keepHeir(), false
	}
	return "", "", false
}

// keepHeir stays with the heir that was chosen as long as that can be.
func (m *Machine) keepHeir() string {
	if h := m.lead.hand.heir; m.fit(h) || m.bears(h) {
		return h
	}
	return m.bestHeir()
}

// bearTime is how long the heir of a hand-over may be unfit before that is called off, in heartbeats.
const bearTime = 3

// bears says that the heir of the hand-over that is under way was fit a moment ago: on a busy machine an answer, or a look at the server, comes
// late now and then. Nothing is passed on to it meanwhile.
func (m *Machine) bears(heir string) bool {
	h := m.lead.hand
	return h.phase != PhaseNone && heir != "" && heir == h.heir && m.now.Sub(h.fitAt) <= bearTime*m.cfg.Heartbeat
}

// fit says whether a member could take over: a voter with data that answers,
// and in whom nothing speaks against leading.
func (m *Machine) fit(name string) bool {
	p, ok := m.lead.peers[name]
	return ok && m.lead.record.IsVoter(name) && m.lead.record.Electable(name) && m.renewed(name) && p.answer.Able && p.answer.Position.Known
}

// bestHeir returns the fit voter with the best position, or nobody.
func (m *Machine) bestHeir() string {
	best := ""
	for _, v := range m.lead.record.Voters {
		if v == m.cfg.Self || !m.fit(v) {
			continue
		}
		wanted := slices.Contains(m.aim.Members, v) || len(m.aim.Members) == 0
		if wanted && (best == "" || m.lead.peers[v].answer.Position.Compare(m.lead.peers[best].answer.Position) > 0) {
			best = v
		}
	}
	return best
}
