package lease

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The simulation: members with their own clocks, a network that loses, delays
// and doubles, an API that fails and is late, disks, and a model database.
// Everything follows from one seed.

type simEvent struct {
	at  time.Duration
	seq int
	do  func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

type world struct {
	rnd    *rand.Rand
	rules  rules
	now    time.Duration
	queue  simQueue
	seq    int
	nodes  []*node
	byName map[string]*node
	fenced bool // the kernel drops a primary's traffic after its deadline

	lease     Seen
	version   int
	apiDown   bool
	loss      float64
	slow      time.Duration // longest delay of a message
	cut       map[[2]string]bool
	aim       Aim
	peace     Aim // what is wanted before and after all faults
	aimSeq    int
	acked     []entry
	ackedAt   map[uint64]bool
	nextWrite uint64
	chaos     bool
	onSwap    func(n *node, apply func() LeaseSwapped) bool // a script takes the swap over
	epochs    map[uint64]string
	counts    map[string]int
	trace     []string
	verbose   bool
	ledAt     time.Duration // when somebody last led, or claimed to
	violation string        // a promise was broken
	stuck     string        // nothing was broken, but what was due did not come
}

func newWorld(seed uint64, members int, ru rules) *world {
	rnd := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	w := &world{
		rnd: rnd, rules: ru, byName: map[string]*node{}, cut: map[[2]string]bool{},
		ackedAt: map[uint64]bool{}, epochs: map[uint64]string{}, counts: map[string]int{},
		fenced: rnd.IntN(2) == 0, slow: 5 * time.Millisecond,
	}
	w.version = 1
	w.lease = Seen{ResourceVersion: "1", Bootstrap: "m0"}
	for i := range members {
		n := &node{
			w: w, name: fmt.Sprintf("m%d", i), rate: 1 + (rnd.Float64()-0.5)*0.02,
			offset: Time(rnd.Int64N(int64(1000 * time.Hour))),
		}
		w.nodes = append(w.nodes, n)
		w.byName[n.name] = n
	}
	w.peace = Aim{Members: []string{"m0", "m1", "m2"}[:min(3, members)]}
	w.aim = w.peace
	for _, n := range w.nodes {
		n.start()
	}
	return w
}

// newPair is a world of two members and a witness; a third member and a second witness are at hand.
func newPair(seed uint64, ru rules, preferred bool) *world {
	w := newWorld(seed, 3, ru)
	for _, name := range []string{"w0", "w1"} {
		n := &node{w: w, name: name, witness: true, rate: 1 + (w.rnd.Float64()-0.5)*0.02, offset: Time(w.rnd.Int64N(int64(1000 * time.Hour)))}
		w.nodes = append(w.nodes, n)
		w.byName[name] = n
	}
	w.peace = Aim{Members: []string{"m0", "m1"}, Witness: "w0", Preferred: preferred}
	w.want(func(a *Aim) { *a = w.peace })
	for _, n := range w.nodes[3:] {
		n.start()
	}
	return w
}

// whole says that the voters are those of peace, and that any of them may lead.
func (w *world) whole() bool {
	r := w.lease.Record
	want := w.peace.Members
	if w.peace.Witness != "" {
		want = append(slices.Clone(want), w.peace.Witness)
	}
	return slices.Equal(r.Voters, want) && r.Witness == w.peace.Witness && !r.Degraded
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, simEvent{w.now + max(d, 0), w.seq, do})
}

// run lets the world go on for d.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && w.violation == "" {
		e := heap.Pop(&w.queue).(simEvent)
		w.now = e.at
		e.do()
	}
	w.now = end
}

// runUntil lets the world go on until something holds, for d at most.
func (w *world) runUntil(d time.Duration, holds func() bool) bool {
	for end := w.now + d; w.now < end && w.violation == ""; {
		if holds() {
			return true
		}
		w.run(250 * time.Millisecond)
	}
	return holds()
}

func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rnd.Int64N(int64(hi-lo)+1))
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.logf("VIOLATION %s", w.violation)
	}
}

func (w *world) logf(format string, args ...any) {
	if !w.verbose {
		return
	}
	w.trace = append(w.trace, fmt.Sprintf("%10s ", w.now.Round(time.Microsecond*100))+fmt.Sprintf(format, args...))
}

func (w *world) tail(n int) string {
	return strings.Join(w.trace[max(0, len(w.trace)-n):], "\n")
}

// carry brings something over the network, perhaps, perhaps twice.
func (w *world) carry(from, to string, do func()) {
	copies := 1
	if w.rnd.Float64() < w.loss/2 {
		copies = 2
	}
	for range copies {
		if w.cut[[2]string{from, to}] || w.rnd.Float64() < w.loss {
			continue
		}
		w.after(w.between(200*time.Microsecond, w.slow), func() {
			if !w.cut[[2]string{from, to}] {
				do()
			}
		})
	}
}

func (w *world) request(from *node, to string, r Request) {
	peer := w.byName[to]
	if peer == nil {
		return
	}
	run := from.run
	w.carry(from.name, to, func() {
		peer.arrive(func() {
			peer.token++
			token := peer.token
			peer.replies[token] = func(a Answer) {
				if r.Kind == KindSupport && a.OK && !a.HasData {
					w.counts["supported without data"]++
				}
				w.carry(to, from.name, func() {
					from.arrive(func() {
						// A client would not see an answer to an earlier run; the
						// machine must not be fooled by one all the same.
						if run == from.run || w.rnd.IntN(2) == 0 {
							from.step(Answered{a})
						}
					})
				})
			}
			peer.step(Received{Token: token, Request: r})
		})
	})
}

