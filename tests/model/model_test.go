// Package model checks the leadership protocol's Promela model with spin.
package model

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// source is a part of the test's program, so that go test knows what it has searched: as long as neither changes, nothing is searched again.
//
//go:embed leadership.pml
var source []byte

// limit of one configuration, on a machine of which it may get no more than what others leave.
const limit = 15 * time.Minute

// envLarger asks for the larger configurations too.
const envLarger = "PLIMSOLL_MODEL_LARGER"

// memory is what one search may take, in MiB.
const memory = 4000

// TestTheProtocolHolds searches every state of each configuration: nothing may be violated, and nothing may be left out.
func TestTheProtocolHolds(t *testing.T) {
	tests := map[string]string{
		// Three voters; a member restarts. From every state a calm schedule must end with a leader.
		"three voters":                       "-DN=3 -DEMAX=3 -DW=1 -DCRASHES=1 -DCALM",
		"a restart that forgets":             "-DN=3 -DEMAX=3 -DW=1 -DCRASHES=1 -DFORGETS=1 -DLOSSES=1",
		"no kernel fence, frozen leaders":    "-DN=3 -DEMAX=2 -DW=2 -DCRASHES=1 -DNOFENCE",
		"slow messages":                      "-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DASYNC",
		"a leader that comes back":           "-DN=3 -DEMAX=3 -DW=1 -DCRASHES=1 -DRESUME",
		"programs are exchanged":             "-DN=3 -DEMAX=2 -DW=1 -DCRASHES=1 -DEXCHANGES=2",
		"exchanged, slow messages":           "-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DASYNC -DEXCHANGES=1",
		"slow messages, two voters":          "-DN=2 -DVOTERS=3 -DEMAX=3 -DW=1 -DCRASHES=1 -DASYNC",
		"two voters, one loses its volume":   "-DN=2 -DVOTERS=3 -DEMAX=4 -DW=2 -DCRASHES=2 -DLOSSES=1 -DCALM",
		"two members and a witness":          "-DN=3 -DWITNESS -DEMAX=3 -DW=1 -DCRASHES=1 -DCALM",
		"the pair's volumes":                 "-DN=3 -DWITNESS -DEMAX=3 -DW=1 -DCRASHES=1 -DLOSSES=1",
		"the pair writes on, no fence":       "-DN=3 -DWITNESS -DEMAX=2 -DW=2 -DCRASHES=1 -DNOFENCE",
		"three become four":                  "-DN=4 -DEMAX=2 -DW=1 -DCRASHES=0 -DCHANGES=1",
		"three become two or one, re-cloned": "-DN=3 -DEMAX=2 -DW=1 -DCRASHES=1 -DCHANGES=2 -DWIPES=1",
		"Lease deleted or restored":          "-DN=3 -DEMAX=3 -DW=1 -DCRASHES=0 -DRESTORES=1",
		"Lease restored to older members":    "-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DCHANGES=2 -DRESTORES=1",
		"recovery from a lost majority":      "-DN=3 -DEMAX=3 -DW=0 -DCRASHES=0 -DRECOVERS=1",
		"recovery, and one restarts":         "-DN=3 -DEMAX=2 -DW=1 -DCRASHES=1 -DLOSSES=1 -DRECOVERS=1",
	}
	if os.Getenv(envLarger) != "" {
		tests["slow messages with a restart"] = "-DN=3 -DEMAX=2 -DW=0 -DCRASHES=1 -DASYNC"
		tests["recovery with a write"] = "-DN=3 -DEMAX=3 -DW=1 -DCRASHES=0 -DRECOVERS=1"
	}
	for name, flags := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := check(t, flags, "-O2")
			if r.errors != 0 {
				t.Errorf("violated:\n%s", r.trail)
			}
			if why := r.incomplete(); why != "" {
				t.Errorf("the search is not complete: %s\n%s", why, r.out)
			}
			t.Logf("complete: %d states, %.0f MiB, pan %.1f s: spin %s", r.states, r.megabytes, r.seconds, flags)
		})
	}
}

