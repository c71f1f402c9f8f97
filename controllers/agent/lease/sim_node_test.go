package lease

import (
	"encoding/json"
	"fmt"
	"time"
)

// entry is one record of the model database's log. Rank is its timeline.
type entry struct{ rank, id uint64 }

// node is a member with its agent, disk and server.
type node struct {
	w       *world
	name    string
	witness bool // holds no data
	rate    float64
	offset  Time

	up         bool
	run        int  // counts restarts; callbacks of an earlier run do nothing
	frozen     bool // the agent gets no CPU
	exchanging bool // and will be another program
	backlog    []func()
	thawed     time.Duration // when it last got CPU again
	noAPI      bool
	m          *Machine
	tickAt     Time
	ticking    int
	token      uint64
	replies    map[uint64]func(Answer)

	// On the volume.
	diskFree   time.Duration // one write after the other
	promise    Promise
	hasPromise bool
	log        []entry
	hasData    bool

	// The server and what the agent did with it.
	server    ServerState
	serverRun int
	upstream  string
	timeline  uint64
	readOnly  bool
	prepared  bool
	obeys     uint64
	decision  Decision
	discard   bool
	back      bool // a crashed server is back at once
	full      bool // a server that is down waits for room
	hung      bool // the disk takes nothing
	streaming bool
	sync      []string // in force in the server
	syncNeed  int
	fewer     bool
	pulled    map[string]time.Duration // when each replica last pulled
	flushed   map[string]int           // by which standby, while this server runs
	leaving   bool
	aimSeq    int
	lostDisk  bool          // and has not been a voter with data since
	began     time.Duration // its run
	saidAt    time.Duration // when it last said what it waits for
}

func (n *node) clock() Time {
	return n.offset + Time(float64(n.w.now)*n.rate)
}

// age of its run, or since it thawed.
func (n *node) age() time.Duration { return n.w.now - max(n.began, n.thawed) }

// arrive runs f as the agent, later if the agent is frozen, never if it is gone.
func (n *node) arrive(f func()) {
	if !n.up {
		return
	}
	if n.frozen {
		n.backlog = append(n.backlog, f)
		return
	}
	f()
}

func (n *node) later(d time.Duration, f func()) {
	run := n.run
	n.w.after(d, func() {
		n.arrive(func() {
			if n.run == run {
				f()
			}
		})
	})
}

func (n *node) config() Config {
	cfg := Default(n.name, "uid", uint64(n.run)<<32)
	cfg.Witness = n.witness
	return cfg
}

func (n *node) start() {
	n.run++
	n.began = n.w.now
	n.up, n.frozen, n.exchanging, n.backlog, n.leaving = true, false, false, nil, false
	n.server, n.upstream, n.readOnly, n.streaming, n.obeys = ServerStopped, "", false, false, 0
	n.serverRun++
	n.decision = Decision{}
	n.replies = map[uint64]func(Answer){}
	m, err := NewMachine(n.config(), n.clock(), n.promise, n.hasPromise)
	if err != nil {
		n.w.fail("start %s: %v", n.name, err)
		return
	}
	m.rules = n.w.rules
	n.m = m
	n.w.logf("%s starts, promise %+v, log %d", n.name, n.promise, len(n.log))
	n.aimSeq = n.w.aimSeq
	n.step(n.w.aim)
	n.step(n.facts())
	n.reportLoop()
}

func (n *node) crash() {
	n.w.logf("%s crashes", n.name)
	n.up = false
	n.run++
	n.serverRun++
	n.server, n.upstream = ServerStopped, ""
}

