package lease

// rules are the places where the simulation plants bugs, to prove that it
// would notice them. Nothing but a test builds other rules than safeRules.
type rules struct {
	majority  func(voters int) int                     // of the voters in the Lease
	bound     func(until, now Time) bool               // a grant still binds its voter
	refuses   func(promise, asked uint64) bool         // an epoch is too low
	covers    func(candidate, supporter Position) bool // the candidate has all that the supporter has
	stopLead  func(f Facts) Time                       // how long before the deadline the stop begins
	entitled  func(m *Machine) bool                    // a claimant has its fresh majority
	blind     func(led bool) bool                      // a voter without data supports, and its support counts
	electable func(rec Record, self string) bool       // the record lets this member lead
	fewer     func(m *Machine) bool                    // a commit may be acknowledged that too few hold
	outrun    func(release Request, l leaderSeen) bool // a release is older than the newest grant of its sender
	exchanged func(m *Machine)                         // what of a member does not outlive the exchange of its program: nothing
	finalOnly bool                                     // support waits until receiving has ended
	waitT     bool                                     // a restarted voter waits T
	asksAll   bool                                     // a recovery asks all others first
}

func safeRules() rules {
	return rules{
		majority:  Majority,
		bound:     func(until, now Time) bool { return now < until },
		refuses:   func(promise, asked uint64) bool { return asked < promise },
		covers:    func(c, s Position) bool { return c.Holds(s) },
		stopLead:  func(f Facts) Time { return Time(f.StopBudget) },
		entitled:  func(m *Machine) bool { return m.deadline() > m.now.Add(min(m.facts.StopBudget, m.cfg.Grant/2)) },
		blind:     func(led bool) bool { return led },
		electable: Record.Electable,
		fewer:     (*Machine).mayGoOn,
		outrun: func(r Request, l leaderSeen) bool {
			return l.epochOf == (epochOf{r.Epoch, r.From}) && r.Seq < l.seq
		},
		exchanged: func(*Machine) {},
		finalOnly: true,
		waitT:     true,
		asksAll:   true,
	}
}