// TestTheModelFindsPlantedBugs proves that the model would notice: each row breaks one rule.
func TestTheModelFindsPlantedBugs(t *testing.T) {
	tests := map[string]struct{ flags, violated string }{
		// The four of the issue.
		"support that expires back":                      {"-DN=3 -DEMAX=3 -DW=1 -DCRASHES=0 -DBUG_EXPIRES_BACK", "S1: an acknowledged write is lost"},
		"a voter without data that supports anybody":     {"-DN=3 -DEMAX=2 -DW=1 -DCRASHES=1 -DLOSSES=1 -DBUG_DATALESS", "S1: an acknowledged write is lost"},
		"a majority of spec.replicas, not of the voters": {"-DN=4 -DEMAX=2 -DW=0 -DCRASHES=0 -DCHANGES=1 -DBUG_SPEC_MAJORITY", "S1: two could acknowledge at one time"},
		"a promise without fence time":                   {"-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DASYNC -DBUG_NO_FENCE_TIME", "S3: promoted before the deadline"},
		// Of two members and a witness.
		"a witness counts as a copy":                           {"-DN=3 -DWITNESS -DEMAX=2 -DW=1 -DCRASHES=0 -DBUG_WITNESS_IS_A_COPY", "S1: an acknowledged write is lost"},
		"a commit by fewer before the Lease says so":           {"-DN=3 -DWITNESS -DEMAX=2 -DW=1 -DCRASHES=0 -DBUG_FEWER_BEFORE_THE_LEASE", "S1: "},
		"whom a degraded Lease does not name is elected":       {"-DN=3 -DWITNESS -DEMAX=2 -DW=1 -DCRASHES=0 -DBUG_ANYBODY_AFTER_FEWER", "S1: "},
		"the word is taken back while commits do not wait yet": {"-DN=3 -DWITNESS -DEMAX=2 -DW=1 -DCRASHES=0 -DBUG_BACK_BEFORE_COMMITS_WAIT", "S1: "},
		// Others.
		"a restarted voter does not wait":                  {"-DN=3 -DEMAX=2 -DW=0 -DCRASHES=1 -DBUG_NO_WAIT", "S3: promoted before the deadline"},
		"the swap alone entitles":                          {"-DN=3 -DEMAX=3 -DW=0 -DCRASHES=0 -DBUG_SWAP_ENTITLES", "S3: promoted before the deadline"},
		"a release of an earlier run ends a later one's":   {"-DN=3 -DEMAX=2 -DW=0 -DCRASHES=1 -DRESUME -DBUG_ANY_RUN", "S3: promoted before the deadline"},
		"an exchange forgets whom the voter is bound to":   {"-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DEXCHANGES=1 -DBUG_FORGETS_BOUND", "S3: promoted before the deadline"},
		"an exchange forgets the deadline":                 {"-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DEXCHANGES=1 -DBUG_FORGETS_DEADLINE", "S3: promoted before the deadline"},
		"the version of the Lease's record does not count": {"-DN=3 -DEMAX=2 -DW=0 -DCRASHES=0 -DCHANGES=2 -DRESTORES=1 -DBUG_VERSION_FORGOTTEN", "S2: an epoch has two leaders"},
		"a voter never moves on to another candidate":      {"-DN=3 -DEMAX=3 -DW=0 -DCRASHES=0 -DCALM -DBUG_NEVER_MOVES_ON", "L1: "},
		"a recovery asks nobody":                           {"-DN=3 -DEMAX=2 -DW=1 -DCRASHES=0 -DRECOVERS=1 -DBUG_RECOVER_ASKS_NOBODY", "VIOLATED S"},
		"a recovery beside one who has won unknowingly":    {"-DN=3 -DEMAX=3 -DW=0 -DCRASHES=0 -DRECOVERS=1 -DBUG_RECOVER_BESIDE_CANDIDATES", "VIOLATED S"},
		// A limit that decision 0002 names: the model must show it, or it shows too little.
		"a promise is lost while its candidate is at work": {"-DN=3 -DEMAX=3 -DW=1 -DCRASHES=1 -DFORGETS=1 -DFORGETS_AT_WORK", "VIOLATED S1: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := check(t, test.flags, "-O1")
			if r.errors == 0 {
				t.Fatalf("not noticed\n%s", r.out)
			}
			if !strings.Contains(r.trail, test.violated) {
				t.Errorf("noticed, but not by %q:\n%s", test.violated, r.trail)
			}
			t.Logf("noticed after %d states, %.1f s: spin %s\n%s", r.states, r.seconds, test.flags, r.trail)
		})
	}
}

