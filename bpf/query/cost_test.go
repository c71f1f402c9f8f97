package query

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sys/unix"
)

// Figures, and nothing that depends on the machine: the kernel's own clock around each run of a program. What a trap of a uprobe and the
// dispatch of a tracepoint cost comes on top of it. The runs of clients and of whatever else this machine does are among those of tracepoints.
func TestCostOfAStatementInTheKernel(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	l := newLedger(f)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stats.Close() })
	const statements = 5000
	var plain float64
	for _, sslmode := range []string{"disable", "require"} {
		for _, mode := range []string{"prepared", "simple"} {
			t.Run("sslmode "+sslmode+", "+mode, func(t *testing.T) {
				database := "cost_" + sslmode + "_" + mode
				control := s.workplace(t, database)
				s.Pgbench(t, sslmode, database, "-i", "-q")
				before := f.spent(t)
				s.Pgbench(t, sslmode, database, "-n", "-S", "-M", mode, "-c", "1", "-t", strconv.Itoa(statements))
				l.agree(t, control, database, nil)
				var ns, runs uint64
				for name, now := range f.spent(t) {
					one := spent{now.ns - before[name].ns, now.runs - before[name].runs}
					if one.runs > 0 {
						t.Logf("%-20s %6.2f runs a statement, %6.1f ns each", name, float64(one.runs)/statements, float64(one.ns)/float64(one.runs))
					}
					ns, runs = ns+one.ns, runs+one.runs
				}
				each := float64(ns) / statements
				if plain == 0 {
					plain = each
				}
				t.Logf("all %d ns in %d runs: %.0f ns a statement, %.2f times a plain prepared one", ns, runs, each, each/plain)
				if runs < statements {
					t.Errorf("%d runs for %d statements: the kernel did not take the time", runs, statements)
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
	const text = "SELECT abalance FROM pgbench_accounts WHERE aid = $1;"
	answer := []pgproto3.BackendMessage{bound(), &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("abalance")}}}, row("0"), done("SELECT 1"), ready()}
	for name, run := range map[string]struct {
		first   []piece
		ask     []pgproto3.FrontendMessage
		answers []pgproto3.BackendMessage
	}{
		"prepared": {
			[]piece{asks(parse("P0_1", text), syncs()), says(parsed(), ready())},
			[]pgproto3.FrontendMessage{bind("", "P0_1"), describe(""), execute(""), syncs()},
			answer,
		},
		"extended": {
			nil,
			[]pgproto3.FrontendMessage{parse("", text), bind("", ""), describe(""), execute(""), syncs()},
			append([]pgproto3.BackendMessage{parsed()}, answer...),
		},
		"simple": {nil, []pgproto3.FrontendMessage{query(text)}, answer[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			d.pid++
			d.say(t, startup()...)
			d.say(t, run.first...)
			const rounds = 20000
			for _, p := range []piece{asks(run.ask...), says(run.answers...)} {
				d.drive(t, p.what, p.bytes)
			}
			least := map[uint64]float64{read: math.MaxFloat64, sent: math.MaxFloat64}
			for range 20 { // the least of some means: the others are of who else was at work
				sum := map[uint64]time.Duration{}
				for range rounds / 20 {
					for _, p := range []piece{asks(run.ask...), says(run.answers...)} {
						before := d.spent(t)
						d.drive(t, p.what, p.bytes)
						sum[p.what] += d.spent(t) - before
					}
				}
				for what, all := range sum {
					least[what] = min(least[what], float64(all.Nanoseconds())/(rounds/20))
				}
			}
			t.Logf("%s: read %.0f ns, answer %.0f ns", name, least[read], least[sent])
			if least[read] == 0 || least[sent] == 0 {
				t.Error("the kernel did not take the time")
			}
		})
	}
}

func (d *driven) spent(t *testing.T) time.Duration {
	t.Helper()
	stats, err := d.family.kernel.Drive.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats.Runtime
}
