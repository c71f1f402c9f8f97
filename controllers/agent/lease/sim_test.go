package lease

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fault is something that goes wrong, and is put right again after a while.
func (w *world) fault() {
	n := w.nodes[w.rnd.IntN(len(w.nodes))]
	heal := w.between(200*time.Millisecond, 12*time.Second)
	switch w.rnd.IntN(20) {
	case 0, 1: // crash of the whole pod
		if n.up {
			n.crash()
			w.after(heal, func() { n.restart() })
		}
	case 2: // the server alone dies, mostly the primary's
		n = w.leader(n)
		if n.up && n.server != ServerStopped {
			w.logf("%s: server dies", n.name)
			n.back = w.rnd.IntN(4) == 0
			n.kill()
			n.later(time.Millisecond, n.report)
			n.later(200*time.Millisecond, n.serverBack)
		}
	case 3: // cut off from some, in one direction or both
		n.cutOff(w.rnd.IntN(3), heal)
	case 4:
		n = w.leader(n)
		n.cutOff(0, heal)
	case 5, 6: // frozen agent; its server goes on
		n = w.leader(n)
		if n.up && !n.frozen {
			w.logf("%s freezes", n.name)
			n.frozen = true
			run := n.run
			w.after(heal, func() {
				if n.up && n.run == run {
					n.thaw()
				}
			})
		}
	case 7:
		w.logf("API down")
		w.apiDown = true
		w.after(heal, func() { w.apiDown = false })
	case 8:
		n.noAPI = true
		w.after(heal, func() { n.noAPI = false })
	case 9:
		w.loss, w.slow = w.rnd.Float64()*0.4, w.between(time.Millisecond, 400*time.Millisecond)
		w.after(heal, func() { w.loss, w.slow = 0, 5*time.Millisecond })
	case 10: // the manager wants other members
		w.wantOthers()
	case 11: // switchover
		target := n.name
		w.want(func(a *Aim) { a.Switchover = Switchover{ID: fmt.Sprint(w.now), Target: target} })
	case 12: // orderly termination
		n = w.leader(n)
		if n.up && !n.frozen {
			w.logf("%s leaves", n.name)
			n.leaving = true
			n.step(Leaving{})
			run := n.run
			w.after(w.between(time.Second, 12*time.Second), func() {
				if n.up && n.run == run {
					n.crash()
					n.restart()
				}
			})
		}
	case 13: // asks to be cloned again
		if n.hasData && n.server == ServerReplica && w.othersIntact(n) && !n.frozen {
			n.discard = true
			n.later(0, n.report)
		}
	case 14: // loses the promise, or the volume; one fault of that kind at a time
		if w.othersIntact(n) {
			n.loseDisk(w.rnd.IntN(2) == 0)
			w.after(heal, func() { n.restart() })
		}
	case 15: // the disk hangs
		n = w.leader(n)
		if n.up && !n.frozen {
			n.hang(w.between(time.Millisecond, heal), heal)
		}
	case 16: // the disk is full
		n = w.leader(n)
		if n.up && !n.frozen && n.server != ServerStopped {
			n.fill(heal)
		}
	case 17, 18: // the program is exchanged, and at times crashes at once
		n = w.leader(n)
		n.exchange()
		if w.rnd.IntN(4) == 0 {
			w.after(w.between(0, 500*time.Millisecond), func() {
				if n.up {
					n.crash()
					w.after(heal, n.restart)
				}
			})
		}
	case 19: // and another soon after
		n.exchange()
		w.after(w.between(0, time.Second), func() { w.nodes[w.rnd.IntN(len(w.nodes))].exchange() })
	}
}

// leader prefers the member that leads, because that is where it hurts.
func (w *world) leader(or *node) *node {
	for _, n := range w.nodes {
		if n.up && n.server == ServerPrimary && w.rnd.IntN(4) > 0 {
			return n
		}
	}
	return or
}

func (w *world) want(change func(*Aim)) {
	change(&w.aim)
	w.logf("AIM members %v switchover %s", w.aim.Members, w.aim.Switchover.Target)
	w.aimSeq++
	at := w.aimSeq
	for _, n := range w.nodes {
		a := w.aim
		w.after(w.between(0, time.Second), func() {
			n.arrive(func() { // whichever program runs by then
				if at < n.aimSeq {
					return // a stale aim is ignored
				}
				n.aimSeq = at
				a.Switchover.Expires = n.clock().Add(10 * time.Second)
				n.step(a)
			})
		})
	}
}

func (n *node) restart() {
	if !n.up {
		n.start()
	}
}

