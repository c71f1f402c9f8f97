package lease

import (
	"slices"
	"time"
)

// leaderState is a leadership from the claim to the release.
type leaderState struct {
	epoch     uint64
	record    Record     // that it leads by
	recordAt  Time       // since when
	lists     [][]string // the voter list; two while a change's outcome is unknown
	grants    map[string]Time
	peers     map[string]peer
	nextRound Time
	until     Time // claiming: give up; leading: be primary by then
	promoted  bool
	// attachable: the others were told at the election that they may stream from this member while it is promoted.
	attachable bool
	higher     uint64 // an epoch at which a member is promised to another or has seen a release, not below this one's; zero when none
	checked    string // the Lease version of the aim that was read for
	doubted    bool   // a member that was asked says that it leads by a later epoch: the Lease tells
	change     change
	mark       mark
	step       step
	followed   bool // enough replicas did, since it leads

	hand       handOver
	handUntil  Time
	stopCause  string
	stopBy     Time
	routed     uint64
	sliceSeen  string // the version of the EndpointSlice, by the manager's word, that was looked at
	routeBusy  bool
	routeNext  Time
	routeTries int
	outrouted  bool // the EndpointSlice named a later epoch when it was last read
}

type peer struct {
	answer Answer
	at     Time
}

// change is a swap by the leader whose outcome is not known yet.
type change struct {
	active bool
	sent   bool
	record Record
	kind   EventKind
	cause  string
	mark   mark
}

func (m *Machine) newLeader(rec Record) leaderState {
	return leaderState{
		epoch: rec.Epoch, record: rec, recordAt: m.now, lists: [][]string{rec.Voters},
		grants: map[string]Time{}, peers: map[string]peer{},
	}
}

// claim starts to collect grants at an epoch that the Lease gives to this
// member. The Lease alone entitles nobody.
func (m *Machine) claim(epoch uint64) {
	m.cand.epoch = epoch
	m.lead = m.newLeader(m.cand.record)
	m.lead.until = m.now.Add(m.cfg.Hold)
	m.lead.nextRound = m.now
	m.knows(epoch, m.cand.record.Version)
	m.cand.lacks = Wait{}
	m.stage = claiming
}

func (m *Machine) progressLeader() {
	l := &m.lead
	if m.stage == claiming {
		m.grantSelf() // as soon as the disk allows
	}
	if m.now >= l.nextRound {
		m.grantSelf()
		m.round()
	}
	if l.doubted && m.stage == leading && m.readLease() {
		l.doubted = false
	}
	if m.stage == claiming {
		m.progressClaiming()
		return
	}
	m.watchServer()
	if m.stage != leading {
		return
	}
	m.progressHandOver()
	if m.stage != leading {
		return
	}
	m.progressChange()
	m.progressRoute()
}

func (m *Machine) progressClaiming() {
	l := &m.lead
	switch {
	case m.promised(l.epoch, m.cfg.Self) != "":
		m.giveUp("promised to a later candidate", "")
	case m.rules.entitled(m):
		m.stage = leading
		m.line.Elected = m.now
		l.until = m.now.Add(m.cfg.Start)
		m.cand.tries, m.cand.older, m.cand.asideSince = 0, 0, 0
		m.voter.holdUntil, m.voter.asideUntil = 0, 0
		m.voter.handed = Position{}
		l.attachable, l.nextRound = m.attachable(), m.now
		m.note(EventElected, l.epoch, m.cand.cause)
	case m.now >= l.until && !m.alone():
		lacks := Wait{For: WaitGrants, Who: m.without(l.grants)}
		m.giveUp("no majority of grants", "")
		m.cand.lacks = lacks
	}
}

// grantSelf counts the leader's own grant, by the rules of any other voter's.
func (m *Machine) grantSelf() {
	v, e := &m.voter, m.lead.epoch
	if v.disk.Epoch != e || v.disk.Candidate != m.cfg.Self || m.promised(e, m.cfg.Self) != "" {
		return
	}
	if v.bound != m.cfg.Self && m.rules.bound(v.boundUntil, m.now) {
		return
	}
	v.bound, v.boundUntil = m.cfg.Self, m.now.Add(m.cfg.Grant)
	m.lead.grants[m.cfg.Self] = m.now
}

