package lease

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kept is what a member takes along when its program is exchanged under a running server: its promises, whom it is bound to and until
// when, and of a leader the grants that its deadline rests on. Its times are of the boot clock, which goes on over an execve. What it
// leaves out may be lost like any message: requests under way, and what peers told last.
type Kept struct {
	Self     string `json:"self"`
	Database string `json:"database"`
	At       Time   `json:"at"` // when this was written
	Started  Time   `json:"started"`
	Stage    string `json:"stage"`
	Seq      uint64 `json:"seq"` // of the newest request: the next program's are higher
	Ended    uint64 `json:"ended"`

	Facts     Facts `json:"facts"`
	HasFacts  bool  `json:"hasFacts"`
	DiscardAt Time  `json:"discardAt"`
	Aim       Aim   `json:"aim"`

	Voter KeptVoter `json:"voter"`
	Store KeptStore `json:"store"`
	Lead  *KeptLead `json:"lead,omitempty"` // of a leader

	Line    Line     `json:"line"`
	Decided Decision `json:"decided"`
	Off     uint64   `json:"off"`
	RoleAt  uint64   `json:"roleAt"`
	SyncAt  uint64   `json:"syncAt"`
	Told    []string `json:"told,omitempty"`
}

// KeptVoter is what the member owes to others.
type KeptVoter struct {
	Promise Promise `json:"promise"`
	Disk    Promise `json:"disk"` // what of it is on disk: all but what was read of the Lease since
	Found   bool    `json:"found"`
	LastID  uint64  `json:"lastID"`

	Bound      string `json:"bound"`
	BoundUntil Time   `json:"boundUntil"`
	VoidEpoch  uint64 `json:"voidEpoch"`
	VoidName   string `json:"voidName"`

	LeaderEpoch   uint64 `json:"leaderEpoch"`
	LeaderName    string `json:"leaderName"`
	LeaderLeading bool   `json:"leaderLeading"`
	LeaderSeq     uint64 `json:"leaderSeq"`
	LeaderVersion uint64 `json:"leaderVersion"`
	LeaderAddress string `json:"leaderAddress"`
	LeaderAt      Time   `json:"leaderAt"`

	AsideFor      string   `json:"asideFor"`
	AsideUntil    Time     `json:"asideUntil"`
	HandicapUntil Time     `json:"handicapUntil"`
	Needed        Position `json:"needed"`
	Switchover    string   `json:"switchover"`
	Handed        Position `json:"handed"`
}

// KeptStore is the Lease as the member saw it last.
type KeptStore struct {
	Seen   Seen `json:"seen"`
	Known  bool `json:"known"`
	ReadAt Time `json:"readAt"`
	Heir   bool `json:"heir"`
	HeirAt Time `json:"heirAt"`
}

// KeptLead is a leadership that goes on.
type KeptLead struct {
	Epoch    uint64          `json:"epoch"`
	Cause    string          `json:"cause"`
	Record   Record          `json:"record"`
	RecordAt Time            `json:"recordAt"`
	Grants   map[string]Time `json:"grants"` // by voter: when the request was sent that it granted last
	Higher   uint64          `json:"higher"`
	Checked  string          `json:"checked"`
	Aborted  string          `json:"aborted"`
	Routed   uint64          `json:"routed"`
	// Peers are the newest answers: who follows, and how far, is not unknown for the moment.
	Peers map[string]KeptPeer `json:"peers,omitempty"`
}

// KeptPeer is what a peer said last, and when.
type KeptPeer struct {
	Answer Answer `json:"answer"`
	At     Time   `json:"at"`
}

