package lease

// A member that is busy with nothing looks whether there is something to do:
// initialise, resume, or stand.

func (m *Machine) progressIdle() {
	if !m.hasFacts {
		return
	}
	if m.wantsLook() {
		m.readLease()
	}
	if !m.store.known || m.store.busy {
		return
	}
	if m.mayBootstrap() {
		m.bootstrap()
		return
	}
	if m.mine() {
		m.resume()
		return
	}
	if m.recovers() {
		m.recoverNow()
		return
	}
	if m.mayStand() {
		m.stand()
	}
}

// wantsLook says whether there is a reason to read the Lease without standing:
// none is a matter of time, so that an idle Database costs the API nothing.
func (m *Machine) wantsLook() bool {
	s, l := m.store, m.voter.leader
	switch {
	case !s.known:
		return true
	case l.leading && l.version > s.seen.Record.Version && s.readAt < l.at:
		// Once per request, and not faster: a Lease from a backup stays behind
		// until the leader has repaired it.
		return m.now.Sub(s.readAt) >= m.cfg.Heartbeat
	case s.heir && s.heirAt < l.at.Add(-m.cfg.Grant):
		return true
	case m.facts.Discard && s.readAt <= m.discardAt:
		return true
	case !s.seen.HasRecord && m.mayBootstrapOnceTold():
		return m.now >= m.cand.next && m.now.Sub(s.readAt) >= 2*m.cfg.Heartbeat
	}
	return false
}

// neverPromised says that no promise was made, but for an own bootstrap's.
func (m *Machine) neverPromised() bool {
	p := m.voter.promise
	return p.Epoch == 0 || p.Epoch == 1 && p.Candidate == m.cfg.Self
}

func (m *Machine) mayBootstrapOnceTold() bool {
	return !m.facts.HasData && m.neverPromised()
}

// mayBootstrap wants everything to be new: the permission, the directory, the
// promise. An own promise of epoch 1 is what an interrupted bootstrap left.
func (m *Machine) mayBootstrap() bool {
	s := m.store.seen
	return !s.HasRecord && s.Bootstrap == m.cfg.Self && s.ResourceVersion != "" &&
		!m.facts.HasData && m.facts.Server == ServerStopped && m.voter.bound == "" &&
		m.neverPromised() && m.voter.promise.Lease == 0 &&
		!m.fenced() && !m.leaving && m.now >= m.cand.next
}

func (m *Machine) bootstrap() {
	if !m.keeps(1, m.cfg.Self) {
		return
	}
	m.cand.epoch, m.cand.cause = 1, causeBootstrap
	m.cand.until = m.now.Add(m.cfg.Hold)
	m.cand.record = Record{
		Version: 1, Epoch: 1, Leader: m.cfg.Self, Voters: []string{m.cfg.Self},
		Timeline: 1, Start: Position{Known: true},
		History: []Generation{{Epoch: 1, Timeline: 1}},
	}
	m.stage, m.cand.swapSent = swapping, false
}

// mine says that the Lease and the promise both name this member, and that it
// has not ended that leadership: its agent restarted.
func (m *Machine) mine() bool {
	s, p := m.store.seen, m.voter.promise
	return s.HasRecord && !m.restored() && s.Record.Leader == m.cfg.Self && s.Record.Epoch == p.Epoch &&
		p.Candidate == m.cfg.Self && !p.Released && m.ended < p.Epoch && m.voter.disk.Epoch == p.Epoch
}

// resume claims the epoch again where the server can serve at once, and else
// releases it, so that the others need not wait for the grants to run out.
func (m *Machine) resume() {
	f, rec := m.facts, m.store.seen.Record
	if f.Server != ServerStopped && f.Server != ServerReplica || m.fenced() || m.leaving {
		return
	}
	alone := len(rec.Voters) == 1
	initial := rec.Version == 1 && alone // the first server may not have been initialised yet
	gone := !f.HasData && !initial
	if gone && f.Full {
		return // it had data, or it would not be full; it has not been looked at yet
	}
	if gone {
		m.noteOnce("the leader's data is gone")
	}
	switch {
	case gone && alone: // a person must restore it
	case !m.comesBack():
	case alone || f.BackAtOnce && !gone:
		m.cand.cause = causeResume
		m.cand.record = rec
		m.claim(rec.Epoch)
	default:
		m.lead = m.newLeader(rec)
		m.endLeadership("its agent restarted", "", Position{})
	}
}