func (n *node) serverBack() {
	if n.server == ServerStopped && n.decision.Role == RolePrimary && n.clock() < n.decision.Deadline {
		n.server, n.timeline = ServerPrimary, n.decision.Timeline
		n.readOnly = n.decision.Phase == PhaseQuiescing
		n.serverRun++
		n.flushed = map[string]int{}
		n.write(n.serverRun)
	}
	if n.server == ServerStopped && n.decision.Role == RoleReplica {
		n.server = ServerReplica
		n.upstream = n.decision.Upstream
		n.stream()
	}
	if n.server == ServerStopped && n.decision.Role == RolePrimary {
		n.later(50*time.Millisecond, n.serverBack) // it was frozen meanwhile
	}
	n.report()
}

func (n *node) cutOff(how int, heal time.Duration) {
	w := n.w
	for _, o := range w.nodes {
		if o == n || w.rnd.IntN(4) == 0 {
			continue
		}
		in, out := [2]string{o.name, n.name}, [2]string{n.name, o.name}
		if how != 1 {
			w.cut[in] = true
		}
		if how != 2 {
			w.cut[out] = true
		}
		w.after(heal, func() { delete(w.cut, in); delete(w.cut, out) })
	}
	noAPI := w.rnd.IntN(2) == 0
	n.noAPI = n.noAPI || noAPI
	w.after(heal, func() { n.noAPI = false })
	w.logf("%s cut off, way %d, api cut %v", n.name, how, noAPI)
}

// othersIntact allows a lost disk only where what was acknowledged survives it:
// the promise of synchronous replication is one failure.
func (w *world) othersIntact(n *node) bool {
	v := w.lease.Record.Voters
	if !n.up || w.lease.HasRecord && len(v) < 2 {
		return false
	}
	if (len(v) == 2 || w.lease.Record.Degraded) && n.name == w.lease.Record.Leader {
		return false // the other one could not be elected without it: a person is needed, and ha.md says so
	}
	if c := n.m.lead.change; c.kind == EventDegraded || c.active && len(c.record.Data()) < 2 {
		return false // the word that only this member holds all may land yet
	}
	for _, o := range w.nodes {
		if o != n && (slices.Contains(v, o.name) && (!o.hasData && !o.witness || !o.hasPromise || !o.up) || o.discard) {
			return false
		}
		if o.lostDisk && slices.Contains(v, o.name) {
			return false // its copy is not proven back yet
		}
	}
	return true
}

func (n *node) loseDisk(dataToo bool) {
	n.w.logf("%s loses its disk, data too: %v", n.name, dataToo)
	n.w.counts["lost disk"]++
	n.crash()
	n.promise, n.hasPromise = Promise{}, false
	if dataToo {
		n.log, n.hasData, n.discard = nil, false, false
	}
	n.lostDisk = true
}

// wantOthers changes who should be a member, and beside two who should be the witness.
func (w *world) wantOthers() {
	var want []string
	for _, o := range w.nodes {
		if !o.witness && w.rnd.IntN(5) < 4 {
			want = append(want, o.name)
		}
	}
	if len(want) == 0 {
		return
	}
	w.want(func(a *Aim) {
		a.Members = want
		if w.peace.Witness == "" {
			return
		}
		a.Preferred = w.rnd.IntN(4) > 0
		a.Witness = ""
		if len(want) == 2 || w.rnd.IntN(8) == 0 {
			a.Witness = []string{"w0", "w1", ""}[w.rnd.IntN(3)]
		}
	})
}

// simulate runs one schedule: settle, chaos, heal, and then progress is due.
func simulate(seed uint64, ru rules, verbose bool) *world {
	return newWorld(seed, 3+int(seed%3), ru).suffer(verbose)
}

// simulatePair runs one of two members and a witness.
func simulatePair(seed uint64, ru rules, verbose bool) *world {
	return newPair(seed, ru, seed%4 > 0).suffer(verbose)
}

func (w *world) suffer(verbose bool) *world {
	w.verbose = verbose
	w.runUntil(8*time.Second, w.whole)
	w.chaos = true
	for range 5 + w.rnd.IntN(12) {
		w.fault()
		w.run(w.between(0, 4*time.Second))
		if w.violation != "" {
			return w
		}
	}
	w.heal()
	before := w.counts["acked"]
	good := w.runUntil(25*time.Second, func() bool {
		return w.counts["acked"] >= before+20 && w.whole()
	})
	w.run(time.Second) // what was late may still do harm
	switch {
	case w.violation != "" || good:
	case w.counts["acked"] < before+20:
		w.stuck = fmt.Sprintf("no progress: %d writes acknowledged in 25 s of peace", w.counts["acked"]-before)
	default:
		w.stuck = fmt.Sprintf("voters are %v, degraded %v, after 25 s of peace, want %v %s", w.lease.Record.Voters, w.lease.Record.Degraded, w.aim.Members, w.aim.Witness)
	}
	w.logf("STUCK? %q", w.stuck)
	return w
}

