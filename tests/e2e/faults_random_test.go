package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/faults"
)

// TestRandomFaults hurts one Database in random ways for PLIMSOLL_FAULT_MINUTES, one fault after the other and sometimes the next before
// the last is over. In the end every acknowledged write is there, nobody ever wrote beside another, and no process that lived for a while
// has grown. PLIMSOLL_FAULT_SEED replays a choice of faults.
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
	s := event{}.begin(ctx, t, d)
	grown := growth{}
	grown.note(d.sizes(ctx, t))
	chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // chance that can be replayed, not a secret
	choice := randomly()
	until := time.Now().Add(time.Duration(minutes) * time.Minute)
	for n := 1; time.Now().Before(until); n++ {
		e := choice[chance.IntN(len(choice))]
		held := time.Duration(chance.Int64N(int64(15 * time.Second)))
		settles := chance.IntN(4) > 0
		t.Logf("%d: %s for %s on %s, then settle: %v", n, e.Name, held.Round(100*time.Millisecond), s.leader.Name, settles)
		if err := e.hurt(ctx, s); err != nil {
			t.Logf("%d: %v", n, err) // what an earlier fault left may be in its way
		}
		time.Sleep(held)
		if e.mend != nil {
			if err := e.mend(ctx, s); err != nil {
				t.Logf("%d: mend: %v", n, err)
			}
		}
		if settles {
			d.awaitReady(usualRecovery)
			s.w.flows(ctx, t, usualPatience, time.Now(), 0, false)
			grown.note(d.sizes(ctx, t))
		}
		if err := s.look(ctx); err != nil {
			t.Logf("%d: %v", n, err)
		}
	}
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
	grown.note(d.sizes(ctx, t))
	leaks, compared := grown.leaks()
	for _, p := range leaks {
		t.Error(p)
	}
	if t.Logf("%d processes were compared with what they were %s or more before", compared, growthTime); compared == 0 {
		t.Error("no process lived for long enough to see whether it grows")
	}
}

// randomly are the faults to choose from: those that need neither preparation nor a Database of their own, and take no minute.
func randomly() []event {
	all := append(mainEvents(), networkEvents()...)
	return slices.DeleteFunc(all, func(e event) bool { return e.Name == "process-kill-all" })
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

// size of a process that must not grow for ever.
type size struct {
	what                   string
	memory, files, threads int
}

// sizes of the agents and managers, by their numbers on the machine.
func (d *database) sizes(ctx context.Context, t *testing.T) map[int]size {
	t.Helper()
	found := map[int]size{}
	for namespace, program := range map[string]string{d.key.Namespace: "plimsoll-agent", managerNamespace: "manager"} {
		out, err := d.cluster.Kubectl(ctx, "", "-n", namespace, "get", "pods", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		for pod := range strings.FieldsSeq(out) {
			processes, err := d.cluster.Processes(ctx, namespace, strings.TrimPrefix(pod, "pod/"))
			if err != nil {
				t.Logf("%s: %v", pod, err)
				continue
			}
			for _, p := range processes {
				if strings.Contains(p.Command, program) {
					found[p.PID] = sizeOf(p.PID, pod)
				}
			}
		}
	}
	return found
}

func sizeOf(pid int, what string) size {
	s := size{what: what}
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(raw)) {
			name, value, _ := strings.Cut(line, ":")
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB")) // zero where it is no number
			switch name {
			case "RssAnon":
				s.memory = n
			case "Threads":
				s.threads = n
			}
		}
	}
	if entries, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)); err == nil {
		s.files = len(entries)
	}
	return s
}

// growth is what processes were when they were first seen, and last, by their numbers: few live through all faults.
type growth map[int]lifetime

type lifetime struct {
	first, last size
	began, seen time.Time
}

// growthTime is for how long a process must have been seen for its growth to say something.
const growthTime = 2 * time.Minute

func (g growth) note(now map[int]size) {
	for pid, is := range now {
		was, known := g[pid]
		if !known || was.first.what != is.what {
			was = lifetime{first: is, began: time.Now()}
		}
		was.last, was.seen = is, time.Now()
		g[pid] = was
	}
}

// leaks are processes that have grown more than a busy moment explains, and how many were compared.
func (g growth) leaks() (found []string, compared int) {
	for _, p := range g {
		if p.seen.Sub(p.began) < growthTime {
			continue
		}
		compared++
		if p.last.memory > p.first.memory+16<<10 || p.last.files > p.first.files+20 || p.last.threads > p.first.threads+12 {
			found = append(found, fmt.Sprintf("%s has grown from %+v to %+v in %s", p.last.what, p.first, p.last, p.seen.Sub(p.began).Round(time.Second)))
		}
	}
	return found, compared
}