// readAPI and swapAPI are slow, fail, and may take effect after they failed.
func (w *world) readAPI(n *node) {
	run := n.run
	back := func(in LeaseRead) {
		n.arrive(func() {
			if run == n.run {
				n.step(in)
			}
		})
	}
	if w.apiDown || n.noAPI || w.rnd.Float64() < w.loss {
		w.after(w.between(time.Millisecond, time.Second), func() { back(LeaseRead{Outcome: Unknown}) })
		return
	}
	w.after(w.between(time.Millisecond, 15*time.Millisecond), func() {
		seen := w.lease
		w.after(w.between(time.Millisecond, 15*time.Millisecond), func() { back(LeaseRead{Outcome: Done, Seen: seen}) })
	})
}

func (w *world) swapAPI(n *node, s SwapLease) {
	run := n.run
	back := func(in LeaseSwapped) {
		n.arrive(func() {
			if run == n.run {
				n.step(in)
			}
		})
	}
	apply := func() LeaseSwapped {
		if s.ResourceVersion != w.lease.ResourceVersion {
			return LeaseSwapped{Outcome: Conflict}
		}
		if _, err := s.Record.Encode(); err != nil {
			w.fail("%s swaps a bad record: %v", n.name, err)
		}
		if s.Record.Recovered.ID != w.lease.Record.Recovered.ID {
			w.accept(n)
		}
		w.version++
		w.lease = Seen{ResourceVersion: fmt.Sprint(w.version), Record: s.Record, HasRecord: true}
		w.logf("LEASE %s epoch %d voters %v degraded %v", s.Record.Leader, s.Record.Epoch, s.Record.Voters, s.Record.Degraded)
		if was, ok := w.epochs[s.Record.Epoch]; ok && was != s.Record.Leader {
			w.fail("epoch %d was given to %s and to %s", s.Record.Epoch, was, s.Record.Leader)
		}
		w.epochs[s.Record.Epoch] = s.Record.Leader
		return LeaseSwapped{Outcome: Done, ResourceVersion: w.lease.ResourceVersion}
	}
	if w.onSwap != nil && w.onSwap(n, apply) {
		return
	}
	down := w.apiDown || n.noAPI
	if down || w.rnd.Float64() < w.loss*2 {
		if !down && w.rnd.IntN(2) == 0 { // the answer is lost, or the request is late
			w.after(w.between(0, 6*time.Second), func() { apply() })
			w.counts["late swap"]++
		}
		w.after(w.between(time.Millisecond, time.Second), func() { back(LeaseSwapped{Outcome: Unknown}) })
		return
	}
	w.after(w.between(time.Millisecond, 15*time.Millisecond), func() {
		res := apply()
		w.after(w.between(time.Millisecond, 15*time.Millisecond), func() { back(res) })
	})
}

// ack notes that a client was told that its write is safe, and checks at once
// that every later leadership has it.
func (w *world) ack(n *node, e entry) {
	if w.ackedAt[e.id] {
		return
	}
	w.ackedAt[e.id] = true
	w.acked = append(w.acked, e)
	w.counts["acked"]++
	for _, o := range w.nodes {
		if o != n && o.server == ServerPrimary && o.timeline > n.timeline && !slices.Contains(o.log, e) {
			w.fail("%s acknowledged write %d, which the later leader %s lacks", n.name, e.id, o.name)
		}
	}
}

// accept forgets what was acknowledged and is not in the log of a member from which a person recovers.
func (w *world) accept(n *node) {
	kept := w.acked[:0]
	for _, e := range w.acked {
		if slices.Contains(n.log, e) {
			kept = append(kept, e)
		}
	}
	w.counts["lost as accepted"] += len(w.acked) - len(kept)
	w.acked = kept
}

func (w *world) checkHasAll(n *node) {
	have := make(map[entry]bool, len(n.log))
	for _, e := range n.log {
		have[e] = true
	}
	for _, e := range w.acked {
		if !have[e] {
			w.fail("%s was promoted without the acknowledged write %d of timeline %d", n.name, e.id, e.rank)
			return
		}
	}
}

// mostSilent is for how long a member may have nothing to say while nobody leads: a look at the Lease and a round of questions take that.
const mostSilent = 3000 * time.Millisecond

// checkSaysWhy wants a word from every member that could say why nobody leads.
func (w *world) checkSaysWhy(n *node) {
	for _, o := range w.nodes {
		if o.up && (o.m.stage == leading || o.m.stage == stopping || o.frozen && o.m.stage == claiming) {
			w.ledAt = w.now
		}
	}
	if n.m.waiting.For != WaitNothing || !n.m.everLed() {
		n.saidAt = w.now
	}
	if !n.witness && w.now-w.ledAt > mostSilent && n.age() > mostSilent && w.now-n.saidAt > mostSilent {
		w.fail("nobody leads for %s, and %s does not say why since %s: %s", w.now-w.ledAt, n.name, w.now-n.saidAt, n.m.mute())
	}
	w.counts["waits "+string(n.m.waiting.For)]++
}

// checkOneLeader looks for two members that could both answer clients now.
func (w *world) checkOneLeader() {
	var at string
	for _, n := range w.nodes {
		if !n.mayServe() {
			continue
		}
		if at != "" {
			w.fail("%s and %s lead at the same time", at, n.name)
		}
		at = n.name
	}
}

// mute is what may be the reason for saying nothing.
func (m *Machine) mute() string {
	v, f := &m.voter, m.facts
	return fmt.Sprintf("%s, now %d, bound to %q for %s, next attempt in %s, Lease known %v and busy %v, facts %+v, free for itself %q, aside for %q for %s",
		m.stage, m.now, v.bound, v.boundUntil.Sub(m.now), m.cand.next.Sub(m.now), m.store.known, m.store.busy, f, m.freeFor(m.cfg.Self), v.asideFor, v.asideUntil.Sub(m.now))
}
