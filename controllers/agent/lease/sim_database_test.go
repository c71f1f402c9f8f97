package lease

import (
	"slices"
	"time"
)

// The model database: a primary that acknowledges what its synchronous list has
// flushed, and replicas that pull, rewind and clone.

func (n *node) promote(d Decision) {
	w := n.w
	n.serverRun++
	n.server, n.timeline = ServerPrimary, d.Timeline
	n.hasData, n.discard = true, false // the wish was about following another; a server that was started for it forgets it
	n.flushed, n.pulled = map[string]int{}, map[string]time.Duration{}
	n.log = append(slices.Clone(n.log), entry{d.Timeline, 0})
	w.logf("%s promoted at epoch %d timeline %d with %d entries", n.name, d.Epoch, d.Timeline, len(n.log))
	w.counts["promoted"]++
	w.checkHasAll(n)
	w.checkOneLeader()
	n.write(n.serverRun)
}

func (n *node) kill() {
	n.serverRun++
	n.server, n.readOnly, n.upstream = ServerStopped, false, ""
}

// mayServe says whether a client could get an answer from this server as a primary.
func (n *node) mayServe() bool {
	if !n.up || n.server != ServerPrimary {
		return false
	}
	// Without the kernel's fence the agent alone must have stopped the server,
	// which only an agent that gets CPU can.
	awake := !n.w.fenced && !n.frozen && n.w.now > n.thawed+200*time.Millisecond
	return awake || n.clock() < n.decision.Deadline
}

// write is a client that writes all the time, into a server that runs whether
// or not its agent does.
func (n *node) write(run int) {
	w := n.w
	w.after(w.between(30*time.Millisecond, 150*time.Millisecond), func() {
		if !n.up || n.serverRun != run {
			return
		}
		w.checkOneLeader()
		if !n.readOnly {
			w.nextWrite++
			n.log = append(n.log, entry{n.timeline, w.nextWrite})
			n.settle()
		}
		n.write(run)
	})
}

// settle acknowledges what the synchronous standbys have flushed.
func (n *node) settle() {
	if n.server != ServerPrimary || n.w.fenced && n.clock() >= n.decision.Deadline {
		return
	}
	upTo := len(n.log)
	if n.syncNeed > 0 && !n.fewer {
		var at []int
		for _, s := range n.sync {
			at = append(at, n.flushed[s])
		}
		slices.Sort(at)
		upTo = min(upTo, at[len(at)-n.syncNeed])
	}
	for i := upTo - 1; i >= 0 && n.log[i].rank == n.timeline; i-- {
		if e := n.log[i]; e.id != 0 {
			if n.w.ackedAt[e.id] {
				break
			}
			if n.fewer {
				n.w.counts["acked by fewer"]++
			}
			n.w.ack(n, e)
		}
	}
}

// stream pulls from the upstream as long as this run of the replica follows it.
func (n *node) stream() {
	w := n.w
	n.serverRun++
	run, from := n.serverRun, n.upstream
	if from == "" {
		return
	}
	up := w.byName[from]
	var pull func()
	pull = func() {
		w.after(w.between(20*time.Millisecond, 90*time.Millisecond), func() {
			if !n.up || n.serverRun != run {
				return
			}
			linked := !w.cut[[2]string{from, n.name}] && !w.cut[[2]string{n.name, from}]
			if linked && up.up && w.rnd.Float64() >= w.loss {
				switch {
				case up.server == ServerPrimary:
					up.pulled[n.name] = w.now
					n.receive(up)
				case up.server == ServerReplica && n.precedes(up):
					w.counts["attached before the promotion"]++
					n.receive(up) // of a standby, as far as it has got; what forked waits for the promotion
				}
			}
			pull()
		})
	}
	pull()
}

// precedes says that this member's log is a part of the other's, which is what a replica makes sure of before it attaches to a
// standby that is being promoted.
func (n *node) precedes(up *node) bool {
	if !n.hasData || len(n.log) > len(up.log) {
		return false
	}
	return slices.Equal(n.log, up.log[:len(n.log)])
}

func (n *node) receive(up *node) {
	w := n.w
	if !n.hasData {
		n.log, n.hasData = slices.Clone(up.log), true // the clone
		n.later(0, n.report)
		return
	}
	same := len(n.log)
	if same > len(up.log) || same > 0 && n.log[same-1] != up.log[same-1] {
		same = 0
		for same < min(len(n.log), len(up.log)) && n.log[same] == up.log[same] {
			same++
		}
		w.counts["rewound"]++
		n.log = slices.Clone(n.log[:same])
	}
	more := min(len(up.log)-same, 1+w.rnd.IntN(20))
	n.log = append(n.log, up.log[same:same+more]...)
	if more == 0 && same == 0 {
		return
	}
	at, session := len(n.log), up.serverRun
	me := n.name
	w.carry(me, up.name, func() {
		if up.up && up.serverRun == session && up.server == ServerPrimary {
			up.flushed[me] = max(up.flushed[me], at)
			up.settle()
		}
	})
}
