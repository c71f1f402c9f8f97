package query

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// The client's own log tells the time from before it sends a statement until it has the answer; what is counted begins when the server has
// read it and ends when it writes. So what is counted lies below by the way there and back, which a statement of 20 ms and more makes small,
// and each quantile lies in the right slot, which is 9 % wide.
func TestLatencyIsThatOfTheClientsOwnLog(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	l := newLedger(f)
	script := filepath.Join(t.TempDir(), "sleep.sql")
	if err := os.WriteFile(script, []byte("\\set ms random_exponential(20, 200, 3)\nSELECT pg_sleep(:ms / 1000.0);\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sslmode := range []string{"disable", "require"} {
		for _, run := range []struct {
			name  string
			args  []string
			least float64 // of the client's time
		}{
			{"sleeps", []string{"-f", script, "-t", "100"}, 0.9},
			{"selects", []string{"-S", "-t", "1000"}, 0}, // the way there and back is most of it
		} {
			t.Run("sslmode "+sslmode+", "+run.name, func(t *testing.T) {
				database := run.name + "_" + sslmode
				control := s.workplace(t, database)
				if run.least == 0 {
					s.Pgbench(t, sslmode, database, "-i", "-q")
				}
				logs := filepath.Join(t.TempDir(), "log")
				s.Pgbench(t, sslmode, database, append(run.args, "-n", "-M", "prepared", "-c", "8", "-l", "--log-prefix", logs)...)
				l.agree(t, control, database, nil)
				client := pgbenchLog(t, logs)
				var c event.Counts
				for one := range f.Counts() {
					if one.Calls > c.Calls && l.session(t, one.Key.Who).Database == database {
						c = one
					}
				}
				if int(c.Calls) != len(client) {
					t.Fatalf("%d calls, and %d in the client's log", c.Calls, len(client))
				}
				for _, q := range []float64{0.5, 0.99} {
					kernel, own := c.Quantile(q), client[int(q*float64(len(client)))]
					ratio := float64(kernel) / float64(own)
					t.Logf("p%g: %v counted, %v by pgbench's log (%+.1f %%)", 100*q, kernel, own, 100*(ratio-1))
					if ratio < run.least || ratio > 1.1 {
						t.Errorf("p%g: %v counted, %v by the client", 100*q, kernel, own)
					}
				}
				if sum := c.Queue + c.Service + c.Transfer; sum != c.Latency {
					t.Errorf("queue %v, service %v and transfer %v are not latency %v", c.Queue, c.Service, c.Transfer, c.Latency)
				}
			})
		}
	}
}

// pgbenchLog are the latencies that pgbench wrote, in order of size.
func pgbenchLog(t *testing.T, prefix string) []time.Duration {
	t.Helper()
	files, err := filepath.Glob(prefix + ".*")
	if err != nil || len(files) == 0 {
		t.Fatalf("pgbench wrote no log: %v", err)
	}
	var all []time.Duration
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			us, err := strconv.Atoi(strings.Fields(lines.Text())[2])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, time.Duration(us)*time.Microsecond)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}
