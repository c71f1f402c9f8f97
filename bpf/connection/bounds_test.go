package connection

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// smaller is an attached family with less room.
func smaller(t *testing.T, places, kept, conns uint32) *Family {
	t.Helper()
	observed.NeedsRoot(t)
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]uint32{kernelMapCounted: places, kernelMapPlaces: places, kernelMapVacant: places, kernelMapKept: kept, kernelMapConns: conns} {
		spec.Maps[name].MaxEntries = most
	}
	return loaded(t, spec)
}

func loaded(t *testing.T, spec *ebpf.CollectionSpec) *Family {
	t.Helper()
	f, err := load(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Attach(); err != nil {
		t.Fatal(err)
	}
	return f
}

// lost waits for what is counted as lost.
func (f *Family) loses(t *testing.T, want map[string]uint64) {
	t.Helper()
	var got map[string]uint64
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		all, err := f.Lost()
		if err != nil {
			t.Fatal(err)
		}
		got = map[string]uint64{}
		for reason, n := range all {
			if n > 0 {
				got[reason] = n
			}
		}
		if cmp.Equal(want, got) {
			return
		}
	}
	t.Errorf("lost (-want +got)\n%s", cmp.Diff(want, got))
}

func TestManyShortConnectionsAreCountedToTheLastOne(t *testing.T) {
	s := newEcho(t)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	const clients, each = 8, 250
	var all sync.WaitGroup
	for i := range clients {
		from := fmt.Sprintf("127.0.1.%d", i+1)
		all.Go(func() {
			for range each {
				c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(s.port)})
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 1 {
					_ = c.SetLinger(0)
				}
				c.Close()
			}
		})
	}
	all.Wait()
	want := map[string]tally{}
	for i := range clients {
		one := tally{Opened: each, Closed: each}
		if i%2 == 1 {
			one.Closed, one.Reset = 0, each
		}
		want[fmt.Sprintf("127.0.1.%d", i+1)] = one
	}
	await(t, f, want)
	nothingLost(t, f)
}

func TestAServerThatStartsAgainIsCountedOn(t *testing.T) {
	observed.NeedsRoot(t)
	group, id := newCgroup(t)
	s := startEcho(t, group, id, "127.0.0.1:0")
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	one := s.dial(t, "127.0.0.2")
	say(t, one, 10)
	s.stop()
	for deadline := time.Now().Add(10 * time.Second); tallies(t, f)["127.0.0.2"].Open > 0 && time.Now().Before(deadline); {
		one.Close() // the server's side may wait for this
		time.Sleep(10 * time.Millisecond)
	}
	s = startEcho(t, group, id, fmt.Sprintf("127.0.0.1:%d", s.port))
	say(t, s.dial(t, "127.0.0.2"), 10)
	got := tallies(t, f)["127.0.0.2"]
	if got.Closed+got.Reset != 1 {
		t.Errorf("%d connections ended, want 1", got.Closed+got.Reset)
	}
	got.Closed, got.Reset = 0, 0
	if diff := cmp.Diff(tally{Opened: 2, Open: 1, In: 20, Out: 20}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	nothingLost(t, f)
}

// TestWhoFindsNobodyListeningIsRefused: also a client that was never served, which gets no place for that, as its address may be made up.
func TestWhoFindsNobodyListeningIsRefused(t *testing.T) {
	observed.NeedsRoot(t)
	group, id := newCgroup(t)
	s := startEcho(t, group, id, "127.0.0.1:0")
	before, after := attached(t), attached(t)
	before.watches(t, id, s.port)
	after.watches(t, id, s.port)
	if err := after.Find("/proc/self/ns/net"); err != nil { // it listens already
		t.Fatal(err)
	}
	s.dial(t, "127.0.0.2").Close()
	await(t, after, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1}})
	s.stop()
	refused := func(from string) {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(s.port)})
		if err == nil {
			c.Close()
			t.Error("nobody was to listen")
		}
	}
	refused("127.0.0.2")
	refused("127.0.0.3")
	refused("127.0.0.3")
	await(t, after, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1, Refused: 1}, "rest": {Refused: 2}})
	// Who saw neither the server begin to listen nor looked for it does not know.
	await(t, before, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1}})
	s = startEcho(t, group, id, fmt.Sprintf("127.0.0.1:%d", s.port))
	s.stop()
	refused("127.0.0.2")
	await(t, before, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1, Refused: 1}})
	if err := before.Unwatch(id); err != nil {
		t.Fatal(err)
	}
	refused("127.0.0.2")
	await(t, after, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1, Refused: 3}, "rest": {Refused: 2}})
	await(t, before, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1, Refused: 1}})
	nothingLost(t, after)
}

