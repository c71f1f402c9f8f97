package lease

// voterState is what a member owes to others.
type voterState struct {
	promise  Promise // the highest made, on disk or on its way there
	disk     Promise // the newest that is on disk for certain
	found    bool    // a promise was found at the start, or has been written since
	queue    []Persist
	queuedAt Time // since when there is something in it
	lastID   uint64

	persistRetry Time

	bound      string // to whom a grant was given
	boundUntil Time
	holdUntil  Time // the supported candidate's time to get on with it
	void       epochOf
	leader     leaderSeen

	asideFor      string // the member that goes first
	asideUntil    Time
	handicapUntil Time
	needed        Position // this member is the heir: what it must hold
	switchover    string   // and the switchover that made it so
	handed        Position // this member handed over: all that it acknowledged is in here

	parked []parked // requests that wait for the disk or for the end of receiving
}

type epochOf struct {
	epoch uint64
	name  string
}

// leaderSeen is the leader that this member last granted.
type leaderSeen struct {
	epochOf
	leading  bool
	seq      uint64 // of the newest request: an older one that comes late does not take leading back
	version  uint64
	address  string
	rebuilds string   // who is being copied, by its own word
	end      Position // how far its log went by its own word; unknown unless it runs as primary
	at       Time
}

type parked struct {
	in    Received
	since Time
}

const maxParked = 32

func (m *Machine) receive(in Received) {
	r := in.Request
	if err := r.Validate(); err != nil {
		m.note(EventIgnored, 0, "malformed request") // no text of a stranger's: causes are counted
		m.refuse(in.Token, r, "malformed")
		return
	}
	if r.Database != m.cfg.Database || r.From == m.cfg.Self {
		m.note(EventIgnored, 0, "request of another Database, or of this member itself")
		m.refuse(in.Token, r, "wrong database")
		return
	}
	switch r.Kind {
	case KindGrant:
		m.onGrant(in)
	case KindPreVote:
		m.answer(in, m.wouldSupport(r))
	case KindSupport:
		m.onSupport(in)
	case KindRelease:
		m.onRelease(r)
		m.answer(in, "")
	case KindStatus:
		m.answer(in, "")
	}
}

// answer replies with all that a peer may want to know; why is empty for yes.
func (m *Machine) answer(in Received, why string) {
	m.emit(Reply{in.Token, Answer{
		Database: m.cfg.Database, From: m.cfg.Self, Seq: in.Request.Seq,
		OK: why == "", Why: why,
		Promise: m.voter.promise.Epoch, To: m.voter.promise.Candidate, Position: m.facts.Position,
		Able: m.able(), Free: m.tied("") == "" && !m.busyStanding(), HasData: m.facts.HasData,
		Leave: m.facts.Discard, CanWait: m.facts.Discard && m.facts.CanWait, Address: m.cfg.Address,
		Role: m.decided.Role, Leader: m.decided.Leader, Epoch: m.decided.Epoch,
	}})
}

func (m *Machine) refuse(token uint64, r Request, why string) {
	m.emit(Reply{token, Answer{Database: m.cfg.Database, From: m.cfg.Self, Seq: r.Seq, Why: why}})
}

// whyReleased refuses a leader that this voter knows to have ended. One that forgot its release, because its disk never took it, leads
// on with the others and needs a new epoch for this one.
const whyReleased = "that leadership was released"

// promised says whether the voter may still deal with the candidate at the
// epoch: nothing lower than the promise, at the same epoch nobody else. One
// candidate per epoch, as in Raft; to move on takes a higher epoch.
func (m *Machine) promised(epoch uint64, candidate string) string {
	p := m.voter.promise
	switch {
	case m.rules.refuses(p.Epoch, epoch):
		return "promised to a higher epoch"
	case p.Epoch == epoch && p.Candidate != candidate:
		return "promised to another at this epoch"
	case m.voter.void == (epochOf{epoch, candidate}):
		return whyReleased
	}
	return ""
}

// whyRestarted is one of the words of tied.
const whyRestarted = "restarted less than a grant ago"

// tied says why the voter cannot leave whoever it may have granted to.
func (m *Machine) tied(to string) string {
	v := &m.voter
	switch {
	case m.stage == leading || m.stage == stopping:
		return "leads itself, or has not stopped yet"
	case !v.found && !m.store.known:
		return "has no promise and has not read the Lease"
	case v.bound != to && m.rules.bound(v.boundUntil, m.now):
		return "bound by a grant"
	case m.rules.waitT && m.now < m.started.Add(m.cfg.Grant) &&
		v.promise.Candidate != to && v.promise.Candidate != m.cfg.Self && // its own leadership ended with the restart
		!m.promiseReleased() && (v.found || m.counted()):
		// Before the restart it may have granted; the file tells to whom, not when.
		return whyRestarted
	}
	return ""
}

