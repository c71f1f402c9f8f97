// Package aggregate adds up what the kernel counted: exactly for each instance, and by statement for those that matter most.
package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// Instance is one server of a Database.
type Instance struct{ Namespace, Database, Name string }

// Statement is what is counted together of an instance.
type Statement struct {
	Role    string // of the instance when it was counted: primary, replica or, before it is known, empty
	Session event.Session
	Query   string // its id, or Other
}

// Other stands for all statements of an instance that have no counts of their own.
const Other = "other"

// Sums of what was counted.
type Sums struct {
	Calls, Rows, BytesIn, BytesOut uint64
	Queue, Service, Transfer       time.Duration
	// Latency of those calls whose begin was seen; Slots are as event.Counts has them.
	Latency time.Duration
	Slots   [event.Buckets]uint64
	// Errors by class of SQLSTATE, those that Class knows.
	Errors map[string]uint64
}

func (s *Sums) add(d *Sums) {
	s.Calls += d.Calls
	s.Rows += d.Rows
	s.BytesIn += d.BytesIn
	s.BytesOut += d.BytesOut
	s.Queue += d.Queue
	s.Service += d.Service
	s.Transfer += d.Transfer
	s.Latency += d.Latency
	for i, n := range d.Slots {
		s.Slots[i] += n
	}
	for class, n := range d.Errors {
		if s.Errors == nil {
			s.Errors = map[string]uint64{}
		}
		s.Errors[class] += n
	}
}

// Options bound a Table.
type Options struct {
	// Statements of an instance that have counts of their own, at most.
	Statements int
}

// Table holds the sums of all instances. Its methods may not be called side by side.
type Table struct {
	most      int
	before    map[uint64]*event.Counts // by place, as of the last Take
	instances map[Instance]*instance
	displaced uint64
}

type instance struct {
	totals     map[string]*Sums // by role
	others     map[string]*Sums // by role
	statements map[Statement]*placed
	waiting    map[Statement]*waiting
}

// waiting is a statement that is counted as Other. Its text comes with its next call, so that none is kept for what is not shown.
type waiting struct{ score float64 }

type placed struct {
	Sums
	text  string
	score float64
}

// mostWaiting bounds the statements of an instance that may come to counts of their own.
const mostWaiting = 4096

// New makes an empty Table.
func New(o Options) *Table {
	return &Table{most: o.Statements, before: map[uint64]*event.Counts{}, instances: map[Instance]*instance{}}
}

// Counted is whose and what a key counts.
type Counted struct {
	Instance  Instance
	Statement Statement
	Text      string // of the statement, for people
}

// Whose tells what a key counts; not ok leaves it out.
type Whose func(event.Key) (Counted, bool)

// Take adds what was counted since the last time; counts are those of all places. A key that whose does not know is looked at as new the
// next time.
func (t *Table) Take(counts iter.Seq[event.Counts], whose Whose) {
	told := map[uint64]bool{}
	for now := range counts {
		told[now.Place] = true
		before := t.before[now.Place]
		if before != nil && before.Calls == now.Calls && before.Rows == now.Rows {
			continue
		}
		if before == nil && now.Calls == 0 && now.Rows == 0 {
			continue
		}
		counted, ok := whose(now.Key)
		if !ok {
			continue
		}
		if before == nil {
			before = &event.Counts{}
			t.before[now.Place] = before
		}
		t.instance(counted.Instance).take(since(before, &now), counted, t.most)
		*before = now
	}
	maps.DeleteFunc(t.before, func(place uint64, _ *event.Counts) bool { return !told[place] })
}

func since(before, now *event.Counts) *Sums {
	d := &Sums{
		Calls: now.Calls - before.Calls, Rows: now.Rows - before.Rows,
		BytesIn: now.BytesIn - before.BytesIn, BytesOut: now.BytesOut - before.BytesOut, Latency: now.Latency - before.Latency,
		Queue: now.Queue - before.Queue, Service: now.Service - before.Service, Transfer: now.Transfer - before.Transfer,
	}
	for i := range now.Slots {
		d.Slots[i] = now.Slots[i] - before.Slots[i]
	}
	if now.Key.State != 0 && d.Calls > 0 {
		d.Errors = map[string]uint64{Class(now.Key.State): d.Calls}
	}
	return d
}

func (t *Table) instance(of Instance) *instance {
	i := t.instances[of]
	if i == nil {
		i = &instance{totals: map[string]*Sums{}, others: map[string]*Sums{}, statements: map[Statement]*placed{}, waiting: map[Statement]*waiting{}}
		t.instances[of] = i
	}
	return i
}