func TestClientsBeyondThePlacesAreCountedWithTheRest(t *testing.T) {
	s := newEcho(t)
	f := smaller(t, 3, 1, 100)
	f.watches(t, s.cgroup, s.port) // takes the place of the rest
	for i := range 5 {
		c := s.dial(t, fmt.Sprintf("127.0.0.%d", i+2))
		say(t, c, 10)
	}
	await(t, f, map[string]tally{
		"127.0.0.2": {Opened: 1, Open: 1, In: 10, Out: 10}, "127.0.0.3": {Opened: 1, Open: 1, In: 10, Out: 10},
		"rest": {Opened: 3, Open: 3, In: 30, Out: 30},
	})
	f.loses(t, map[string]uint64{"tcp_clients": 3})
}

func TestConnectionsBeyondTheBoundAreNeitherOpenedNorClosed(t *testing.T) {
	s := newEcho(t)
	f := smaller(t, 10, 1, 2)
	f.watches(t, s.cgroup, s.port)
	var all []*net.TCPConn
	for range 4 {
		all = append(all, s.dial(t, "127.0.0.2"))
		say(t, all[len(all)-1], 10)
	}
	await(t, f, map[string]tally{"127.0.0.2": {Opened: 2, Open: 2, In: 20, Out: 20}})
	for _, c := range all {
		c.Close()
	}
	await(t, f, map[string]tally{"127.0.0.2": {Opened: 2, Closed: 2, In: 20, Out: 20}})
	f.loses(t, map[string]uint64{"tcp_connections": 2, "tcp_begins": 2})
}

// TestPlacesOfClientsThatAreGoneAreTakenBack: what is added up by differences, place by place, is exact, and no client was left without a place.
func TestPlacesOfClientsThatAreGoneAreTakenBack(t *testing.T) {
	s := newEcho(t)
	f := smaller(t, 16, 2, 100)
	f.watches(t, s.cgroup, s.port)
	stays := s.dial(t, "127.0.3.1")
	before, opened := map[uint64]uint64{}, uint64(0)
	pass := func() {
		for c := range f.Counts() {
			opened += c.Opened - before[c.Place]
			before[c.Place] = c.Opened
		}
		if err := f.Tend(); err != nil {
			t.Fatal(err)
		}
	}
	const clients = 60
	for i := range clients {
		s.dial(t, fmt.Sprintf("127.0.2.%d", i+1)).Close()
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if open := openNow(f); open == 1 {
				break
			}
		}
		pass()
		pass()
	}
	if opened != clients+1 {
		t.Errorf("%d connections were opened, want %d", opened, clients+1)
	}
	// The one that stayed has its place still.
	say(t, stays, 10)
	if got := tallies(t, f)["127.0.3.1"]; got != (tally{Opened: 1, Open: 1, In: 10, Out: 10}) {
		t.Errorf("of the connection that stayed: %+v", got)
	}
	nothingLost(t, f)
}

func openNow(f *Family) (n uint64) {
	for i := range f.counted.values {
		c := &f.counted.values[i]
		n += c.Opened - c.Closed - c.Reset
	}
	return n
}

func TestAContainerThatIsGoneLeavesNothing(t *testing.T) {
	s := newEcho(t)
	f := smaller(t, 16, 2, 100)
	vacancies := f.room()
	f.watches(t, s.cgroup, s.port)
	c := s.dial(t, "127.0.0.2")
	say(t, c, 10)
	pass := func() {
		for range f.Counts() {
		}
		if err := f.Tend(); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if err := f.Unwatch(s.cgroup); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		pass()
	}
	vacant := func() (n int) {
		for i := range f.counted.values {
			if f.life(i) == 0 {
				n++
			}
		}
		return n
	}
	if got := vacant(); got != vacancies-1 {
		t.Errorf("%d places are vacant, want all but that of the open connection", got)
	}
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); vacant() != vacancies && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pass()
	}
	if got := vacant(); got != vacancies {
		t.Errorf("%d places are vacant, want %d", got, vacancies)
	}
	s.dial(t, "127.0.0.2").Close()
	if got := tallies(t, f); len(got) > 0 {
		t.Errorf("it is measured still: %v", got)
	}
}

func TestConnectionsThatNobodyLookedForAreNotCounted(t *testing.T) {
	s := newEcho(t)
	c := s.dial(t, "127.0.0.2")
	say(t, c, 10)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	c.Close()
	f.loses(t, map[string]uint64{"tcp_begins": 1})
	await(t, f, map[string]tally{})
}

