package lease

import "slices"

// decide emits the standing decision when it has changed.
func (m *Machine) decide() {
	d, old := m.decision(), m.decided
	d.Serial = old.Serial
	same := sameOrder(d, old)
	if same && d.Deadline == old.Deadline {
		return
	}
	if !same {
		d.Serial++
		if d.Role != old.Role || d.Phase != old.Phase {
			m.roleAt = d.Serial
		}
		if d.Upstream == "" && old.Upstream != "" || old.Serial == 0 {
			m.off = d.Serial
		}
		if d.SyncNeed != old.SyncNeed || !slices.Equal(d.Sync, old.Sync) || d.Role != old.Role || d.Degraded != old.Degraded {
			m.syncAt = d.Serial
		}
	}
	m.decided = d
	m.emit(Decide{d})
}

// sameOrder compares all but the deadline. A record's version stands for its content.
func sameOrder(a, b Decision) bool {
	return a.Role == b.Role && a.Epoch == b.Epoch && a.Leader == b.Leader && a.Upstream == b.Upstream && a.UpstreamIP == b.UpstreamIP &&
		a.Timeline == b.Timeline && a.Phase == b.Phase && slices.Equal(a.Sync, b.Sync) && a.SyncNeed == b.SyncNeed &&
		a.Degraded == b.Degraded && a.Voter == b.Voter && a.MayWipe == b.MayWipe && a.Reason == b.Reason && sameRecord(a.Record, b.Record)
}

func (m *Machine) decision() Decision {
	rec := m.store.seen.Record
	d := Decision{Epoch: m.voter.promise.Epoch, Record: rec, Voter: rec.IsVoter(m.cfg.Self)}
	switch {
	case m.stage == stopping:
		d.Role, d.Epoch, d.Deadline, d.Reason = RoleStop, m.lead.epoch, m.lead.stopBy, m.lead.stopCause
		if m.lead.hand.phase == PhaseStopping {
			d.Phase = PhaseStopping
		}
	case m.stage == leading:
		return m.leaderDecision()
	case m.cfg.Witness:
		d.Role, d.Leader, d.Reason = RoleNone, m.voter.leader.name, "votes and holds no data"
		return d
	case m.fenced() || m.leaving:
		d.Role, d.Reason = RoleStop, "fenced or leaving"
	case !m.store.known && m.voter.leader.epoch == 0:
		d.Role, d.Reason = RoleNone, "has not read the Lease yet"
	case m.stage == idle && m.mine(), m.stage == claiming && m.cand.cause == causeResume:
		d.Role, d.Reason = RoleNone, "collects grants before it starts"
	case m.busyStanding() && m.cand.cause == causeBootstrap, !m.store.seen.HasRecord && m.voter.leader.epoch == 0:
		d.Role, d.Reason = RoleNone, "waits for the Database to be initialised"
	default:
		d.Role, d.Upstream, d.Leader, d.Reason = RoleReplica, m.upstream(), m.voter.leader.name, "follows"
		if d.Upstream != "" {
			d.UpstreamIP = m.voter.leader.address
		} else {
			d.Leader, d.Reason = "", "waits for a leader"
		}
		if m.standsAside() {
			d.Reason = ReasonOlder
		}
	}
	d.MayWipe = m.mayWipe()
	return d
}

func (m *Machine) leaderDecision() Decision {
	l := &m.lead
	d := Decision{
		Role: RolePrimary, Epoch: l.epoch, Leader: m.cfg.Self, Timeline: l.record.Timeline,
		Deadline: m.deadline(), Phase: l.hand.phase, Degraded: m.rules.fewer(m), Voter: true, Record: l.record, Reason: "leads",
	}
	// While a change's outcome is unknown the old list goes on: a majority of
	// it meets every majority of a list that differs by one member.
	for _, v := range l.record.Data() {
		if v != m.cfg.Self {
			d.Sync = append(d.Sync, v)
		}
	}
	d.SyncNeed = (len(d.Sync) + 1) / 2
	return d
}

// upstream returns whom to receive from: the leader that was promised, while
// it runs as primary, and nobody from the moment of a promise to a candidate.
func (m *Machine) upstream() string {
	v := &m.voter
	follows := m.stage == idle || m.stage == reading || m.stage == asking
	if !follows || !v.leader.leading || v.leader.name == m.cfg.Self {
		return ""
	}
	if v.leader.epochOf != (epochOf{v.promise.Epoch, v.promise.Candidate}) || v.void == v.leader.epochOf {
		return ""
	}
	return v.leader.name
}

// mayWipe wants a look at the Lease that is younger than the wish to discard.
func (m *Machine) mayWipe() bool {
	s := &m.store
	return m.facts.Discard && s.known && s.seen.HasRecord && !m.restored() && s.readAt > m.discardAt &&
		!s.seen.Record.IsVoter(m.cfg.Self) && m.stage == idle
}
