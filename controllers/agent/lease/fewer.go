package lease

import (
	"slices"
	"time"
)

// Mode preferred: writes go on with too few replicas, and nothing that was acknowledged is lost by a failover all the same. For that
// the Lease says, before the first commit that too few hold, that only this leader may be elected; and that is taken back once enough
// hold all again.

// step is how far the replicas are out of step with the leader, or back in it.
type step struct {
	shortSince Time     // since when too few follow; zero: enough do
	markAt     Time     // when at was taken
	at         Position // the leader's position then: who holds it has kept up since
	strict     bool     // degraded by the Lease, but every commit waits again: from the next mark on all are held
	until      Time     // strict: for how long to try
}

// mayGoOn says that a commit may be acknowledged that too few members hold: the Lease says so, a majority of the voters knows (or a
// backup of the record before could elect another), and it is not being taken back.
func (m *Machine) mayGoOn() bool {
	l := &m.lead
	return l.record.Degraded && m.aim.Preferred && !l.step.strict && m.toldVoters()
}

// progressStep says whether a change of the record was begun.
func (m *Machine) progressStep() bool {
	l := &m.lead
	if len(l.record.Data()) < 2 || !m.toldVoters() || !m.facts.Position.Known || m.facts.Server != ServerPrimary {
		l.step = step{}
		return false
	}
	short, silent := m.short()
	switch {
	case l.record.Degraded:
		return m.progressRestore(short)
	case !short:
		l.step.shortSince, l.followed = 0, true
	case l.step.shortSince == 0:
		l.step.shortSince = m.now
		l.nextRound = m.now
	}
	if !short || !m.aim.Preferred || !silent && m.now.Sub(l.step.shortSince) < m.patience() {
		return false
	}
	if !m.grantedSince(l.step.shortSince) {
		return false // it may be the one that is cut off: then the others must go on, and the Lease must let them
	}
	l.change = change{active: true, record: l.record.withDegraded(true), kind: EventDegraded, cause: "too few replicas follow"}
	m.pushChange()
	return true
}

// patience with replicas that answer and do not follow. After a change of hands the old leader must first start anew, which takes longer
// than anybody should wait.
func (m *Machine) patience() time.Duration {
	handed := m.cand.cause == causeFailover || m.cand.cause == causeSwitchover
	if handed && !m.lead.followed {
		return m.cfg.Heartbeat / 5
	}
	return m.slowness()
}

// slowness is for how long a replica that says nothing, or does not follow, may only be slow. Until then writes wait for it, and after it
// they go on with fewer: so it bounds what the loss of a replica costs writes, and an end before its time costs the election of anybody
// else for a moment, and two writes to the API server. Four rounds in a row must have been missed, as on a machine that is starved one or
// two are; and it is over before a grant is, so that the loss of a replica is noticed less than that of the leader.
func (m *Machine) slowness() time.Duration { return m.cfg.Grant - m.cfg.Heartbeat }

// slow says that the member may only be slow: it granted within that time.
func (m *Machine) slow(name string) bool {
	at, ok := m.lead.grants[name]
	return ok && m.now.Sub(at) <= m.slowness()
}

// short says that too few members follow for a commit to be held by a majority of those with data, and whether that many are silent:
// there is nothing to wait for then.
func (m *Machine) short() (short, silent bool) {
	l := &m.lead
	data := l.record.Data()
	need := m.rules.majority(len(data))
	answer, follow := 1, 1
	for _, v := range data {
		p := l.peers[v].answer
		if v == m.cfg.Self || !m.slow(v) || !p.HasData || p.Leave {
			continue
		}
		answer++
		if !m.facts.Counted || slices.Contains(m.facts.Following, v) {
			follow++
		}
	}
	// Who follows and takes nothing in, because its disk hangs, is no help either.
	s := &l.step
	if !l.record.Degraded && (!s.at.Known || m.heldBy(data, s.at)) {
		s.at, s.markAt = m.facts.Position, m.now
	}
	stuck := !l.record.Degraded && m.now.Sub(s.markAt) >= m.cfg.Handicap
	return follow < need || stuck, answer < need
}

// progressRestore takes the word back: first every commit waits again, then all that was acknowledged before is awaited, then the
// Lease is written.
func (m *Machine) progressRestore(short bool) bool {
	l, s := &m.lead, &m.lead.step
	switch {
	case short, s.strict && m.now >= s.until:
		*s = step{}
	case !s.at.Known:
		if !s.strict || m.facts.Obeys >= m.syncAt && !m.decided.Degraded {
			s.at, s.markAt = m.facts.Position, m.now
			l.nextRound = m.now
		}
	case !m.held(s.at):
	case !s.strict: // it is near: to wait for the rest will not take long
		*s = step{strict: true, until: m.now.Add(m.cfg.HandOver)}
	default:
		l.change = change{
			active: true, record: l.record.withDegraded(false), kind: EventRestored, cause: "enough replicas hold all again", mark: mark{at: s.at},
		}
		m.pushChange()
		return true
	}
	return false
}

// held says that what was acknowledged up to the position is on a majority of the voters with data.
func (m *Machine) held(at Position) bool { return m.heldBy(m.lead.record.Data(), at) }
