package lease

import (
	"cmp"
	"maps"
	"strings"
	"time"
)

// WaitFor names what a member waits for while it knows of nobody who acts as leader. Each is also a reason in status.
type WaitFor string

// What a member may wait for.
const (
	WaitNothing   WaitFor = ""                 // somebody leads as far as it knows, or it does itself
	WaitAPIServer WaitFor = "APIServerAway"    // the Lease can be neither read nor written
	WaitOlder     WaitFor = "LeaseOlder"       // the Lease is missing, or older than what stood there
	WaitLease     WaitFor = "LeaseUnusable"    // the Lease is not to be understood
	WaitOnly      WaitFor = "OnlyLastLeader"   // Who alone may be elected
	WaitSilent    WaitFor = "VotersSilent"     // too few voters answer; Who do not
	WaitRefused   WaitFor = "VotersRefuse"     // enough answer, and Who do not give their vote now
	WaitAhead     WaitFor = "VotersAhead"      // Who hold more and cannot lead themselves
	WaitPosition  WaitFor = "PositionUnknown"  // how far the log of Who goes is not known
	WaitGrants    WaitFor = "GrantsMissing"    // it has won, and lacks the grants of Who for a majority
	WaitUnable    WaitFor = "CannotLead"       // Why says what is in its own way
	WaitVote      WaitFor = "NoVote"           // it is no voter
	WaitGrant     WaitFor = "GrantRuns"        // its own grant to Who has not run out
	WaitRetry     WaitFor = "TriesAgain"       // its last attempt failed, and the next is due in a moment
	WaitRecovery  WaitFor = "Recovering"       // a person ordered it to lead alone
	WaitDisk      WaitFor = "PromiseUnwritten" // its own disk has not taken what it must not forget
	WaitRestart   WaitFor = "JustRestarted"    // what it may have granted before its restart has not run out
	WaitAside     WaitFor = "StandsAside"      // Who goes first
	WaitReceiving WaitFor = "StillReceives"    // its server has not ended receiving from the old leader
	WaitStop      WaitFor = "StopsServer"      // it led, and its server has not ended
	WaitPromotion WaitFor = "BeingPromoted"    // Who has won, and is being made primary
	WaitRoute     WaitFor = "NotRouted"        // it leads, and the EndpointSlice does not name it yet
)

// Wait is what a member waits for, since when, and what more there is to say of it.
type Wait struct {
	For   WaitFor
	Since Time
	Who   string // members, by name
	Why   string
}

// same leaves out since when.
func (w Wait) same(o Wait) bool { return w.For == o.For && w.Who == o.Who && w.Why == o.Why }

// whyOutrouted is why a leader that finds a later epoch in the EndpointSlice leaves it as it is. What it deletes is made anew by the manager.
const whyOutrouted = "the EndpointSlice names a later epoch; delete it unless another instance leads"

// overdue is from when on a request, or a write, that is under way counts as one that is not answered.
const overdue = time.Second

// account keeps what this member waits for, and adds what it waited for to the time line.
func (m *Machine) account() {
	w := m.waits()
	switch {
	case w.For == m.waiting.For:
		w.Since = m.waiting.Since
	case w.Since == 0:
		w.Since = m.now
	default:
		w.Since = max(w.Since, m.lineAt)
	}
	if w.For != m.waiting.For {
		m.line = m.waited()
	}
	m.waiting = w
}

// waited is the time line with what is waited for up to now.
func (m *Machine) waited() Line {
	l := m.line
	if m.waiting.For == WaitNothing {
		return l
	}
	l.Waited = maps.Clone(l.Waited)
	if l.Waited == nil {
		l.Waited = map[WaitFor]time.Duration{}
	}
	l.Waited[m.waiting.For] += m.now.Sub(m.waiting.Since)
	return l
}

// newLine begins the time line of another change of hands.
func (m *Machine) newLine(l Line) {
	m.line, m.lineAt, m.waiting = l, m.now, Wait{}
}

// waits says what this member waits for.
func (m *Machine) waits() Wait {
	v, l := &m.voter, &m.lead
	switch {
	case m.cfg.Witness || !m.hasFacts:
		return Wait{}
	case m.stage == leading && l.promoted && l.outrouted:
		return Wait{For: WaitRoute, Why: whyOutrouted}
	case m.stage == leading && l.promoted && l.routed == 0 && l.routeTries > 0: // of a raised epoch clients know nothing
		return Wait{For: WaitRoute}
	case m.stage == leading && l.promoted:
		return Wait{}
	case m.stage == leading:
		return Wait{For: WaitPromotion, Who: m.cfg.Self}
	case m.stage == stopping:
		return Wait{For: WaitStop, Why: l.stopCause}
	case m.stage == claiming:
		return Wait{For: WaitGrants, Who: m.without(l.grants)}
	case m.busyStanding() || v.bound == "" || v.bound == m.cfg.Self || m.now >= v.boundUntil:
		return m.hindrance()
	case m.now.Sub(v.leader.at) > 2*m.cfg.Heartbeat:
		return Wait{For: WaitGrant, Who: v.bound}
	case !v.leader.leading:
		return Wait{For: WaitPromotion, Who: v.bound}
	}
	return Wait{}
}

