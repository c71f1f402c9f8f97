package lease

import (
	"slices"
	"time"
)

// mark is a membership change that waits for its condition.
type mark struct {
	target  string
	add     bool
	witness bool     // target holds no data
	at      Position // the leader's position when the change was begun
}

// progressChange does one change to the Lease at a time: repair, new epoch, who
// holds what is acknowledged, or one member.
func (m *Machine) progressChange() {
	l := &m.lead
	if l.change.active {
		m.pushChange()
		return
	}
	if !l.promoted || l.hand.phase != PhaseNone && l.hand.phase != PhasePreparing {
		return
	}
	switch {
	case l.higher >= l.epoch && m.holds():
		m.raise("a voter is promised to a higher epoch")
	case !m.store.known, m.looks(),
		m.aim.LeaseVersion != "" && m.aim.LeaseVersion != m.store.seen.ResourceVersion && m.aim.LeaseVersion != l.checked:
		if m.readLease() {
			l.checked = m.aim.LeaseVersion
		}
	case m.progressStep():
	case l.hand.phase == PhaseNone:
		m.progressMembers()
	}
}

// pushChange drives the pending swap until its outcome is known: swap, and
// when that failed in any way, read what stands there.
func (m *Machine) pushChange() {
	c := &m.lead.change
	if m.store.busy || m.now < m.store.next {
		return
	}
	if c.sent {
		m.readLease()
		return
	}
	if c.kind == EventMembers && !m.fitsMark(c.record, c.mark) || c.kind == EventRestored && !m.held(c.mark.at) {
		// An outage of the API lies between the decision and now, and what it
		// rested on is gone. An earlier attempt may land yet, so the old record is
		// written in its place: whichever lands, one version says which.
		c.record = m.lead.record
		c.record.Version++
		c.kind, c.cause = EventAborted, "a change of members, or of who holds what is acknowledged, was withdrawn"
	}
	c.sent = m.swapLease(c.record)
}

// raise takes a new epoch without a break. It is safe because the swap follows
// this leader's own record directly, so nobody led in between, and because the
// old grants, which bind the voters to this member, still carry the deadline.
func (m *Machine) raise(cause string) {
	l := &m.lead
	rec := l.record
	rec.Epoch = max(l.epoch, l.higher, m.store.seen.Record.Epoch) + 1
	rec.Version = max(rec.Version, m.store.seen.Record.Version) + 1
	l.change = change{active: true, record: rec, kind: EventRaised, cause: cause}
	m.pushChange()
}

// changeLanded takes over what now stands in the Lease.
func (m *Machine) changeLanded() {
	l := &m.lead
	c := l.change
	l.change, l.step = change{}, step{}
	l.record, l.recordAt = c.record, m.now
	l.lists = [][]string{c.record.Voters}
	m.knows(c.record.Epoch, c.record.Version)
	if c.record.Epoch > l.epoch {
		l.epoch = c.record.Epoch
		m.keeps(l.epoch, m.cfg.Self)
	} else {
		m.persist(m.voter.promise)
	}
	l.nextRound = m.now
	m.note(c.kind, l.epoch, c.cause)
}

func (m *Machine) leaderReadLease() {
	l, s := &m.lead, m.store.seen
	c := &l.change
	rec := s.Record
	switch {
	case s.HasRecord && c.active && sameRecord(rec, c.record):
		m.changeLanded()
	case s.HasRecord && (rec.Epoch > l.epoch || rec.Epoch == l.epoch && rec.Leader != m.cfg.Self):
		m.note(EventSuperseded, l.epoch, "the Lease names "+rec.Leader)
		m.stop("superseded", m.deadline())
	case s.ResourceVersion == "":
		m.store.next = m.now.Add(m.cfg.MaxRetry) // the manager makes the shell; the agent has no right to
		m.noteOnce("the Lease object is missing")
	case !s.HasRecord || rec.Epoch < l.epoch || rec.Version < l.record.Version:
		if !m.holds() {
			m.store.next = m.now.Add(m.cfg.Heartbeat) // by then it holds again, or leads no more
			return
		}
		// Deleted, or restored from a backup. A pending member change is
		// forgotten, but both lists bind until the repair has landed.
		lists := l.lists
		m.raise("the Lease was deleted or restored")
		l.lists = lists
	case c.active && rec.Version == c.record.Version-1:
		c.sent = false // not landed; the next attempt voids it
	case c.active || rec.Version > l.record.Version:
		m.note(EventBroken, l.epoch, "the Lease was edited")
		*c = change{}
		l.record, l.recordAt, l.lists = rec, m.now, [][]string{rec.Voters}
	}
}