// exchange the agent's program: it stands still for a moment, answers under way are lost, and what it kept goes through JSON.
func (n *node) exchange() {
	w := n.w
	if !n.up || n.frozen {
		return
	}
	n.step(Tick{})
	if why := n.m.unquiet(); why != "" {
		w.counts["exchange refused"]++
		return
	}
	raw, err := json.Marshal(n.m.keep())
	if err != nil {
		w.fail("keep %s: %v", n.name, err)
		return
	}
	w.counts["exchanged"]++
	if n.m.stage == leading {
		w.counts["exchanged a leader"]++
	}
	w.logf("%s exchanges its program", n.name)
	n.run++ // whatever was under way finds another
	run := n.run
	n.replies, n.ticking = map[uint64]func(Answer){}, n.ticking+1
	n.frozen, n.exchanging = true, true // requests wait at its door
	w.after(w.between(5*time.Millisecond, 300*time.Millisecond), func() {
		if n.run != run {
			return
		}
		var k Kept
		if err := decodeStrict(raw, &k); err != nil {
			w.fail("read what %s kept: %v", n.name, err)
			return
		}
		m, err := RestoreMachine(n.config(), n.clock(), k)
		if err != nil {
			w.fail("restore %s: %v", n.name, err)
			return
		}
		m.rules = w.rules
		w.rules.exchanged(m)
		n.m, n.tickAt, n.exchanging = m, 0, false
		n.do(Decide{m.decided})
		n.thaw()
		n.step(Tick{})
		n.report()
		n.reportLoop()
		n.later(0, n.obey)
	})
}

func (n *node) thaw() {
	n.w.logf("%s thaws", n.name)
	n.frozen, n.thawed = false, n.w.now
	waiting := n.backlog
	n.backlog = nil
	for _, f := range waiting {
		f()
	}
}

// hang makes the disk take nothing for a while; the agent finds that out after a moment. The server may go on with what is in memory,
// which is worse for the protocol than one that waits.
func (n *node) hang(found, heal time.Duration) {
	n.w.logf("%s: disk hangs", n.name)
	n.diskFree = max(n.diskFree, n.w.now+heal)
	run := n.run
	n.later(found, func() { n.hung = true; n.report() })
	n.w.after(heal, func() {
		n.hung = false
		if n.up && n.run == run && !n.frozen {
			n.report()
		}
	})
}

// fill ends the server, which waits for room.
func (n *node) fill(heal time.Duration) {
	n.w.logf("%s: disk full", n.name)
	n.full, n.back = true, true
	n.kill()
	n.later(time.Millisecond, n.report)
	n.w.after(heal, func() {
		n.full = false
		if n.up {
			n.later(time.Millisecond, n.serverBack)
		}
	})
}

func (n *node) reportLoop() {
	n.later(400*time.Millisecond, func() {
		n.report()
		n.reportLoop()
	})
}

func (n *node) facts() Facts {
	f := Facts{
		Obeys: n.obeys, Server: n.server, Receiving: n.upstream != "", HasData: n.hasData,
		Prepared: n.prepared, Quiesced: n.readOnly, BackAtOnce: n.back, Discard: n.discard,
		StopBudget: 60 * time.Millisecond, Full: n.full && n.server == ServerStopped,
	}
	if n.hung {
		f.Ailing = "its volume takes no writes"
	}
	if n.hasData {
		f.Position = n.position()
	}
	if n.server == ServerPrimary {
		f.Counted = true
		for _, o := range n.w.nodes {
			if at, ok := n.pulled[o.name]; ok && n.w.now-at < 300*time.Millisecond {
				f.Following = append(f.Following, o.name)
			}
		}
	}
	return f
}

func (n *node) position() Position {
	p := Position{Known: true, At: uint64(len(n.log))}
	if len(n.log) > 0 {
		p.Rank = n.log[len(n.log)-1].rank
	}
	return p
}

func (n *node) report() { n.step(n.facts()) }

func (n *node) step(in Input) {
	for _, o := range n.m.Step(n.clock(), in) {
		n.do(o)
	}
	n.schedule()
	n.w.checkSaysWhy(n)
}

// schedule sees to it that the machine gets its tick.
func (n *node) schedule() {
	next := n.m.Next()
	if next == n.tickAt {
		return
	}
	n.tickAt = next
	n.ticking++
	mine := n.ticking
	wait := time.Duration(float64(next-n.clock())/n.rate) + time.Microsecond
	n.later(max(wait, time.Millisecond), func() {
		if mine == n.ticking {
			n.tickAt = 0
			n.step(Tick{})
		}
	})
}