// hindrance is what keeps this member from being elected, the most lasting first.
func (m *Machine) hindrance() Wait {
	v, s, f := &m.voter, &m.store, m.facts
	rec := s.seen.Record
	if w := m.unable(); w.For != WaitNothing && (m.everLed() || s.known) {
		if !m.everLed() {
			return Wait{} // a new Database: it waits to be initialised
		}
		return w
	}
	switch away := m.away(); {
	case v.asideFor == m.cfg.Self && m.now < v.asideUntil && away.For == WaitNothing:
	case m.now < v.handicapUntil:
		return Wait{For: WaitAside, Who: "the others", Why: "it led last"}
	case m.tied(m.cfg.Self) == whyRestarted:
		return Wait{For: WaitRestart}
	case away.For != WaitNothing:
		return away
	case len(v.queue) > 0 && m.now.Sub(v.queuedAt) >= overdue || v.persistRetry != 0:
		return Wait{For: WaitDisk}
	case m.recovers():
		return Wait{For: WaitRecovery}
	case !s.known:
		return Wait{}
	case m.restored():
		if !m.everLed() {
			return Wait{}
		}
		return Wait{For: WaitOlder}
	case !rec.IsVoter(m.cfg.Self):
		return Wait{For: WaitVote}
	case !rec.Electable(m.cfg.Self):
		return Wait{For: WaitOnly, Who: rec.Leader}
	case v.promise.Candidate != m.cfg.Self && m.now < v.holdUntil:
		return Wait{For: WaitAside, Who: v.promise.Candidate, Why: "it gave it its vote"}
	case v.asideFor != "" && v.asideFor != m.cfg.Self && m.now < v.asideUntil:
		return Wait{For: WaitAside, Who: v.asideFor}
	}
	switch {
	case m.stage == standing && (f.Receiving || !m.final()):
		return Wait{For: WaitReceiving}
	case !f.Position.Known:
		return Wait{For: WaitPosition, Who: m.cfg.Self}
	case (m.stage == standing || m.stage == asking) && m.now.Sub(m.cand.since) > 2*m.cfg.Ask && m.lacking().For != WaitNothing:
		return m.lacking()
	case m.cand.lacks.For == WaitNothing && m.stage == idle && m.now < m.cand.next:
		return Wait{For: WaitRetry, Why: m.cand.failed}
	}
	return m.cand.lacks
}

// everLed says that this Database had a leader, as far as this member knows.
func (m *Machine) everLed() bool {
	return m.store.seen.HasRecord || m.voter.promise.Lease > 0 || m.voter.leader.epoch > 0
}

// unable is what of its own keeps this member from leading, for longer than moments.
func (m *Machine) unable() Wait {
	f := m.facts
	unable := func(why string) Wait { return Wait{For: WaitUnable, Why: why} }
	switch {
	case m.fenced():
		return unable("it is fenced")
	case m.leaving:
		return unable("it ends")
	case m.aim.Paused:
		return unable("the Database is paused")
	case f.Ailing != "":
		return unable(f.Ailing)
	case f.Discard:
		return unable("its data must be rewound or copied anew")
	case !f.HasData:
		return unable("it holds no data")
	}
	return Wait{}
}

// away is what keeps the Lease from being read or written, as far as that is known.
func (m *Machine) away() Wait {
	s := &m.store
	switch {
	case s.fault.For != WaitNothing:
		return s.fault
	case s.busy && m.now.Sub(s.askedAt) >= overdue:
		return Wait{For: WaitAPIServer, Since: s.askedAt}
	case s.tries > 0 && m.now < s.next:
		return Wait{For: WaitAPIServer} // it failed before the last leader was heard, and is asked again then
	}
	return Wait{}
}

// failed notes that a request to the API server was not answered, or not as it should be.
func (s *storeState) failed(o Outcome, fault Wait) {
	if o != Unknown {
		s.fault = Wait{}
		return
	}
	if fault.For == WaitNothing {
		fault.For = WaitAPIServer
	}
	fault.Since = s.askedAt
	if s.fault.For == fault.For {
		fault.Since = s.fault.Since
	}
	s.fault = fault
}

// without names the voters beside this one that are not among those.
func (m *Machine) without(those map[string]Time) string {
	var out []string
	for _, v := range m.lead.record.Voters {
		if _, ok := those[v]; !ok && v != m.cfg.Self {
			out = append(out, v)
		}
	}
	return strings.Join(out, ", ")
}

// lacking is what the voters' answers leave to wait for, when they are too few.
func (m *Machine) lacking() Wait {
	rec := m.store.seen.Record
	var silent, refusing, ahead []string
	why := ""
	for _, v := range rec.Voters {
		a, ok := m.cand.answers[v]
		called := v
		if v == rec.Witness {
			called += " (the witness)"
		}
		switch {
		case v == m.cfg.Self:
		case !ok:
			silent = append(silent, called)
		case !a.OK:
			refusing = append(refusing, called)
			why = cmp.Or(why, a.Why)
		case a.Position.Known && !m.rules.covers(m.facts.Position, a.Position):
			ahead = append(ahead, called)
		}
	}
	switch {
	case len(silent) > 0 && len(refusing) > 0:
		return Wait{For: WaitSilent, Who: strings.Join(silent, ", "), Why: strings.Join(refusing, ", ") + " refused: " + why}
	case len(silent) > 0 && len(silent) > len(rec.Voters)-m.rules.majority(len(rec.Voters)):
		return Wait{For: WaitSilent, Who: strings.Join(silent, ", ")}
	case len(refusing) > 0:
		return Wait{For: WaitRefused, Who: strings.Join(refusing, ", "), Why: why}
	case len(ahead) > 0:
		return Wait{For: WaitAhead, Who: strings.Join(ahead, ", ")}
	case len(silent) > 0:
		return Wait{For: WaitSilent, Who: strings.Join(silent, ", ")}
	}
	return Wait{}
}
