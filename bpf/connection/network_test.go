package connection

import (
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// site is a real PostgreSQL in a network namespace of its own, and clients in others. What comes to it comes through this process, so that the kernel
// is at work for the server's sockets in the midst of one that is none of the server's.
type site struct {
	space  *observed.Namespace
	cgroup uint64
	port   uint16
}

func newSite(t *testing.T, settings ...string) *site {
	t.Helper()
	observed.NeedsServer(t)
	dir, err := os.MkdirTemp("", "plimsoll-hba-") // t.TempDir is not readable to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	hba := filepath.Join(dir, "pg_hba.conf")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hba, []byte("local all all trust\nhost all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	group, id := newCgroup(t)
	s := &site{space: observed.NewNamespace(t), cgroup: id}
	s.space.Do(t, func() {
		server := observed.Start(t, group, append([]string{"listen_addresses=*", "hba_file=" + hba}, settings...)...)
		s.port = uint16(server.Port)
	})
	return s
}

// peer is a namespace that reaches the server of a site.
type peer struct {
	*observed.Namespace
	*observed.Link
	address, url string
}

// joins makes the nth client, which is 10.90.n.2.
func (s *site) joins(t *testing.T, n int) *peer {
	t.Helper()
	c := &peer{Namespace: observed.NewNamespace(t), address: fmt.Sprintf("10.90.%d.2", n)}
	here := fmt.Sprintf("10.90.%d.1", n)
	c.Link = observed.Join(t, s.space, c.Namespace, netip.MustParsePrefix(here+"/24"), netip.MustParsePrefix(c.address+"/24"))
	c.url = fmt.Sprintf("postgres://postgres@%s:%d/postgres?sslmode=disable", here, s.port)
	return c
}

// runs a program of PostgreSQL's in the client's namespace.
func (c *peer) runs(t *testing.T, name string, args ...string) {
	t.Helper()
	c.Do(t, func() {
		cmd := exec.CommandContext(t.Context(), observed.Bin+name, append(args, c.url)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	})
}

// session is a psql that stays: it runs what it is told and says what it is answered.
type session struct {
	in  io.WriteCloser
	cmd *exec.Cmd
}

func (c *peer) session(t *testing.T) *session {
	t.Helper()
	s := &session{}
	c.Do(t, func() {
		s.cmd = exec.CommandContext(t.Context(), observed.Bin+"psql", "-X", "-q", "-A", "-t", c.url)
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := s.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if s.in, err = s.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.tell(t, "SELECT 'ready';")
		if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
			t.Fatalf("psql: %v", err)
		}
	})
	t.Cleanup(s.end)
	return s
}

func (s *session) tell(t *testing.T, statement string) {
	t.Helper()
	if _, err := io.WriteString(s.in, statement+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (s *session) end() {
	s.in.Close()
	_ = s.cmd.Wait() // its server may have left it
}

// snmp is what a namespace's kernel counts of TCP itself.
func snmp(t *testing.T, n *observed.Namespace, name string) uint64 {
	t.Helper()
	var text []byte
	n.Do(t, func() {
		var err error
		if text, err = os.ReadFile("/proc/thread-self/net/snmp"); err != nil {
			t.Fatal(err)
		}
	})
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i := range names {
			if names[i] == name {
				n, err := strconv.ParseUint(fields[i], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("the kernel does not count %s", name)
	return 0
}

// sum of all places.
func sum(t *testing.T, f *Family) (all event.Connections) {
	t.Helper()
	if err := f.Look(); err != nil {
		t.Fatal(err)
	}
	for c := range f.Counts() {
		all.Retransmits += c.Retransmits
		all.RoundTrip += c.RoundTrip
		for i, n := range c.Slots {
			all.Slots[i] += n
		}
	}
	return all
}

func TestClientsInOtherNetworksAreTheirOwn(t *testing.T) {
	s := newSite(t)
	before, one, two := s.joins(t, 1), s.joins(t, 2), s.joins(t, 3)
	stays := before.session(t)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	if err := f.Find(s.space.Path); err != nil {
		t.Fatal(err)
	}
	first, second := snmp(t, one.Namespace, "ActiveOpens"), snmp(t, two.Namespace, "ActiveOpens")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("SELECT 1;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A connection for each transaction.
	one.runs(t, "pgbench", "-n", "-C", "-c", "2", "-t", "20", "-f", script)
	two.runs(t, "pgbench", "-n", "-c", "3", "-t", "10", "-f", script)
	first, second = snmp(t, one.Namespace, "ActiveOpens")-first, snmp(t, two.Namespace, "ActiveOpens")-second
	if first < 40 || second < 3 {
		t.Fatalf("the clients opened %d and %d connections", first, second)
	}
	counts := func() map[string]tally {
		all := tallies(t, f)
		for name, one := range all {
			one.In, one.Out = 0, 0
			all[name] = one
		}
		return all
	}
	expect := func(want map[string]tally) {
		t.Helper()
		var got map[string]tally
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if got = counts(); cmp.Equal(want, got) {
				return
			}
		}
		t.Errorf("-want +got\n%s", cmp.Diff(want, got))
	}
	expect(map[string]tally{
		before.address: {Found: 1, Open: 1}, one.address: {Opened: first, Closed: first}, two.address: {Opened: second, Closed: second},
	})
	stays.end()
	expect(map[string]tally{
		before.address: {Found: 1, Closed: 1}, one.address: {Opened: first, Closed: first}, two.address: {Opened: second, Closed: second},
	})
	nothingLost(t, f)
}

func TestSegmentsThatAreSentAgainAreCountedAsTheKernelDoes(t *testing.T) {
	s := newSite(t)
	c := s.joins(t, 1)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	before := snmp(t, s.space, "RetransSegs")
	large := 0
	c.Drop(func(packet []byte) bool { // each seventh of those that carry an answer; asked from two sides, of which one sends none
		if len(packet) < 1000 {
			return false
		}
		large++
		return large%7 == 0
	})
	c.runs(t, "psql", "-X", "-q", "-A", "-t", "-o", "/dev/null", "-c", "SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
	await := func(want uint64) (got uint64) {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if got = sum(t, f).Retransmits; got == want {
				break
			}
		}
		return got
	}
	want := snmp(t, s.space, "RetransSegs") - before
	if got := await(want); got != want || want == 0 {
		t.Errorf("%d were counted, want %d and some", got, want)
	}
	if got := tallies(t, f)[c.address]; got.Out < 1_000_000 || got.Out > 1_100_000 {
		t.Errorf("%d bytes were sent, want those of the rows once", got.Out)
	}
	nothingLost(t, f)
}

func TestARoundTripIsTheKernels(t *testing.T) {
	s := newSite(t)
	c := s.joins(t, 1)
	const delay = 20 * time.Millisecond
	c.Delay(delay)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	c.session(t)
	time.Sleep(10 * delay) // the last acknowledgement is under way
	got := sum(t, f)
	samples := uint64(0)
	slot := -1
	for i, n := range got.Slots {
		if samples += n; n > 0 {
			slot = i
		}
	}
	if samples != 1 {
		t.Fatalf("%d round trips were taken, want that of the one connection", samples)
	}
	want := roundTrip(t, s)
	if off := (got.RoundTrip - want).Abs(); off > time.Microsecond || want < 2*delay {
		t.Errorf("a round trip takes %v, want %v, and at least %v", got.RoundTrip, want, 2*delay)
	}
	// Slot i ends at 2^((i+1)/4 - 17) s.
	if above, below := math.Exp2(float64(slot)/4-17), math.Exp2(float64(slot+1)/4-17); want.Seconds() <= above || want.Seconds() > below {
		t.Errorf("%v is in slot %d, of %v to %v s", want, slot, above, below)
	}
	// Who says nothing tells none.
	if again := sum(t, f); again != got {
		t.Errorf("an idle connection tells a round trip again")
	}
}

// roundTrip is what ss says of the one connection of a site's server.
func roundTrip(t *testing.T, s *site) time.Duration {
	t.Helper()
	var out []byte
	s.space.Do(t, func() {
		var err error
		if out, err = exec.CommandContext(t.Context(), "ss", "-tinH", "state", "established", "sport", "=", fmt.Sprint(s.port)).CombinedOutput(); err != nil {
			t.Fatalf("ss: %v\n%s", err, out)
		}
	})
	found := regexp.MustCompile(`\brtt:([0-9.]+)/`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("ss tells no round trip:\n%s", out)
	}
	ms, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func TestAClientThatIsNotHeardAnyMoreTimesOut(t *testing.T) {
	s := newSite(t, "tcp_user_timeout=1000")
	c := s.joins(t, 1)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	waits := c.session(t)
	waits.tell(t, "SELECT pg_sleep(2);")
	// Once it has been asked, nobody is heard.
	for deadline := time.Now().Add(10 * time.Second); tallies(t, f)[c.address].In < 100 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	c.Drop(func([]byte) bool { return true })
	var got tally
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = tallies(t, f)[c.address]; got.Open == 0 {
			break
		}
	}
	got.In, got.Out = 0, 0
	if diff := cmp.Diff(tally{Opened: 1, TimedOut: 1}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	_ = waits.cmd.Process.Kill()
}