func (n *node) do(o Output) {
	w := n.w
	switch o := o.(type) {
	case Send:
		w.request(n, o.To, o.Request)
	case Reply:
		if back := n.replies[o.Token]; back != nil {
			delete(n.replies, o.Token)
			back(o.Answer)
		}
	case ReadLease:
		w.counts["read"]++
		w.readAPI(n)
	case SwapLease:
		w.swapAPI(n, o)
		n.mishap()
	case Persist:
		n.mishap()
		run := n.run
		n.diskFree = max(n.diskFree, w.now) + w.between(time.Millisecond, 10*time.Millisecond)
		w.after(n.diskFree-w.now, func() {
			if !n.up || n.run != run {
				return
			}
			ok := w.rnd.Float64() >= w.loss/10
			if ok {
				n.promise, n.hasPromise = o.Promise, true
			}
			n.arrive(func() {
				if n.run == run {
					n.step(Persisted{o.ID, ok})
				}
			})
		})
	case Route:
		w.counts["routes"]++
		n.later(w.between(time.Millisecond, 20*time.Millisecond), func() { n.step(Routed{o.Epoch, Done}) })
	case Decide:
		old := n.decision
		n.decision = o.Decision
		if old.Serial != o.Decision.Serial {
			d := o.Decision
			w.logf("%s decides %d %s epoch %d upstream %q phase %q sync %v/%d fewer %v (%s)", n.name, d.Serial, d.Role, d.Epoch, d.Upstream, d.Phase, d.Sync, d.SyncNeed, d.Degraded, d.Reason)
			n.later(w.between(time.Millisecond, 10*time.Millisecond), n.obey)
		}
	case Note:
		w.counts[string(o.Event.Kind)]++
		w.counts[fmt.Sprintf("%s: %s", o.Event.Kind, o.Event.Cause)]++
		w.logf("%s NOTE %s %d %s", n.name, o.Event.Kind, o.Event.Epoch, o.Event.Cause)
	}
}

// mishap strikes where it hurts: while a swap or a promise is under way.
func (n *node) mishap() {
	w := n.w
	if !w.chaos {
		return
	}
	heal := w.between(time.Second, 12*time.Second)
	switch run := n.run; w.rnd.IntN(40) {
	case 0:
		w.after(w.between(0, 30*time.Millisecond), func() {
			if n.up && n.run == run {
				n.crash()
				w.after(heal, n.restart)
			}
		})
	case 1, 2:
		if !n.frozen {
			w.logf("%s freezes", n.name)
			n.frozen = true
			w.after(heal, func() {
				if n.up && n.run == run {
					n.thaw()
				}
			})
		}
	}
}

// obey carries the newest decision out, as the agent would.
func (n *node) obey() {
	d := n.decision
	if d.Serial == n.obeys {
		return
	}
	w := n.w
	switch d.Role {
	case RoleNone:
	case RoleStop:
		if n.server != ServerStopped {
			n.later(w.between(time.Millisecond, 40*time.Millisecond), func() {
				n.kill()
				n.obey()
			})
			return
		}
		n.upstream = ""
	case RoleReplica:
		if n.server == ServerPrimary {
			n.kill()
		}
		n.server = ServerReplica
		if n.upstream != d.Upstream {
			n.upstream = d.Upstream
			n.stream()
		}
		if d.MayWipe && n.discard {
			w.logf("%s wipes", n.name)
			w.counts["wiped"]++
			n.log, n.hasData, n.discard = nil, false, false
		}
	case RolePrimary:
		if n.server != ServerPrimary && n.clock() >= d.Deadline {
			n.later(50*time.Millisecond, n.obey) // it was frozen meanwhile; a later deadline comes, or another role
			return
		}
		n.upstream = ""
		n.sync, n.syncNeed, n.fewer = d.Sync, d.SyncNeed, d.Degraded
		if n.server != ServerPrimary {
			n.promote(d)
		}
		n.readOnly = d.Phase == PhaseQuiescing
		n.prepared = d.Phase == PhasePreparing || d.Phase == PhaseQuiescing
	}
	n.obeys = d.Serial
	n.report()
}