// holds says that a majority renewed lately.
func (m *Machine) holds() bool {
	return m.deadline() > m.now.Add(m.cfg.Grant/2)
}

func sameRecord(a, b Record) bool {
	return a.Version == b.Version && a.Epoch == b.Epoch && a.Leader == b.Leader && slices.Equal(a.Voters, b.Voters) &&
		a.Witness == b.Witness && a.Degraded == b.Degraded
}

// progressMembers moves the voter list towards the aim, one member at a time.
// Each step waits until the synchronous list of the step before is in force.
func (m *Machine) progressMembers() {
	l := &m.lead
	next := m.nextMember()
	target, add := next.target, next.add
	if target == "" || !m.toldVoters() || m.facts.Obeys < m.syncAt || !m.facts.Position.Known || m.facts.Server != ServerPrimary {
		l.mark = mark{}
		return
	}
	if l.mark.target != target || l.mark.add != add {
		next.at = m.facts.Position
		l.mark = next
		l.nextRound = m.now
		return // judge answers that are newer than the mark
	}
	voters, witness := slices.Clone(l.record.Voters), l.record.Witness
	if add {
		voters = append(voters, target)
	} else {
		voters = slices.DeleteFunc(voters, func(s string) bool { return s == target })
	}
	switch {
	case next.witness && add:
		witness = target
	case next.witness:
		witness = ""
	}
	rec := l.record.withVoters(voters, witness)
	if !m.fitsMark(rec, l.mark) {
		return
	}
	kind, cause := EventMembers, "removed "+target
	if add {
		cause = "added " + target
	}
	l.change = change{active: true, record: rec, kind: kind, cause: cause, mark: l.mark}
	l.lists = [][]string{l.record.Voters, rec.Voters}
	l.mark = mark{}
	m.pushChange()
}

// toldVoters says that a majority of the voters granted by the record that stands: so the list before is never taken for the newest
// by a majority of it, should etcd be restored to that.
func (m *Machine) toldVoters() bool { return m.grantedSince(m.lead.recordAt) }

// grantedSince says that a majority of the voters granted what was asked since then.
func (m *Machine) grantedSince(since Time) bool {
	l, granted := &m.lead, 0
	for _, v := range l.record.Voters {
		if at, ok := l.grants[v]; ok && at >= since {
			granted++
		}
	}
	return granted >= m.rules.majority(len(l.record.Voters))
}

// nextMember picks the one change to work on: who asks to leave first, then
// who is not wanted, then who is missing and has data, then the witness.
func (m *Machine) nextMember() mark {
	rec := m.lead.record
	if len(m.aim.Members) == 0 {
		return mark{}
	}
	gone := m.nextToGo()
	// The witness votes beside two members with data. Beside one it would only be one more that can fail; and with three, a commit is on
	// two, which need not be the two that a list without the third may elect. So it goes first, except where two become one.
	if data := len(rec.Data()); rec.Witness != "" && (data == 1 || data > 2) {
		return mark{target: rec.Witness, witness: true}
	}
	if gone != "" {
		return mark{target: gone}
	}
	if missing := m.nextToCome(); missing != "" {
		return mark{target: missing, add: true}
	}
	return m.nextWitness()
}

// nextToGo is a member with data that asks to leave, or that is not wanted.
func (m *Machine) nextToGo() string {
	var unwanted string
	for _, v := range m.lead.record.Data() {
		if v == m.cfg.Self {
			continue
		}
		if a := m.lead.peers[v].answer; a.Leave && !(a.CanWait && m.rebuilding() != "") {
			return v
		}
		if unwanted == "" && !slices.Contains(m.aim.Members, v) {
			unwanted = v
		}
	}
	return unwanted
}

// nextToCome is a wanted member that has data and no vote.
func (m *Machine) nextToCome() string {
	l := &m.lead
	if len(l.record.Voters) >= maxVoters {
		return ""
	}
	for _, w := range slices.Sorted(slices.Values(m.aim.Members)) {
		p := l.peers[w].answer
		if w != m.cfg.Self && !l.record.IsVoter(w) && p.HasData && !p.Leave && p.Position.Known && m.renewed(w) {
			return w
		}
	}
	return ""
}