// round asks every voter, and every member that may become one, for a grant.
func (m *Machine) round() {
	l := &m.lead
	pause := m.cfg.Heartbeat
	switch {
	case m.stage == claiming:
		pause = m.cfg.Heartbeat / 5
	case l.hand.phase == PhaseQuiescing:
		pause = m.cfg.Heartbeat / 20 // the gap in writes is as long as this is slow
	case l.hand.phase == PhasePreparing, l.mark.target != "", l.step.strict:
		pause = m.cfg.Heartbeat / 5
	}
	l.nextRound = m.now.Add(pause)
	members := m.members()
	places, rebuilds := m.places(members), m.rebuilding()
	for _, to := range members {
		m.send(to, Request{
			Kind: KindGrant, Epoch: l.epoch, Leading: l.promoted, Elected: l.attachable && !l.promoted, Heir: l.hand.heir,
			Version: l.record.Version, Address: m.cfg.Address, At: m.logEnd(), Members: places, Rebuilds: rebuilds,
		})
	}
}

// logEnd is how far the log of this primary goes. It rides on the requests that are sent anyway, so that a replica knows what it lacks
// although nothing may reach it from the database itself.
func (m *Machine) logEnd() Position {
	if m.facts.Server != ServerPrimary {
		return Position{}
	}
	return m.facts.Position
}

// places are where the members say that they are.
func (m *Machine) places(members []string) Places {
	all := Places{}
	for _, name := range members {
		if at := m.lead.peers[name].answer.Address; at != "" {
			all[name] = at
		}
	}
	return all
}

// attachable says that this member has won with a replica that runs, and is being promoted: the others may stream from it what it
// holds, and go on with its own timeline when that begins.
func (m *Machine) attachable() bool {
	won := m.cand.cause == causeFailover || m.cand.cause == causeSwitchover
	return won && m.facts.Server == ServerReplica
}