func (i *instance) take(d *Sums, c Counted, most int) {
	s := c.Statement
	sumsOf(i.totals, s.Role).add(d)
	score := float64(d.Latency) + float64(d.Calls)
	p := i.statements[s]
	if p == nil && s.Query != Other && len(i.statements) < most {
		p = &placed{}
		i.statements[s] = p
	}
	if p != nil {
		if p.text == "" { // it was not known, or not to be shown
			p.text = c.Text
		}
		p.add(d)
		p.score += score
		return
	}
	sumsOf(i.others, s.Role).add(d)
	if s.Query == Other {
		return
	}
	w := i.waiting[s]
	if w == nil && len(i.waiting) < mostWaiting {
		w = &waiting{}
		i.waiting[s] = w
	}
	if w != nil {
		w.score += score
	}
}

func sumsOf(by map[string]*Sums, role string) *Sums {
	if by[role] == nil {
		by[role] = &Sums{}
	}
	return by[role]
}

const (
	// decay is what of a score is left after a Rank, and negligible what is not worth to be kept: a microsecond.
	decay, negligible = 0.8, float64(time.Microsecond)
	// outdo is how many times the weight of a statement another needs to take its place, so that two alike do not take turns.
	outdo = 2
)

// Rank gives the places of statements that weigh little to others of the same instance that weigh more, by the time that clients have waited for them
// of late. The counts of a statement that loses its place end, and what comes of it later is counted as Other; no call is counted twice. Call
// it in equal intervals.
func (t *Table) Rank() {
	for _, i := range t.instances {
		t.displaced += i.rank()
	}
}

func (i *instance) rank() (displaced uint64) {
	weakest := slices.SortedFunc(maps.Keys(i.statements), func(a, b Statement) int {
		return cmp.Compare(i.statements[a].score, i.statements[b].score)
	})
	strongest := slices.SortedFunc(maps.Keys(i.waiting), func(a, b Statement) int {
		return cmp.Compare(i.waiting[b].score, i.waiting[a].score)
	})
	for n := range min(len(weakest), len(strongest)) {
		loser, winner := weakest[n], strongest[n]
		w := i.waiting[winner]
		if w.score <= outdo*i.statements[loser].score {
			break
		}
		delete(i.statements, loser)
		delete(i.waiting, winner)
		i.statements[winner] = &placed{score: w.score}
		displaced++
	}
	for _, p := range i.statements {
		p.score *= decay
	}
	for s, w := range i.waiting {
		if w.score *= decay; w.score < negligible {
			delete(i.waiting, s)
		}
	}
	return displaced
}

// Forget leaves out an instance that is gone.
func (t *Table) Forget(of Instance) { delete(t.instances, of) }

// ForgetCgroup leaves out what was counted in a cgroup that is gone.
func (t *Table) ForgetCgroup(id uint64) {
	maps.DeleteFunc(t.before, func(_ uint64, c *event.Counts) bool { return c.Key.Cgroup == id })
}

// Displaced counts the statements that lost their place to another.
func (t *Table) Displaced() uint64 { return t.displaced }

// Instances are all that have sums.
func (t *Table) Instances() iter.Seq[Instance] { return maps.Keys(t.instances) }

// Totals of an instance by role: everything, whatever has a place.
func (t *Table) Totals(of Instance) iter.Seq2[string, *Sums] {
	if i := t.instances[of]; i != nil {
		return maps.All(i.totals)
	}
	return func(func(string, *Sums) bool) {}
}

// Statements of an instance with their texts, and those that have no place as Other.
func (t *Table) Statements(of Instance) iter.Seq2[Counted, *Sums] {
	return func(yield func(Counted, *Sums) bool) {
		i := t.instances[of]
		if i == nil {
			return
		}
		for s, p := range i.statements {
			if !yield(Counted{Instance: of, Statement: s, Text: p.text}, &p.Sums) {
				return
			}
		}
		for role, sums := range i.others {
			if !yield(Counted{Instance: of, Statement: Statement{Role: role, Query: Other}}, sums) {
				return
			}
		}
	}
}

// Class of an SQLSTATE, if it is one of PostgreSQL's, or a word of Redis; else Other: functions may raise any five characters.
func Class(s event.State) string {
	if word, ok := s.Word(); ok {
		return word
	}
	switch class := s.Class(); class {
	case "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23", "24", "25", "26", "27", "28", "2B", "2D", "2F",
		"34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX":
		return class
	}
	return Other
}