// nextWitness moves towards the wanted witness, in two changes where there is another: after each a majority of every list that may
// stand in the Lease, also in an older one, meets the next.
func (m *Machine) nextWitness() mark {
	rec, want := m.lead.record, m.aim.Witness
	switch {
	case rec.Witness == want || len(rec.Data()) != 2:
	case want != "" && !m.renewed(want):
		// It does not answer yet, so it could take nobody's place.
	case rec.Witness == "":
		return mark{target: want, add: true, witness: true}
	case want == "" && len(m.aim.Members) > 2:
		// The third member is on its way; until it counts, the witness does.
	default:
		return mark{target: rec.Witness, witness: true}
	}
	return mark{}
}

// rebuildSilence is how long one that is being copied may say nothing: its pod may start anew meanwhile.
const rebuildSilence = time.Minute

// rebuilding names a member that is on its way to be a voter: being copied, for the first time or anew. One that is wanted and never
// comes, because there is no room for its pod, holds up nobody.
func (m *Machine) rebuilding() string {
	for _, w := range m.aim.Members {
		p, heard := m.lead.peers[w]
		there := heard && m.now.Sub(p.at) <= rebuildSilence || m.now.Sub(m.line.Elected) <= rebuildSilence
		if w != m.cfg.Self && !m.lead.record.IsVoter(w) && there {
			return w
		}
	}
	return ""
}

// renewed says that the member granted within the last two heartbeats.
func (m *Machine) renewed(name string) bool {
	at, ok := m.lead.grants[name]
	return ok && m.now.Sub(at) <= 2*m.cfg.Heartbeat
}

// fitsMark says whether the new list could carry the leadership and already
// holds, by a majority of its members with data, what the leader had at the mark.
func (m *Machine) fitsMark(rec Record, k mark) bool {
	if k.add && !(m.renewed(k.target) && (k.witness || m.keepsUp(k.target, k.at))) {
		return false
	}
	return m.heldBy(rec.Data(), k.at) && m.deadlineBy(rec.Voters) > m.now.Add(m.cfg.Grant/2)
}

// heldBy says that a majority of these members with data, this one among them, holds all up to the position.
func (m *Machine) heldBy(data []string, at Position) bool {
	hold := 0
	for _, v := range data {
		if v == m.cfg.Self || m.keepsUp(v, at) {
			hold++
		}
	}
	return hold >= m.rules.majority(len(data))
}

// keepsUp says that the member said lately that it holds all up to the position. A silent member's disk may be gone.
func (m *Machine) keepsUp(name string, at Position) bool {
	p := m.lead.peers[name]
	return m.now.Sub(p.at) <= 2*m.cfg.Heartbeat && p.answer.HasData && !p.answer.Leave && p.answer.Position.Holds(at)
}

// progressRoute points the EndpointSlice at this leadership, and tries again
// until it does. It does not wait for the promotion: the old leader's address
// serves nobody any more, and a node's proxy may take a second to follow.
// One that somebody else wrote, because it was deleted and made again or came
// back from a backup of etcd, is looked at anew.
func (m *Machine) progressRoute() {
	l := &m.lead
	if !l.promoted && m.cand.cause == causeBootstrap {
		return // there is no database yet, and nobody whom it replaces
	}
	if l.routed == l.epoch && (m.aim.SliceVersion == "" || m.aim.SliceVersion == l.sliceSeen) || l.routeBusy || m.now < l.routeNext {
		return
	}
	l.routeBusy, l.sliceSeen = true, m.aim.SliceVersion
	m.emit(Route{Epoch: l.epoch})
}

func (m *Machine) routed(in Routed) {
	l := &m.lead
	l.routeBusy = false
	if m.stage != leading {
		return
	}
	switch in.Outcome {
	case Done:
		again := l.routed > 0 // a look, or a raise: what status tells of the change of hands stays as it was
		l.routed, l.routeTries, l.outrouted = in.Epoch, 0, false
		if !again {
			m.line.Routed = m.now
			m.note(EventRouted, m.cand.epoch, m.cand.cause) // a raise meanwhile is no change of hands
		}
	case Conflict:
		m.noteOnce("the EndpointSlice names a higher epoch")
		l.outrouted, l.sliceSeen = true, ""
		l.routeNext = m.now.Add(m.cfg.MaxRetry)
	case Unknown:
		l.sliceSeen = ""
		l.routeTries++
		l.routeNext = m.now.Add(m.backoff(l.routeTries))
	}
}