// members returns all others that count, may count, or shall count.
func (m *Machine) members() []string {
	var all []string
	for _, list := range m.lead.lists {
		all = append(all, list...)
	}
	all = append(all, m.aim.Members...)
	if m.aim.Witness != "" {
		all = append(all, m.aim.Witness)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	all = slices.DeleteFunc(all, func(s string) bool { return s == m.cfg.Self })
	return all[:min(len(all), 2*maxVoters)]
}

func (m *Machine) grantAnswered(s sentRequest, a Answer) {
	l := &m.lead
	if m.stage != claiming && m.stage != leading {
		return
	}
	l.peers[a.From] = peer{a, m.now}
	switch {
	case a.OK && s.epoch == l.epoch:
		l.grants[a.From] = max(l.grants[a.From], s.at)
	case !a.OK && (a.Promise > l.epoch || a.Promise == l.epoch && (a.To != m.cfg.Self || a.Why == whyReleased)):
		l.higher = max(l.higher, a.Promise)
	}
}

// deadline returns until when the grants entitle, by every list that may be
// the one in the Lease.
func (m *Machine) deadline() Time {
	d := Time(1<<63 - 1)
	for _, list := range m.lead.lists {
		d = min(d, m.deadlineBy(list))
	}
	return d
}

func (m *Machine) deadlineBy(voters []string) Time {
	var sent []Time
	for _, v := range voters {
		if at, ok := m.lead.grants[v]; ok {
			sent = append(sent, at)
		}
	}
	slices.Sort(sent)
	need := m.rules.majority(len(voters))
	if len(sent) < need {
		return 0
	}
	return sent[len(sent)-need].Add(m.cfg.Grant - m.cfg.Epsilon)
}

// alone says that this member is the only voter for certain. Nobody else can
// be elected then, so a late renewal is as good as one in time.
func (m *Machine) alone() bool {
	return len(m.lead.lists) == 1 && len(m.lead.lists[0]) == 1 && m.lead.lists[0][0] == m.cfg.Self
}

func (m *Machine) expire() {
	if m.stage != leading {
		return
	}
	if m.alone() {
		if m.now >= m.deadline()-Time(m.cfg.Grant/2) {
			m.grantSelf() // late, after a pause of the node
		}
		return
	}
	if m.facts.StopBudget > m.cfg.Grant/2 {
		m.noteOnce("a hard stop takes longer than half a grant")
	}
	if d := m.deadline(); m.now >= d-min(m.rules.stopLead(m.facts), Time(m.cfg.Grant/2)) {
		m.note(EventExpired, m.lead.epoch, "no majority of grants in time")
		m.stop("expired", d)
	}
}

func (l *leaderState) stopAt(budget time.Duration) Time {
	return l.stopBy.Add(-budget)
}

// watchServer ends a leadership whose server is gone and cannot be back at
// once. The stop is asked for all the same: only an answer to a stop proves
// that the agent has not begun to restart it.
func (m *Machine) watchServer() {
	l, f := &m.lead, m.facts
	l.stopBy = m.deadline()
	if f.Ailing != "" && l.promoted && m.replaceable() {
		m.stop(f.Ailing, m.now)
		return
	}
	running := f.Server == ServerPrimary && f.Obeys >= m.roleAt && m.decided.Role == RolePrimary
	switch {
	case running && !l.promoted:
		l.promoted = true
		l.nextRound = m.now // followers wait to hear it
		m.line.Promoted = m.now
		m.note(EventPromoted, l.epoch, m.cand.cause)
		l.until = 0
	case running:
		l.until = 0
	case m.alone(), l.record.Degraded && l.promoted: // nobody else can lead: the server is started again
	case f.Server == ServerStopped && l.promoted && f.Full && l.hand.phase != PhaseQuiescing:
		l.until = 0 // a full disk is no reason to hand over: what fills one member's fills the others'
	case f.Server == ServerStopped && m.cand.cause == causeResume && f.Full && l.hand.phase != PhaseQuiescing:
		l.until = m.now.Add(m.cfg.Start) // so it was before its agent restarted
	case l.promoted && (f.Fell || f.Server == ServerStopped && (!f.BackAtOnce || l.hand.phase == PhaseQuiescing)):
		m.stop("its server is gone", m.now) // also if it is being started again already
	case f.Server == ServerStopped && l.promoted && l.until == 0:
		l.until = m.now.Add(m.cfg.Start)
	case l.until != 0 && m.now >= l.until:
		m.stop("its server did not become primary in time", m.now)
	}
}

// replaceable says that the others could elect one of them without this member. Of two voters none can: to give up would help nobody,
// and the volume may come back.
func (m *Machine) replaceable() bool {
	for _, list := range m.lead.lists {
		others := 0
		for _, v := range list {
			if v != m.cfg.Self && m.renewed(v) {
				others++
			}
		}
		if others < m.rules.majority(len(list)) {
			return false
		}
	}
	return m.bestHeir() != ""
}

// stop begins the end of a leadership: nothing may be acknowledged after by.
func (m *Machine) stop(cause string, by Time) {
	m.stage = stopping
	m.lead.stopCause, m.lead.stopBy = cause, by
}

func (m *Machine) progressStopping() {
	l, f := &m.lead, m.facts
	if m.decided.Role != RoleStop || f.Obeys < m.roleAt || f.Server != ServerStopped {
		return
	}
	if l.hand.phase == PhaseStopping {
		m.endLeadership(l.stopCause, l.hand.heir, l.hand.needed)
		return
	}
	m.endLeadership(l.stopCause, "", Position{})
}

// endLeadership releases. The server is stopped, and stays so until this
// member follows somebody or has won a new epoch.
func (m *Machine) endLeadership(cause, heir string, needed Position) {
	l := &m.lead
	m.end(l.epoch)
	if l.change.active {
		m.ended = max(m.ended, l.change.record.Epoch) // should it land yet
	}
	m.stage = idle
	m.cand.tries, m.cand.next, m.cand.asideSince = 0, m.now, 0
	v := &m.voter
	v.leader = leaderSeen{}
	switch {
	case heir == "" && l.record.Degraded: // nobody else goes first
	case heir == "":
		v.handicapUntil = m.now.Add(m.cfg.Handicap)
	default:
		v.asideFor, v.asideUntil, v.handed = heir, m.now.Add(m.cfg.Aside), needed
	}
	cause = cause[:min(len(cause), maxText)]
	m.newLine(Line{Seen: m.now, Released: m.now, Why: cause})
	var voters []string
	for _, list := range l.lists {
		voters = append(voters, list...)
	}
	m.startRelease(voters, Request{
		Kind: KindRelease, Epoch: l.epoch, Heir: heir, Needed: needed, Cause: cause, ID: l.hand.id,
	})
	m.note(EventReleased, l.epoch, cause)
}