// result of one search.
type result struct {
	out, trail string
	states     int
	errors     int
	megabytes  float64
	seconds    float64
}

var (
	stored  = regexp.MustCompile(`(\d+) states, stored`)
	found   = regexp.MustCompile(`errors: (\d+)`)
	used    = regexp.MustCompile(`([\d.]+)\s+total actual memory usage`)
	elapsed = regexp.MustCompile(`elapsed time ([\d.]+) seconds`)
)

// incomplete says why a search did not see every state.
func (r result) incomplete() string {
	for _, sign := range []string{"Search not completed", "max search depth too small", "reached -DMEMLIM", "out of memory", "hash table full"} {
		if strings.Contains(r.out, sign) {
			return sign
		}
	}
	if !strings.Contains(r.out, "Full statespace search") {
		return "it was not a full one"
	}
	return ""
}

// check has spin make the verifier of the model with these flags, and runs it.
func check(t *testing.T, flags, optimise string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dir := t.TempDir()
	model := filepath.Join(dir, "leadership.pml")
	if err := os.WriteFile(model, source, 0o600); err != nil {
		t.Fatal(err)
	}
	defines := strings.Fields(flags)
	run(ctx, t, dir, "spin", append(append([]string{"-a"}, defines...), model)...)
	run(ctx, t, dir, "gcc", "-w", optimise, "-DSAFETY", "-DNOFAIR", fmt.Sprintf("-DMEMLIM=%d", memory), "-o", "pan", "pan.c")
	// -E: a state from which nothing more happens is no error here; -n: no list of unreached lines; -m, -w: depth and hash table.
	// By its whole path: go test would note a name within the checkout, and search again in another.
	out := run(ctx, t, dir, filepath.Join(dir, "pan"), "-E", "-n", "-m100000", "-w24")
	r := result{out: out, states: int(number(t, stored, out)), errors: int(number(t, found, out)), megabytes: number(t, used, out), seconds: number(t, elapsed, out)}
	trail := model + ".trail"
	if _, err := os.Stat(trail); err == nil {
		r.trail = walk(run(ctx, t, dir, "spin", append(append([]string{"-t", "-k", trail, "-T"}, defines...), model)...))
	}
	return r
}

// walk keeps the end of a trail's steps, and what was violated.
func walk(text string) string {
	const enough = 40
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "spin: text of failed") {
			continue
		}
		if strings.HasPrefix(line, "spin: trail ends") {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines[max(0, len(lines)-enough):], "\n")
}

func run(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%s is missing: install the Debian packages spin and gcc (%v)", name, err)
	}
	var exit *exec.ExitError
	// spin and pan leave with a code of their own; what they print is judged.
	if err != nil && (!errors.As(err, &exit) || name == "gcc" || !exit.Exited()) || ctx.Err() != nil {
		t.Fatalf("%s %s: %v %v\n%s", name, strings.Join(args, " "), err, ctx.Err(), out)
	}
	return string(out)
}

func number(t *testing.T, in *regexp.Regexp, out string) float64 {
	t.Helper()
	m := in.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the verifier did not print %s:\n%s", in, out)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
