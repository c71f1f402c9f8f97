package lease

import (
	"fmt"
	"slices"
)

// Recovery is a person's order to one member to lead alone, because a majority of the voters is lost for good. Nothing and nobody
// else gives it.
type Recovery struct {
	ID           string
	LeaseVersion string   // resourceVersion of the Lease that the loss was accepted on; with any other one nothing is done
	Lost         []string // members that do not run, by the manager's word: they are not waited for
	Expires      Time     // of this member's boot clock
}

// Recovered is what the record keeps of the last recovery.
type Recovered struct {
	ID      string   `json:"id"`
	Epoch   uint64   `json:"epoch"`             // that it began
	Dropped []string `json:"dropped,omitempty"` // voters that were left out
}

// The leaps of a recovery without the newest record: past whatever the members that are lost may have used and this one never heard of.
const (
	leapEpochs    = 1024
	leapTimelines = 64 // each is a file in the way of the promotion
)

// recoverState is how far an order to recover is.
type recoverState struct {
	id      string
	since   Time // when it was first tried
	refused bool // for good
}

// recovers says that an order stands that this member has neither carried out nor refused.
func (m *Machine) recovers() bool {
	o := m.aim.Recovery
	if o.ID == "" || o.ID == m.store.seen.Record.Recovered.ID || m.now >= o.Expires {
		return false
	}
	return m.recovery.id != o.ID || !m.recovery.refused
}

// recoverNow begins an attempt with a look at the Lease.
func (m *Machine) recoverNow() {
	if m.recovery.id != m.aim.Recovery.ID {
		m.recovery = recoverState{id: m.aim.Recovery.ID, since: m.now}
		m.cand.next, m.cand.tries = 0, 0
	}
	if m.now >= m.cand.next && m.readLease() {
		m.stage = reading
	}
}

// refuseRecovery ends the order for good.
func (m *Machine) refuseRecovery(why string) {
	m.stage = idle
	m.recovery.refused = true
	m.note(EventRefused, m.voter.promise.Epoch, why)
}

// hinderRecovery tries again for as long as a grant that nobody renews any more may last, and then the wait of a member that has just
// been started.
func (m *Machine) hinderRecovery(why string) {
	if m.now.Sub(m.recovery.since) >= 3*m.cfg.Grant {
		m.refuseRecovery(why)
		return
	}
	m.stage = idle
	m.cand.next = m.now.Add(m.cfg.Heartbeat / 2)
}

// startRecovery asks all others whether they know of a leader, now that the Lease is the one that the loss was accepted on.
func (m *Machine) startRecovery() {
	if m.store.seen.ResourceVersion != m.aim.Recovery.LeaseVersion {
		m.refuseRecovery("the Lease has changed since the loss was accepted: look again, for somebody may lead")
		return
	}
	if why := m.unrecoverable(); why != "" {
		m.hinderRecovery(why)
		return
	}
	m.cand.answers = map[string]Answer{}
	m.cand.since, m.cand.cause = m.now, causeRecover
	m.stage = asking
	for _, name := range m.othersThere() {
		m.send(name, Request{Kind: KindStatus})
	}
}

// unrecoverable says what is in this member's own way.
func (m *Machine) unrecoverable() string {
	f := m.facts
	switch {
	case !f.HasData || !f.Position.Known:
		return m.cfg.Self + " holds no data"
	case f.Ailing != "":
		return m.cfg.Self + ": " + f.Ailing
	case f.Server != ServerReplica && f.Server != ServerStopped:
		return "what the server of " + m.cfg.Self + " does is not known"
	case m.fenced() || m.leaving:
		return m.cfg.Self + " is fenced or leaving"
	case m.aim.Paused:
		return "the Database is paused"
	}
	return ""
}

// othersThere are all who may hold data, lead, or have granted to a leader.
func (m *Machine) othersThere() []string {
	all := slices.Concat(m.store.seen.Record.Voters, m.aim.Members)
	slices.Sort(all)
	all = slices.Compact(all)
	all = slices.DeleteFunc(all, func(s string) bool { return s == m.cfg.Self })
	return all[:min(len(all), 2*maxVoters)]
}