// unquiet says why the program must not be exchanged now, or "": nothing may be under way whose outcome the next program could not
// know, and a leader needs time until its deadline.
func (m *Machine) unquiet() string {
	v, l := &m.voter, &m.lead
	switch {
	case m.leaving:
		return "it leaves"
	case m.recovers():
		return "it is ordered to recover"
	case !v.onDisk() || len(v.queue) > 0 || v.persistRetry != 0:
		return "a promise is not on disk yet"
	case len(v.parked) > 0 || m.now < v.holdUntil:
		return "a candidate waits for its word"
	case len(m.outbox.to) > 0:
		return "a release is under way"
	case m.store.busy || l.routeBusy:
		return "a request to the API server is under way"
	case m.stage == idle && !m.fenced() && (v.bound == "" || m.now >= v.boundUntil):
		return "nobody leads as far as it knows"
	case m.stage == idle:
		return ""
	case m.stage != leading || !l.promoted:
		return "hands are changing"
	case l.hand.phase != PhaseNone || l.change.active || l.mark.target != "" || len(l.lists) != 1 || l.step.strict || l.doubted:
		return "the leader hands over, or changes what the Lease says"
	case m.now < m.line.Promoted.Add(m.cfg.Handicap):
		return "it has led for moments only"
	case !m.alone() && m.deadline() < m.now.Add(m.cfg.Grant/2+m.facts.StopBudget):
		return "its grants run out soon"
	}
	return ""
}

// onDisk says that what this voter promised is on disk. What it read of the Lease since goes there with the next promise.
func (v *voterState) onDisk() bool {
	disk := v.disk
	disk.Lease, disk.Version = v.promise.Lease, v.promise.Version
	return disk == v.promise
}

// keep returns what the next program needs. Ask unquiet first.
func (m *Machine) keep() Kept {
	v, s, l := &m.voter, &m.store, &m.lead
	k := Kept{
		Self: m.cfg.Self, Database: m.cfg.Database, At: m.now, Started: m.started, Stage: string(m.stage), Seq: m.seq, Ended: m.ended,
		Facts: m.facts, HasFacts: m.hasFacts, DiscardAt: m.discardAt, Aim: m.aim,
		Voter: KeptVoter{
			Promise: v.promise, Disk: v.disk, Found: v.found, LastID: v.lastID, Bound: v.bound, BoundUntil: v.boundUntil,
			VoidEpoch: v.void.epoch, VoidName: v.void.name,
			LeaderEpoch: v.leader.epoch, LeaderName: v.leader.name, LeaderLeading: v.leader.leading, LeaderSeq: v.leader.seq,
			LeaderVersion: v.leader.version, LeaderAddress: v.leader.address, LeaderAt: v.leader.at,
			AsideFor: v.asideFor, AsideUntil: v.asideUntil, HandicapUntil: v.handicapUntil,
			Needed: v.needed, Switchover: v.switchover, Handed: v.handed,
		},
		Store:   KeptStore{Seen: s.seen, Known: s.known, ReadAt: s.readAt, Heir: s.heir, HeirAt: s.heirAt},
		Line:    m.line,
		Decided: m.decided, Off: m.off, RoleAt: m.roleAt, SyncAt: m.syncAt, Told: slices.Sorted(maps.Keys(m.told)),
	}
	if m.stage == leading {
		k.Lead = &KeptLead{
			Epoch: l.epoch, Cause: m.cand.cause, Record: l.record, RecordAt: l.recordAt, Grants: maps.Clone(l.grants), Higher: l.higher,
			Checked: l.checked, Aborted: l.hand.aborted, Routed: l.routed, Peers: map[string]KeptPeer{},
		}
		for name, p := range l.peers {
			k.Lead.Peers[name] = KeptPeer{p.answer, p.at}
		}
	}
	return k
}

// maxKeptAge is how old what was kept may be: an exchange takes a fraction of a second, and who knows nothing of longer starts anew.
const maxKeptAge = time.Minute