// promiseReleased says that the leadership that the promise is about is over.
func (m *Machine) promiseReleased() bool {
	p := m.voter.promise
	return p.Epoch > 0 && m.voter.void == (epochOf{p.Epoch, p.Candidate})
}

// counted says that nothing rules out that this member's earlier grants count
// for somebody. A list in the Lease without it does: every majority that can
// matter is one of that list.
func (m *Machine) counted() bool {
	s := m.store.seen
	return !s.HasRecord || s.Record.IsVoter(m.cfg.Self)
}

func (m *Machine) onGrant(in Received) {
	r, v := in.Request, &m.voter
	why := m.promised(r.Epoch, r.From)
	if why == "" {
		why = m.tied(r.From)
	}
	if why == "" && m.store.seen.Record.Epoch > r.Epoch {
		why = "the Lease names a higher epoch"
	}
	if m.stage == leading && r.Epoch > m.lead.epoch {
		m.lead.doubted = true // who asks for grants stands in the Lease
	}
	if why != "" {
		m.answer(in, why)
		return
	}
	if m.busyStanding() && r.Epoch >= m.cand.epoch {
		m.stage = idle // somebody leads: nothing to stand for
	}
	news := m.knows(r.Epoch, r.Version) // who asks for grants stands in the Lease
	if !m.keeps(r.Epoch, r.From) {
		m.park(in)
		return
	}
	if news {
		m.persist(v.promise) // once for each change of the record; the grant need not wait for it
	}
	v.bound, v.boundUntil, v.holdUntil = r.From, m.now.Add(m.cfg.Grant), 0
	v.leader = m.leaderNow(r)
	v.handed = Position{}
	m.cand.tries, m.cand.older, m.cand.asideSince = 0, 0, 0
	m.newLine(Line{Seen: m.now})
	m.cand.lacks, m.cand.failed, m.store.fault = Wait{}, "", Wait{}
	if m.stage == reading || m.stage == asking {
		m.stage = idle
	}
	named := r.Heir == m.cfg.Self
	if named && !m.store.heir {
		m.greet()
	}
	m.store.heir = named
	m.answer(in, "")
}

// greet opens the connections that this member's election is going to need: a handshake takes longer than the rest of it.
func (m *Machine) greet() {
	for _, name := range m.store.seen.Record.Voters {
		if name != m.cfg.Self {
			m.send(name, Request{Kind: KindStatus})
		}
	}
}

// leaderNow is what a request for a grant tells of its sender. A replica that runs may attach as soon as the sender has won: it
// receives from whom it is promised to, and no further than that member's log goes.
func (m *Machine) leaderNow(r Request) leaderSeen {
	old := m.voter.leader
	now := leaderSeen{
		epochOf: epochOf{r.Epoch, r.From}, version: r.Version, address: r.Address, end: r.At, rebuilds: r.Rebuilds, at: m.now, seq: r.Seq,
		leading: r.Leading || r.Elected && m.hasFacts && m.facts.HasData && !m.facts.Discard && m.facts.Server == ServerReplica,
	}
	if old.epochOf == now.epochOf {
		now.leading = now.leading || old.leading && (r.Elected || r.Seq < old.seq)
		now.seq = max(r.Seq, old.seq)
	}
	return now
}

// busyStanding says whether this member runs for an epoch of its own.
func (m *Machine) busyStanding() bool {
	return m.stage == standing || m.stage == swapping || m.stage == claiming
}

func (m *Machine) onSupport(in Received) {
	r, v := in.Request, &m.voter
	why := m.promised(r.Epoch, r.From)
	if why == "" {
		why = m.wouldSupport(r)
	}
	if why != "" {
		m.answer(in, why)
		return
	}
	if v.promise.Epoch < r.Epoch {
		v.holdUntil = m.now.Add(m.cfg.Hold)
	}
	kept := m.keeps(r.Epoch, r.From)
	if m.busyStanding() || m.stage == reading || m.stage == asking {
		m.stage = idle
		m.retryLater()
	}
	if kept && m.final() {
		m.answerFinal(in)
		return
	}
	m.park(in)
}