func (m *Machine) progressRecovery() {
	others, waited := m.othersThere(), m.now.Sub(m.cand.since)
	if !m.recovers() {
		m.stage = idle
		return
	}
	if len(m.cand.answers) < len(others) && waited < 2*m.cfg.Heartbeat {
		return
	}
	why, final := m.contradicted(others)
	switch {
	case !m.rules.asksAll:
	case final:
		m.refuseRecovery(why)
		return
	case why != "":
		m.hinderRecovery(why)
		return
	}
	if why := m.tied(m.cfg.Self); why != "" {
		m.hinderRecovery(m.cfg.Self + " is not free: " + why)
		return
	}
	m.line.Why = "a majority of the voters was lost for good, and a person accepted the loss"
	m.startStanding()
}

// contradicted says what speaks against the word that a majority is lost: nothing, if all that run are free of a leader, hold no more
// than this member, and are too few to elect one of them. What is final does not pass with time.
func (m *Machine) contradicted(others []string) (why string, final bool) {
	rec, own := m.store.seen.Record, m.facts.Position
	if why := m.electable(others); why != "" {
		return why, true
	}
	for _, name := range others {
		a, ok := m.cand.answers[name]
		switch {
		case !ok && !slices.Contains(m.aim.Recovery.Lost, name):
			return name + " does not answer, and is not known to be gone", false
		case !ok:
			continue
		case a.Role == RolePrimary:
			return fmt.Sprintf("%s leads with epoch %d", name, a.Epoch), false
		case !a.Free:
			return name + " has granted to a leader, or is not done with what it led", false
		case a.Able && a.Position.Known && a.Position.Compare(own) > 0:
			return fmt.Sprintf("%s holds more (%s, and %s %s): recover from it", name, a.Position.Text, m.cfg.Self, own.Text), true
		case a.HasData && rec.IsVoter(name) && !rec.IsVoter(m.cfg.Self):
			return fmt.Sprintf("%s has no vote, and %s has one and holds data: recover from it", m.cfg.Self, name), true
		}
	}
	return "", false
}

// electable says that enough voters are there with data to elect one of them: then nothing is lost for good.
func (m *Machine) electable(others []string) string {
	rec, holding := m.store.seen.Record, 0
	for _, name := range others {
		switch a := m.cand.answers[name]; {
		case a.Role == RolePrimary:
			return "" // said in words of its own
		case (a.HasData || name == rec.Witness) && rec.IsVoter(name):
			holding++
		}
	}
	if rec.Degraded && rec.Leader != m.cfg.Self && !m.cand.answers[rec.Leader].HasData {
		return "" // nobody else may be elected
	}
	if rec.IsVoter(m.cfg.Self) {
		holding++
	}
	if m.restored() || holding < m.rules.majority(len(rec.Voters)) {
		return ""
	}
	return "a majority of the voters answers and holds data: they elect one of them by themselves"
}

// recoveryRecord gives the lead to this member alone. Without the newest record it leaps past what that may have held.
func (m *Machine) recoveryRecord() Record {
	old := m.store.seen.Record
	rec := old.next(m.cand.epoch, m.cfg.Self, m.facts.Position)
	last := &rec.History[len(rec.History)-1]
	if m.restored() {
		for _, a := range m.cand.answers {
			rec.Timeline = max(rec.Timeline, a.Position.Rank)
		}
		rec.Timeline += leapTimelines
		rec.Version = max(rec.Version, m.voter.promise.Version) + leapEpochs
	}
	last.Timeline = rec.Timeline
	rec.Voters, rec.Pending, rec.Witness, rec.Degraded = []string{m.cfg.Self}, "", "", false
	rec.Recovered = Recovered{
		ID: m.aim.Recovery.ID, Epoch: rec.Epoch,
		Dropped: slices.DeleteFunc(slices.Clone(old.Voters), func(s string) bool { return s == m.cfg.Self }),
	}
	return rec
}