func (w *world) heal() {
	w.logf("HEAL")
	w.chaos = false
	clear(w.cut)
	w.apiDown, w.loss, w.slow = false, 0, 5*time.Millisecond
	for _, n := range w.nodes {
		n.noAPI = false
		if n.up && n.leaving {
			n.crash()
		}
		n.restart()
		if n.frozen && !n.exchanging {
			n.thaw()
		}
		n.back, n.hung, n.full = false, false, false
		if n.up && n.server == ServerStopped {
			n.serverBack()
		}
	}
	w.want(func(a *Aim) { *a = w.peace })
}

// TestSimulation runs as many random schedules as fit, each from its own seed.
// LEASE_SIM_SEED replays one with its trace; LEASE_SIM_SECONDS, _SCHEDULES and
// _FROM set how long, how many at most and from which seed on.
func TestSimulation(t *testing.T) {
	sweep(t, simulate,
		"acked", "late swap", "Elected: switchover", "Elected: failover", "Raised", "Aborted", "Expired", "GaveUp", "rewound", "wiped", "lost disk",
		"attached before the promotion", "supported without data", "exchanged", "exchanged a leader",
		"waits APIServerAway", "waits GrantRuns", "waits VotersSilent", "waits VotersRefuse", "waits StandsAside", "waits GrantsMissing", "waits JustRestarted")
}

// TestSimulationOfTwoAndAWitness is the same for two members and a witness, who may become three, or one, or get another witness.
func TestSimulationOfTwoAndAWitness(t *testing.T) {
	sweep(t, simulatePair,
		"acked", "acked by fewer", "Degraded", "Restored", "Elected: switchover", "Elected: failover", "Expired", "lost disk", "wiped",
		"Members: added w1", "Members: removed w0", "Members: added m2", "Members: removed m2",
		"waits OnlyLastLeader")
}

func sweep(t *testing.T, run schedule, musts ...string) {
	t.Helper()
	if s := os.Getenv("LEASE_SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		w := run(seed, safeRules(), true)
		t.Logf("seed %d: %s%s\n%s", seed, w.violation, w.stuck, w.tail(400))
		if w.violation+w.stuck != "" {
			t.Fail()
		}
		return
	}
	budget := time.Duration(number("LEASE_SIM_SECONDS", 60)) * time.Second
	bad, ran, counts := search(run, safeRules(), number("LEASE_SIM_FROM", 1), int(number("LEASE_SIM_SCHEDULES", 2000)), budget, func(w *world) string { return w.violation + w.stuck })
	if bad != nil {
		t.Fatalf("seed %d: %s\n%s", bad.seed, bad.violation, run(bad.seed, safeRules(), true).tail(150))
	}
	t.Logf("%d schedules: %v", ran, counts)
	if ran < 1000 {
		return // a busy machine: too few to judge what they reach
	}
	for _, must := range musts {
		if counts[must] == 0 {
			t.Errorf("%d schedules and never %q: the simulation does not reach it", ran, must)
		}
	}
}

// schedule is one run of the world from a seed.
type schedule func(seed uint64, ru rules, verbose bool) *world

type badSeed struct {
	seed      uint64
	violation string
}

// search runs schedules until one fails, the count is reached, or time is up.
func search(run schedule, ru rules, from uint64, most int, budget time.Duration, wrong func(*world) string) (*badSeed, int, map[string]int) {
	var (
		next   atomic.Uint64
		ran    atomic.Int64
		mu     sync.Mutex
		bad    *badSeed
		counts = map[string]int{}
		wg     sync.WaitGroup
	)
	end := time.Now().Add(budget)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for time.Now().Before(end) {
				seed := from + next.Add(1) - 1
				mu.Lock()
				found := bad != nil
				mu.Unlock()
				if found || seed >= from+uint64(most) {
					return
				}
				w := run(seed, ru, false)
				ran.Add(1)
				mu.Lock()
				for k, v := range w.counts {
					counts[k] += v
				}
				if v := wrong(w); v != "" && bad == nil {
					bad = &badSeed{seed, v}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return bad, int(ran.Load()), counts
}

// number reads a setting of the simulation from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}