// answerFinal supports. A leader that handed over in good order reports where
// its clients' last commit ended: its shutdown record behind that is nobody's loss.
func (m *Machine) answerFinal(in Received) {
	at := m.facts.Position
	if h := m.voter.handed; h.Known && (!at.Known || at.Holds(h)) {
		at = h
	}
	m.answer(in, "")
	r := m.out[len(m.out)-1].(Reply)
	if !r.Answer.HasData {
		at = Position{}
	}
	r.Answer.Position = at
	m.out[len(m.out)-1] = r
}

// wouldSupport says why this voter would not support another member now.
func (m *Machine) wouldSupport(r Request) string {
	if m.facts.Ailing != "" {
		return "cannot keep a promise" // said at once, so that nobody waits for it
	}
	if !m.facts.HasData && !m.cfg.Witness && !m.rules.blind(m.led(r)) {
		// A voter that lost its data may have held the only other copy of a
		// commit; its word about positions is worth nothing. But whom the Lease
		// names has every commit itself: it needs the promise alone.
		return "holds no data"
	}
	if r.Version != 0 && r.Version < m.voter.promise.Version {
		return "knows a later Lease than the candidate, which was restored from a backup"
	}
	return m.freeFor(r.From)
}

// led says whether nothing that this member knows speaks against the candidate's word that the Lease names it as the last leader. The
// proof is the candidate's swap, which only lands on the record that it read.
func (m *Machine) led(r Request) bool {
	s := m.store.seen
	if s.HasRecord && s.Record.Epoch == r.Led && s.Record.Leader != r.From {
		return false
	}
	return r.Led > 0 && r.Led >= m.voter.promise.Lease && r.Led < r.Epoch
}

// freeFor says why this voter is not free to support the candidate.
func (m *Machine) freeFor(candidate string) string {
	v := &m.voter
	if why := m.tied(candidate); why != "" {
		return why
	}
	switch {
	case v.promise.Candidate != candidate && m.now < v.holdUntil:
		return "supports another"
	case v.asideFor != candidate && m.now < v.asideUntil:
		return "another goes first"
	}
	return ""
}

// keeps makes sure that the promise is on disk, and says whether it is.
func (m *Machine) keeps(epoch uint64, candidate string) bool {
	v := &m.voter
	if v.promise.Epoch != epoch && !m.rules.refuses(v.promise.Epoch, epoch) {
		p := v.promise
		p.Epoch, p.Candidate, p.Released = epoch, candidate, false
		m.persist(p)
	}
	return v.disk.Epoch == epoch && v.disk.Candidate == candidate && v.promise.Epoch == epoch
}

// final says that the server receives from nobody, for certain, so that the
// position cannot grow any more.
func (m *Machine) final() bool {
	f := m.facts
	if !m.rules.finalOnly {
		return f.Position.Known
	}
	// Of a server that was stopped in good order the end need not be looked up: its log reaches as far as what was handed over.
	// A voter without data has none to tell, and only promises.
	known := f.Position.Known || f.Server == ServerStopped && m.voter.handed.Known || !f.HasData
	return m.hasFacts && m.decided.Upstream == "" && m.upstream() == "" && f.Obeys >= m.off &&
		!f.Receiving && (f.Server == ServerStopped || f.Server == ServerReplica) && known
}

func (m *Machine) onRelease(r Request) {
	v := &m.voter
	of := epochOf{r.Epoch, r.From}
	if r.Epoch < v.promise.Epoch || r.Epoch < v.void.epoch {
		return
	}
	if r.Epoch == v.promise.Epoch && r.From != v.promise.Candidate {
		return
	}
	if m.rules.outrun(r, v.leader) {
		return // of an earlier run of the sender, which has come back and was granted since
	}
	again := v.void == of
	v.void = of
	if v.bound == r.From {
		v.boundUntil = 0
	}
	if r.Epoch > v.promise.Epoch || again {
		return
	}
	v.holdUntil = 0
	v.leader.leading = false // it is gone: end receiving already now
	m.line.Released, m.line.Why = m.now, r.Cause
	m.cand.tries, m.cand.next, m.cand.asideSince = 0, m.now, 0
	v.needed, v.switchover = Position{}, ""
	switch r.Heir {
	case "":
		v.asideFor, v.asideUntil = "", 0
	case m.cfg.Self:
		v.asideFor, v.asideUntil = m.cfg.Self, m.now.Add(m.cfg.Aside)
		v.needed, v.switchover = r.Needed, r.ID
	default:
		v.asideFor, v.asideUntil = r.Heir, m.now.Add(m.cfg.Aside)
	}
}