// TestAnEndIsSeenThoughAProgramWasLeftOut: the kernel leaves one out that is at work on the same CPU already.
func TestAnEndIsSeenThoughAProgramWasLeftOut(t *testing.T) {
	for sentence, row := range map[string]struct {
		without []int // of the links, in the order in which they are attached
		lost    map[string]uint64
	}{
		"when the socket goes": {[]int{1}, map[string]uint64{}},
		"at the next look":     {[]int{0, 1}, map[string]uint64{"tcp_ends": 1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newEcho(t)
			f := attached(t)
			f.watches(t, s.cgroup, s.port)
			c := s.dial(t, "127.0.0.2")
			say(t, c, 10)
			await(t, f, map[string]tally{"127.0.0.2": {Opened: 1, Open: 1, In: 10, Out: 10}})
			for _, i := range slices.Backward(row.without) {
				if err := f.links[i].Close(); err != nil {
					t.Fatal(err)
				}
				f.links = slices.Delete(f.links, i, i+1)
			}
			c.Close()
			await(t, f, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1, In: 10, Out: 10}})
			f.loses(t, row.lost)
		})
	}
}

func TestAKernelThatDoesNotListSocketsCountsNewConnections(t *testing.T) {
	s := newEcho(t)
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	spec.Programs[kernelProgFound].AttachTo = "no_such_list"
	f := loaded(t, spec)
	f.watches(t, s.cgroup, s.port)
	if err := f.Find("/proc/self/ns/net"); err == nil {
		t.Error("they were looked for")
	}
	s.dial(t, "127.0.0.2").Close()
	await(t, f, map[string]tally{"127.0.0.2": {Opened: 1, Closed: 1}})
}

func TestAddressesOfBothFamilies(t *testing.T) {
	observed.NeedsRoot(t)
	group, id := newCgroup(t)
	space := observed.NewNamespace(t)
	space.Do(t, func() {
		s := startEcho(t, group, id, "[::]:0")
		f := attached(t)
		f.watches(t, s.cgroup, s.port)
		c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv6loopback, Port: int(s.port)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		say(t, c, 10)
		say(t, s.dial(t, "127.0.0.2"), 20) // of IPv4, on a socket of IPv6
		await(t, f, map[string]tally{"::1": {Opened: 1, Open: 1, In: 10, Out: 10}, "127.0.0.2": {Opened: 1, Open: 1, In: 20, Out: 20}})
	})
}

// TestMemory holds the family to its share of the node's bound for kernel memory. What is allocated as it comes is reckoned for every connection that there
// may be.
func TestMemory(t *testing.T) {
	f := attached(t)
	var total uint64
	k := &f.kernel
	for _, m := range []*ebpf.Map{k.Conns, k.Counted, k.Kept, k.Listeners, k.Losses, k.Places, k.Targets, k.Vacant} {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		size, ok := info.Memlock()
		if !ok {
			t.Skip("this kernel does not tell what a map takes")
		}
		total += size
	}
	const each = 96 // a conn, its key and what the hash needs, as the kernel's allocator rounds
	most := total + uint64(k.Conns.MaxEntries())*each
	const bound = 8 << 20
	if t.Logf("%.1f MiB, and %.1f MiB with %d connections open", float64(total)/(1<<20), float64(most)/(1<<20), k.Conns.MaxEntries()); most > bound {
		t.Errorf("%d bytes, want at most %d", most, bound)
	}
}

// TestCost prints what a connection costs, and one that is none of ours, in the programs.
func TestCost(t *testing.T) {
	s, other := newEcho(t), newEcho(t)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	const n = 500
	spent := func(of *echoServer) (total time.Duration) {
		before := spentBy(t, f)
		for range n {
			of.dial(t, "127.0.0.2").Close()
		}
		return spentBy(t, f) - before
	}
	t.Logf("a connection of ours costs %v in all programs, another %v", spent(s)/n, spent(other)/n)
	look, err := f.kernel.Tend.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		s.dial(t, "127.0.0.3")
	}
	if err := f.Look(); err != nil {
		t.Fatal(err)
	}
	after, err := f.kernel.Tend.Stats()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a look at %d open connections takes %v", 1000, after.Runtime-look.Runtime)
}

func spentBy(t *testing.T, f *Family) (total time.Duration) {
	t.Helper()
	for _, p := range []*ebpf.Program{f.kernel.StateChanges, f.kernel.SocketGoes} {
		s, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		total += s.Runtime
	}
	return total
}
