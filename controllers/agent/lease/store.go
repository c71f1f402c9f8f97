package lease

// storeState is what a member knows of the Lease object. One request is under
// way at most, so each result belongs to the one that asked.
type storeState struct {
	seen    Seen
	known   bool // read at least once
	busy    bool
	askedAt Time
	readAt  Time // when the request was sent that brought seen
	next    Time // not before, after a failure
	tries   int
	heir    bool // the leader is about to hand over to this member
	heirAt  Time // when the Lease was read for that
	fault   Wait // why the newest request was not answered as it should be
}

func (m *Machine) readLease() bool {
	if m.store.busy || m.now < m.store.next {
		return false
	}
	m.store.busy, m.store.askedAt = true, m.now
	m.emit(ReadLease{})
	return true
}

func (m *Machine) swapLease(r Record) bool {
	s := &m.store
	if s.busy || m.now < s.next || s.seen.ResourceVersion == "" {
		return false
	}
	s.busy, s.askedAt = true, m.now
	m.emit(SwapLease{Record: r, ResourceVersion: s.seen.ResourceVersion})
	return true
}

func (m *Machine) leaseRead(in LeaseRead) {
	s := &m.store
	s.busy = false
	s.failed(in.Outcome, in.Fault)
	if in.Outcome != Done {
		s.tries++
		s.next = m.now.Add(m.backoff(s.tries))
		if m.stage == reading {
			m.stage = idle
			m.retryLater()
		}
		return
	}
	s.tries, s.next = 0, 0
	s.seen, s.known, s.readAt = in.Seen, true, s.askedAt
	if s.heir {
		s.heirAt = m.now
	}
	if in.Seen.HasRecord {
		m.knows(in.Seen.Record.Epoch, in.Seen.Record.Version) // goes to disk with the next promise
	}
	switch m.stage {
	case reading:
		m.startAsking()
	case swapping:
		m.candidateReadLease()
	case leading:
		m.leaderReadLease()
	case idle, asking, standing, claiming, stopping:
	}
}

func (m *Machine) leaseSwapped(in LeaseSwapped) {
	s := &m.store
	s.busy = false
	s.failed(in.Outcome, in.Fault)
	mine := m.cand.record
	if m.stage == leading {
		mine = m.lead.change.record
	}
	if in.Outcome != Done {
		s.tries++
		s.next = m.now.Add(m.backoff(min(s.tries, 3)))
		if in.Outcome == Conflict && s.tries <= 2 {
			s.next = 0
		}
		return // whoever swapped reads next, because an unknown swap may land yet
	}
	s.tries, s.next = 0, 0
	s.seen = Seen{ResourceVersion: in.ResourceVersion, Record: mine, HasRecord: true}
	s.known, s.readAt = true, s.askedAt
	switch m.stage {
	case swapping:
		m.claim(mine.Epoch)
	case leading:
		m.changeLanded()
	case idle, reading, asking, standing, claiming, stopping:
		// Too late for this member: its leadership of that epoch is over before
		// it began. Read again before anything is built on the guess above.
		s.known = false
	}
}

// restored says that the Lease holds less than this member knows to have stood
// there: it was deleted, or etcd came back from a backup. Only a leader with
// grants may repair that. The version tells a backup of the same epoch, whose
// list of voters may be an older one.
func (m *Machine) restored() bool {
	s, p := m.store.seen, m.voter.promise
	return !s.HasRecord || s.Record.Epoch < p.Lease || s.Record.Version < p.Version
}

// ReasonOlder is a decision's reason where a member would stand for election, and may not.
const ReasonOlder = "the Lease is missing or older than what this member saw; only a leader with grants may rewrite it"

// standsAside says that this member would stand, and found again and again that the Lease is not the newest: one read may have crossed
// a swap.
func (m *Machine) standsAside() bool { return m.cand.older > 2 }

// knows keeps what stood in the Lease, and says whether it is news.
func (m *Machine) knows(epoch, version uint64) bool {
	p := &m.voter.promise
	news := epoch > p.Lease || version > p.Version
	p.Lease, p.Version = max(p.Lease, epoch), max(p.Version, version)
	return news
}
