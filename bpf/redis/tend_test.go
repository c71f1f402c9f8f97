package redis

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// The node's bound for kernel memory is 32 MiB for all families, and bpf/query takes most of it. What is allocated as it comes is reckoned with 20
// containers of 100 connections each.
func TestTheMapsStayInTheirBound(t *testing.T) {
	d := newDriven(t)
	k := &d.family.kernel
	var fixed uint64
	for _, m := range []*ebpf.Map{
		k.Targets, k.Conns, k.Blank, k.Threads, k.Seals, k.Spill, k.Commands, k.Errors, k.Texts, k.Sessions, k.Counted, k.Places, k.Vacant, k.Kept, k.Records, k.Losses,
	} {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		size, known := info.Memlock()
		if !known {
			t.Fatalf("the kernel does not tell the size of %s", m)
		}
		t.Logf("%s: %d KiB", info.Name, size>>10)
		if m == k.Conns || m == k.Spill || m == k.Sessions || m == k.Threads || m == k.Seals {
			continue
		}
		fixed += size
	}
	if got, want := len(reasons()), int(k.Losses.MaxEntries()); got != want {
		t.Errorf("%d reasons for losses have names, want %d", got, want)
	}
	const header = 64 // of an entry of a hash
	conns := uint64(20 * 100 * (k.Conns.ValueSize() + header))
	rest := uint64(k.Spill.MaxEntries()*(k.Spill.ValueSize()+k.Spill.KeySize()+header) + k.Sessions.MaxEntries()*(k.Sessions.ValueSize()+header))
	t.Logf("fixed %d KiB, connections %d KiB of %d bytes, deep pipelines and sessions at most %d KiB", fixed>>10, conns>>10, k.Conns.ValueSize(), rest>>10)
	if sum := fixed + conns + rest; sum > 20<<20 {
		t.Errorf("%d KiB", sum>>10)
	}
}

func TestWhatFindsNoPlaceIsCountedAsOther(t *testing.T) {
	d := newDriven(t)
	d.next(t)
	const words = 5000 // more than there are places
	word := func(n int) string {
		var w []byte
		for ; n > 0; n /= 26 {
			w = append(w, byte('a'+n%26))
		}
		return string(w)
	}
	for n := 1; n <= words; n++ {
		d.say(t, asks("GET "+word(n)), says("$-1"))
		if n%500 == 0 {
			d.read(t)
		}
	}
	var sum, other uint64
	for c := range d.family.Counts() {
		sum += c.Calls
		if c.Key.Print == 0 {
			other += c.Calls
		}
	}
	if lost := d.lost(t)["keys"]; sum != words || other != lost || lost == 0 {
		t.Errorf("%d calls, %d of them other; %d lost", sum, other, lost)
	}
	// Places that nobody uses are given back, and what is then counted has its name.
	for range 4 {
		for range d.family.Counts() { //nolint:revive // a pass tells what was counted
		}
		if err := d.family.Tend(); err != nil {
			t.Fatal(err)
		}
	}
	d.say(t, asks("GET now"), says("$-1"))
	if n := d.calls(t)["get now"]; n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestAContainerThatIsMeasuredNoLongerLeavesNothing(t *testing.T) {
	d := newDriven(t)
	d.next(t)
	d.say(t, asks("GET a"), says("$-1"))
	if err := d.family.Unwatch(d.cgroup); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for range d.family.Counts() { //nolint:revive // a pass tells what was counted
		}
		if err := d.family.Tend(); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.calls(t); len(got) > 0 {
		t.Errorf("counted %v", got)
	}
	if n := d.family.kernel.Marks; n != nil {
		var marks [4096]uint32
		if err := n.Get(&marks); err != nil {
			t.Fatal(err)
		}
		if marks != [4096]uint32{} {
			t.Error("its mark is kept")
		}
	}
}

func TestSlowAndFailedCommandsAreToldWhereThatIsAskedFor(t *testing.T) {
	d := newDriven(t)
	if err := d.family.Watch(Target{Cgroup: d.cgroup, Port: 6379, SlowNS: 2_000_000}); err != nil {
		t.Fatal(err)
	}
	d.next(t)
	slow := says("+OK")
	slow.after *= 5
	d.say(t, asks("SET a 1"), slow, asks("GET a"), says("$-1"), asks("LPUSH a"), says("-ERR wrong number"))
	d.read(t)
	var got []string
	for _, e := range d.events {
		got = append(got, fmt.Sprintf("%v %s %v", e.Kind, d.name(t, e.Key), e.Latency))
	}
	if diff := cmp.Diff([]string{"slow set a 5ms", "failed lpush a ERR 1ms"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLatencyIsQueueServiceAndTransfer(t *testing.T) {
	d := newDriven(t)
	d.next(t)
	d.say(t, asks("GET a", "LRANGE l 0 -1"), says("$1", "x", "*2", "$1", "a"), says("$1", "b"))
	got := map[string][4]int64{}
	d.read(t)
	for c := range d.family.Counts() {
		if c.Calls > 0 {
			got[d.name(t, c.Key)] = [4]int64{c.Latency.Milliseconds(), c.Queue.Milliseconds(), c.Service.Milliseconds(), c.Transfer.Milliseconds()}
		}
	}
	want := map[string][4]int64{"get a": {1, 0, 1, 0}, "lrange l": {2, 1, 0, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNamesOfCommandsAreEachSaidOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range names()[1:] {
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
	}
	states := map[event.State]bool{}
	for word, state := range event.Words() {
		if got := state.String(); got != word || states[state] {
			t.Errorf("%s is %s", word, got)
		}
		states[state] = true
	}
}

func TestAPatternShowsNoValue(t *testing.T) {
	for key, want := range map[string]string{
		"user:123:cart": "user:*:cart", "user123": "user*", "9f86d081": "*", "v2beta": "*", "a b": "a b", "": "", "1": "*", "1:2": "*:*", "{user1}.x": "{user*}.x",
		"\x00\x01": "*", "\xc3\xbcser": "*", "abcdefghijklmnopqrstuvwxyzabcdefgh": "*", "key:000000000042": "key:*",
	} {
		if got := pattern(key, len(key)); got != want {
			t.Errorf("%q is %q, want %q", key, got, want)
		}
	}
}
