package lease

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestDbg(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("S"), 10, 64)
	w := simulate(seed, safeRules(), true)
	for _, n := range w.nodes {
		m := n.m
		fmt.Printf("%s up=%v frozen=%v stage=%s now=%d mnow-clock=%v next=%v tickAt=%v busy=%v snext=%v known=%v cand{next=%v tries=%d} facts=%+v free=%q able=%v bound=%s until=%v hold=%v aside=%s %v hcap=%v promise=%+v disk=%+v mine=%v mayStand=%v restored=%v\n", n.name, n.up, n.frozen, m.stage, m.now, m.now.Sub(n.clock()), m.Next().Sub(n.clock()), n.tickAt.Sub(n.clock()), m.store.busy, m.store.next.Sub(n.clock()), m.store.known, m.cand.next.Sub(n.clock()), m.cand.tries, m.facts, m.freeFor(n.name), m.able(), m.voter.bound, m.voter.boundUntil.Sub(n.clock()), m.voter.holdUntil.Sub(n.clock()), m.voter.asideFor, m.voter.asideUntil.Sub(n.clock()), m.voter.handicapUntil.Sub(n.clock()), m.voter.promise, m.voter.disk, m.mine(), m.mayStand(), m.restored())
		fmt.Printf("   answers=%+v\n", m.cand.answers)
	}
}
