package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

// TestRandomFaults hurts one Database in random ways for PLIMSOLL_FAULT_MINUTES, one fault after the other and sometimes the next before
// the last is over. In the end every acknowledged write is there, nobody ever wrote beside another, and no agent or manager that lived
// through the faults of the second half, which end none of them, has grown. PLIMSOLL_FAULT_SEED replays a choice of faults.
func TestRandomFaults(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("PLIMSOLL_FAULT_MINUTES"))
	if err != nil {
		t.Skip("half an hour of random faults: make bench-random runs it")
	}
	seed, err := strconv.ParseUint(os.Getenv("PLIMSOLL_FAULT_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := whole(ctx); err != nil {
		t.Fatal(err)
	}
	d := (&arena{t: t}).database(t, event{})
	sizes := d.scales(t)
	s := event{}.begin(ctx, t, d)
	began, half := time.Now(), time.Duration(minutes)*time.Minute/2
	c := &chaos{scene: s, chance: seeded(seed), drawn: map[string]int{}}
	c.goOn(ctx, t, randomly(), 15*time.Second, began.Add(half), func() {})
	s.settle(ctx, t)
	grown := faults.Growth{}
	look := func() { grown.Note(sizes(ctx, t), time.Now()) }
	look()
	c.goOn(ctx, t, slices.DeleteFunc(randomly(), endsProcesses), gentleHold, began.Add(2*half), look)
	if err := whole(ctx); err != nil {
		t.Fatal(err)
	}
	d.awaitReady(usualRecovery)
	run := faults.Run{Event: "random"}
	event{}.account(ctx, t, s, &run)
	for _, p := range run.Problems {
		t.Error(p)
	}
	time.Sleep(10 * time.Second) // what ended lately is collected
	look()
	leaks, compared := grown.Leaks(half / 2)
	for _, p := range leaks {
		t.Error(p)
	}
	t.Logf("seed %d; faults %v; what was compared with what it had been: %v", seed, c.drawn, compared)
	if len(compared) < leastCompared {
		t.Errorf("%d processes lived for %s, want %d: whether the others grow is not known", len(compared), half/2, leastCompared)
	}
}

const (
	// leastCompared are the agents of three instances and a manager.
	leastCompared = 4
	// gentleHold of a fault is too short for a manager that is cut off to give up its lead, and so to end.
	gentleHold = 8 * time.Second
)

// chaos is one fault after the other.
type chaos struct {
	*scene
	chance *rand.Rand
	drawn  map[string]int
	n      int
}

// goOn until a time; settled is called whenever the Database was left to recover.
func (c *chaos) goOn(ctx context.Context, t *testing.T, among []event, longest time.Duration, end time.Time, settled func()) {
	t.Helper()
	d := &deck{all: among, chance: c.chance}
	for time.Now().Before(end) {
		c.n++
		e := d.draw()
		c.drawn[e.Name]++
		held := time.Duration(c.chance.Int64N(int64(longest)))
		settles := c.chance.IntN(4) > 0
		t.Logf("%d: %s for %s on %s, then settle: %v", c.n, e.Name, held.Round(100*time.Millisecond), c.leader.Name, settles)
		hurting, over := context.WithCancel(ctx)
		if err := e.hurt(hurting, c.scene); err != nil {
			t.Logf("%d: %v", c.n, err) // what an earlier fault left may be in its way
		}
		time.Sleep(held)
		over()
		if e.mend != nil {
			if err := e.mend(ctx, c.scene); err != nil {
				t.Logf("%d: mend: %v", c.n, err)
			}
		}
		if settles {
			c.settle(ctx, t)
			settled()
		}
		if err := c.look(ctx); err != nil {
			t.Logf("%d: %v", c.n, err)
		}
	}
}

// settle waits until the Database is whole and takes writes.
func (s *scene) settle(ctx context.Context, t *testing.T) {
	t.Helper()
	s.awaitReady(usualRecovery)
	s.w.flows(ctx, t, usualPatience, time.Now(), 0, false)
}

func seeded(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // chance that can be replayed, not a secret
}

// deck deals every fault once before it deals one twice.
type deck struct {
	all    []event
	left   []event
	chance *rand.Rand
}

func (d *deck) draw() event {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.all)
		d.chance.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	e := d.left[0]
	d.left = d.left[1:]
	return e
}

// randomly are the faults to choose from: those of the matrix that need neither preparation nor a Database of their own. What a fault
// does before or while it is measured is left out, and so are twins that differ in that alone.
func randomly() []event {
	all := slices.Concat(mainEvents(), networkEvents(), controlEvents(), slowEvents(), changeEvents())
	return slices.DeleteFunc(all, func(e event) bool { return e.spec != nil || e.amid != nil })
}

// endsProcesses says that a fault ends an agent or a manager. The acting manager ends by itself when the API server is away for long.
func endsProcesses(e event) bool {
	return slices.Contains([]string{"pod-delete", "node-loss", "power-cycle", "drain", "winner-dies", "leader-manager-killed", "api-server-stopped", "api-server-stopped-failover"}, e.Name)
}

// look who leads now; while nobody says so the last word holds.
func (s *scene) look(ctx context.Context) error {
	now, err := s.get(ctx)
	if err != nil {
		return err
	}
	var leader v1.InstanceStatus
	var replicas []v1.InstanceStatus
	for _, i := range now.Status.Instances {
		switch {
		case i.Node == "":
			return fmt.Errorf("%s has no node yet", i.Name)
		case i.Name == now.Status.Leader:
			leader = i
		default:
			replicas = append(replicas, i)
		}
	}
	if leader.Name == "" || len(replicas) < 2 {
		return fmt.Errorf("the leader is %q", now.Status.Leader)
	}
	s.leader, s.replicas = leader, replicas
	return nil
}

// TestTheDeckDealsEveryFault before it deals one twice, and in the same order for the same seed.
func TestTheDeckDealsEveryFault(t *testing.T) {
	deals := func(seed uint64) string {
		d := &deck{all: randomly(), chance: seeded(seed)}
		var names []string
		for range d.all {
			names = append(names, d.draw().Name)
		}
		if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(d.all) {
			t.Errorf("%d of %d faults are dealt", len(unique), len(d.all))
		}
		return strings.Join(names, ",")
	}
	if one, again, other := deals(1), deals(1), deals(2); one != again || one == other {
		t.Error("the seed does not decide the order")
	}
	for _, name := range []string{"process-kill", "partition", "lease-deleted", "api-server-stopped", "leader-manager-killed", "slow-disk", "winner-dies", "one-way-in", "backend-kill"} {
		if !strings.Contains(deals(3), name) {
			t.Errorf("%s is no random fault", name)
		}
	}
}
