package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// Client is who opens connections, as people name it.
type Client struct{ Namespace, Kind, Name string }

// OtherClients stands for all clients of an instance that have no counts of their own.
func OtherClients() Client { return Client{Kind: Other} }

// ConnectionSums of what was counted.
type ConnectionSums struct {
	Open                            uint64 // now
	Opened, Closed, Reset, TimedOut uint64
	Refused                         uint64
	BytesIn, BytesOut, Retransmits  uint64
	RoundTrip                       time.Duration // sum over Slots
	Slots                           [event.RoundTrips]uint64
}

func (s *ConnectionSums) add(d *ConnectionSums) {
	s.Open += d.Open
	s.Opened += d.Opened
	s.Closed += d.Closed
	s.Reset += d.Reset
	s.TimedOut += d.TimedOut
	s.Refused += d.Refused
	s.BytesIn += d.BytesIn
	s.BytesOut += d.BytesOut
	s.Retransmits += d.Retransmits
	s.RoundTrip += d.RoundTrip
	for i, n := range d.Slots {
		s.Slots[i] += n
	}
}

// Connections holds the sums of connections of all instances. Its methods may not be called side by side.
type Connections struct {
	most      int
	before    map[uint64]*event.Connections // by place, as of the last Take
	instances map[Instance]*visited
	displaced uint64
}

// visited is an instance that has clients.
type visited struct {
	total, others ConnectionSums
	clients       map[Client]*scored
	waiting       map[Client]*waiting
}

type scored struct {
	ConnectionSums
	score float64
}

// NewConnections makes an empty table, in which so many clients of an instance have counts of their own, at most.
func NewConnections(most int) *Connections {
	return &Connections{most: most, before: map[uint64]*event.Connections{}, instances: map[Instance]*visited{}}
}

// Visit is whose and who a client's address is.
type Visit struct {
	Instance Instance
	Client   Client
}

// Take adds what was counted since the last time; counts are those of all places. Not ok leaves one out, and it is looked at as new the next time.
func (t *Connections) Take(counts iter.Seq[event.Connections], whose func(*event.Connections) (Visit, bool)) {
	for _, i := range t.instances {
		i.total.Open, i.others.Open = 0, 0
		for _, c := range i.clients {
			c.Open = 0
		}
	}
	told := map[uint64]bool{}
	for now := range counts {
		told[now.Place] = true
		v, ok := whose(&now)
		if !ok {
			continue
		}
		before := t.before[now.Place]
		if before == nil {
			before = &event.Connections{}
			t.before[now.Place] = before
		}
		d := connectionsSince(before, &now)
		*before = now
		if d != (ConnectionSums{}) {
			t.instance(v.Instance).take(&d, v.Client, t.most)
		}
	}
	maps.DeleteFunc(t.before, func(place uint64, _ *event.Connections) bool { return !told[place] })
}

func connectionsSince(before, now *event.Connections) ConnectionSums {
	d := ConnectionSums{
		Open: now.Open(), Opened: now.Opened - before.Opened, Closed: now.Closed - before.Closed, Reset: now.Reset - before.Reset,
		TimedOut: now.TimedOut - before.TimedOut, Refused: now.Refused - before.Refused,
		BytesIn: now.BytesIn - before.BytesIn, BytesOut: now.BytesOut - before.BytesOut,
		Retransmits: now.Retransmits - before.Retransmits, RoundTrip: now.RoundTrip - before.RoundTrip,
	}
	for i := range now.Slots {
		d.Slots[i] = now.Slots[i] - before.Slots[i]
	}
	return d
}

func (t *Connections) instance(of Instance) *visited {
	i := t.instances[of]
	if i == nil {
		i = &visited{clients: map[Client]*scored{}, waiting: map[Client]*waiting{}}
		t.instances[of] = i
	}
	return i
}

// weight of what a client did: connections that it has and opens, and what it sends and gets.
func weight(d *ConnectionSums) float64 {
	const perConnection = 16 << 10 // bytes that weigh as much as one
	return float64(d.Open) + float64(d.Opened) + float64(d.BytesIn+d.BytesOut)/perConnection
}

func (i *visited) take(d *ConnectionSums, c Client, most int) {
	i.total.add(d)
	own := i.clients[c]
	if own == nil && c != OtherClients() && len(i.clients) < most {
		own = &scored{}
		i.clients[c] = own
	}
	if own != nil {
		own.add(d)
		own.score += weight(d)
		return
	}
	i.others.add(d)
	if c == OtherClients() {
		return
	}
	w := i.waiting[c]
	if w == nil && len(i.waiting) < mostWaiting {
		w = &waiting{}
		i.waiting[c] = w
	}
	if w != nil {
		w.score += weight(d)
	}
}

// leastWeight is what is not worth to be kept.
const leastWeight = 0.01

// Rank gives the places of clients that did little of late to others of the same instance that did more, as that of a Table does. A Take must follow
// before anything is shown: what is open is counted anew then.
func (t *Connections) Rank() {
	for _, i := range t.instances {
		t.displaced += i.rank()
	}
}

func (i *visited) rank() (displaced uint64) {
	weakest := slices.SortedFunc(maps.Keys(i.clients), func(a, b Client) int { return cmp.Compare(i.clients[a].score, i.clients[b].score) })
	strongest := slices.SortedFunc(maps.Keys(i.waiting), func(a, b Client) int { return cmp.Compare(i.waiting[b].score, i.waiting[a].score) })
	for n := range min(len(weakest), len(strongest)) {
		loser, winner := weakest[n], strongest[n]
		w := i.waiting[winner]
		if w.score <= outdo*i.clients[loser].score {
			break
		}
		delete(i.clients, loser)
		delete(i.waiting, winner)
		i.clients[winner] = &scored{score: w.score}
		displaced++
	}
	for _, c := range i.clients {
		c.score *= decay
	}
	for c, w := range i.waiting {
		if w.score *= decay; w.score < leastWeight {
			delete(i.waiting, c)
		}
	}
	return displaced
}

// Forget leaves out an instance that is gone.
func (t *Connections) Forget(of Instance) { delete(t.instances, of) }

// ForgetCgroup leaves out what was counted in a cgroup that is gone.
func (t *Connections) ForgetCgroup(id uint64) {
	maps.DeleteFunc(t.before, func(_ uint64, c *event.Connections) bool { return c.Cgroup == id })
}

// Displaced counts the clients that lost their place to another.
func (t *Connections) Displaced() uint64 { return t.displaced }

// Totals of each instance: everything, whoever has a place.
func (t *Connections) Totals() iter.Seq2[Instance, *ConnectionSums] {
	return func(yield func(Instance, *ConnectionSums) bool) {
		for of, i := range t.instances {
			if !yield(of, &i.total) {
				return
			}
		}
	}
}

// Clients of an instance, and those that have no place as OtherClients if there were any.
func (t *Connections) Clients(of Instance) iter.Seq2[Client, *ConnectionSums] {
	return func(yield func(Client, *ConnectionSums) bool) {
		i := t.instances[of]
		if i == nil {
			return
		}
		for c, own := range i.clients {
			if !yield(c, &own.ConnectionSums) {
				return
			}
		}
		if i.others != (ConnectionSums{}) {
			yield(OtherClients(), &i.others)
		}
	}
}
