package redis

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Figures, and nothing that depends on the machine: the kernel's own clock around each run of a program. What a trap of a uprobe and the
// dispatch of a tracepoint cost comes on top of it. The runs of clients and of whatever else this machine does are among those of tracepoints.
func TestCostOfACommandInTheKernel(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	l := newLedger(f)
	control := s.connect(t, "disable")
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stats.Close() })
	const commands = 16000
	for _, sslmode := range []string{"disable", "require"} {
		for _, pipeline := range []int{1, 16} {
			t.Run("sslmode "+sslmode+", pipeline "+strconv.Itoa(pipeline), func(t *testing.T) {
				before := f.spent(t)
				s.Benchmark(t, sslmode, "-t", "set", "-n", strconv.Itoa(commands), "-c", "1", "-r", "1000", "-P", strconv.Itoa(pipeline))
				l.agree(t, control, nil)
				var ns, runs uint64
				for name, now := range f.spent(t) {
					one := spent{now.ns - before[name].ns, now.runs - before[name].runs}
					if one.runs > 0 {
						t.Logf("%-20s %6.2f runs a command, %6.1f ns each", name, float64(one.runs)/commands, float64(one.ns)/float64(one.runs))
					}
					ns, runs = ns+one.ns, runs+one.runs
				}
				t.Logf("all: %.0f ns a command", float64(ns)/commands)
				if runs == 0 {
					t.Error("the kernel did not take the time")
				}
			})
		}
	}
}

// spent is what the runs of a program took.
type spent struct{ ns, runs uint64 }

func (f *Family) spent(t *testing.T) map[string]spent {
	t.Helper()
	all := map[string]spent{}
	for name, p := range f.programs() {
		stats, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = spent{uint64(stats.Runtime), stats.RunCount}
	}
	return all
}

// The walk alone, over the same bytes again and again: what a change of the programs changes, with as little of the machine in it as can be.
func TestCostOfTheWalkAlone(t *testing.T) {
	d := newDriven(t)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stats.Close() })
	runtime := func() time.Duration {
		s, err := d.family.kernel.Drive.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.Runtime
	}
	for _, n := range []int{1, 16} {
		for name, one := range map[string]struct{ ask, say string }{"SET": {"SET key:000000000042 xxx", "+OK"}, "GET": {"GET key:000000000042", "$3\r\nxxx"}} {
			d.next(t)
			pieces := []piece{asks(repeat(n, one.ask)...), says(repeat(n, one.say)...)}
			d.say(t, pieces...)
			least := [2]float64{math.MaxFloat64, math.MaxFloat64}
			for range 20 { // the least of some means: the others are of who else was at work
				const rounds = 200
				var sum [2]time.Duration
				for range rounds {
					for _, p := range pieces {
						before := runtime()
						d.drive(t, p.what, p.bytes)
						sum[p.what] += runtime() - before
					}
				}
				for what, all := range sum {
					least[what] = min(least[what], float64(all.Nanoseconds())/rounds/float64(n))
				}
			}
			t.Logf("%s, pipeline %d: read %.0f ns, answer %.0f ns a command", name, n, least[read], least[sent])
			if least[read] == 0 || least[sent] == 0 {
				t.Error("the kernel did not take the time")
			}
		}
	}
}