// Validate says what is wrong with what was kept, for the member that reads it at the time.
func (k Kept) Validate(self, database string, now Time) error {
	v := k.Voter
	switch {
	case k.Self != self || k.Database != database:
		return fmt.Errorf("kept state: it is of %s of Database %s", k.Self, k.Database)
	case k.At > now || now.Sub(k.At) > maxKeptAge:
		return fmt.Errorf("kept state: it was written at %d and now is %d", k.At, now)
	case errors.Join(v.Promise.Validate(), v.Disk.Validate()) != nil:
		return fmt.Errorf("kept state: %w", errors.Join(v.Promise.Validate(), v.Disk.Validate()))
	case k.Stage != string(idle) && k.Stage != string(leading):
		return fmt.Errorf("kept state: stage %q", k.Stage)
	case (k.Stage == string(leading)) != (k.Lead != nil):
		return fmt.Errorf("kept state: stage %q does not fit its leadership", k.Stage)
	case v.Bound != "" && !validName(v.Bound) || v.LeaderName != "" && !validName(v.LeaderName):
		return fmt.Errorf("kept state: bound to %q, leader %q", v.Bound, v.LeaderName)
	case v.BoundUntil > k.At+Time(time.Hour) || v.LeaderAt > k.At || k.Started > k.At:
		return errors.New("kept state: times of the future")
	}
	if k.Lead == nil {
		return nil
	}
	l := k.Lead
	if l.Epoch == 0 || l.Epoch > maxEpoch || l.Record.Leader != self || l.Record.Epoch != l.Epoch || !l.Record.IsVoter(self) {
		return fmt.Errorf("kept state: it leads at epoch %d by a record of %s at %d", l.Epoch, l.Record.Leader, l.Record.Epoch)
	}
	for name, at := range l.Grants {
		if !validName(name) || at > k.At {
			return fmt.Errorf("kept state: a grant of %q at %d", name, at)
		}
	}
	for name, p := range l.Peers {
		if err := p.Answer.Validate(); err != nil || p.Answer.From != name || p.At > k.At {
			return fmt.Errorf("kept state: the answer of %q at %d: %w", name, p.At, err)
		}
	}
	return nil
}

// RestoreMachine returns the machine that goes on where another program's ended.
func RestoreMachine(cfg Config, now Time, k Kept) (*Machine, error) {
	if err := k.Validate(cfg.Self, cfg.Database, now); err != nil {
		return nil, err
	}
	m, err := NewMachine(cfg, now, k.Voter.Promise, k.Voter.Found)
	if err != nil {
		return nil, err
	}
	kv := k.Voter
	m.started, m.stage, m.seq, m.ended = k.Started, stage(k.Stage), k.Seq, k.Ended
	m.facts, m.hasFacts, m.discardAt, m.aim = k.Facts, k.HasFacts, k.DiscardAt, k.Aim
	m.voter = voterState{
		promise: kv.Promise, disk: kv.Disk, found: kv.Found, lastID: kv.LastID, bound: kv.Bound, boundUntil: kv.BoundUntil,
		void: epochOf{kv.VoidEpoch, kv.VoidName},
		leader: leaderSeen{
			epochOf: epochOf{kv.LeaderEpoch, kv.LeaderName}, leading: kv.LeaderLeading, seq: kv.LeaderSeq,
			version: kv.LeaderVersion, address: kv.LeaderAddress, at: kv.LeaderAt,
		},
		asideFor: kv.AsideFor, asideUntil: kv.AsideUntil, handicapUntil: kv.HandicapUntil,
		needed: kv.Needed, switchover: kv.Switchover, handed: kv.Handed,
	}
	m.store = storeState{seen: k.Store.Seen, known: k.Store.Known, readAt: k.Store.ReadAt, heir: k.Store.Heir, heirAt: k.Store.HeirAt}
	if l := k.Lead; l != nil {
		m.lead = leaderState{
			epoch: l.Epoch, record: l.Record, recordAt: l.RecordAt, lists: [][]string{l.Record.Voters}, grants: maps.Clone(l.Grants),
			peers: map[string]peer{}, promoted: true, higher: l.Higher, checked: l.Checked, hand: handOver{aborted: l.Aborted},
			routed: l.Routed, nextRound: now,
		}
		if m.lead.grants == nil {
			m.lead.grants = map[string]Time{}
		}
		for name, p := range l.Peers {
			m.lead.peers[name] = peer{p.Answer, p.At}
		}
		m.cand.cause, m.cand.epoch, m.cand.record = l.Cause, l.Epoch, l.Record
	}
	m.line, m.decided, m.off, m.roleAt, m.syncAt = k.Line, k.Decided, k.Off, k.RoleAt, k.SyncAt
	for _, t := range k.Told {
		m.told[t] = true
	}
	return m, nil
}
