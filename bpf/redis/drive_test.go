package redis

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// ledger follows what a family counts.
type ledger struct {
	family *Family
	texts  map[uint64]string
	who    map[uint64]event.Session // each look-up is a system call that bars programs from its CPU
	events []event.Event
}

func newLedger(f *Family) *ledger {
	return &ledger{family: f, texts: map[uint64]string{}, who: map[uint64]event.Session{}}
}

func (l *ledger) read(t testing.TB) {
	t.Helper()
	for {
		batch, err := l.family.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Events {
			if e.Kind == event.Text {
				l.texts[e.Key.Print] = e.Text
			} else {
				l.events = append(l.events, e)
			}
		}
		if len(batch.Events) < batchMost {
			return
		}
	}
}

func (l *ledger) session(t testing.TB, who uint64) event.Session {
	t.Helper()
	if s, ok := l.who[who]; ok {
		return s
	}
	s, known, err := l.family.Session(who)
	if err != nil {
		t.Fatal(err)
	}
	if known {
		l.who[who] = s
	}
	return s
}

// name is the text of what a key counts, by whom unless that is the default user in database 0, and its error.
func (l *ledger) name(t testing.TB, k event.Key) string {
	t.Helper()
	name, ok := l.texts[k.Print]
	switch {
	case k.Print == 0:
		name = "other"
	case !ok:
		name = "text not seen"
	}
	if s := l.session(t, k.Who); s.User != "default" || s.Database != "0" {
		name += " by " + s.User + "/" + s.Database
	}
	if k.State != 0 {
		name += " " + k.State.String()
	}
	return name
}

// calls of everything that was counted, by its name.
func (l *ledger) calls(t testing.TB) map[string]uint64 {
	t.Helper()
	l.read(t)
	all := map[string]uint64{}
	for c := range l.family.Counts() {
		if c.Calls > 0 {
			all[l.name(t, c.Key)] += c.Calls
		}
	}
	return all
}

// lost are the reasons that were met.
func (l *ledger) lost(t testing.TB) map[string]uint64 {
	t.Helper()
	lost, err := l.family.Lost()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(lost, func(_ string, n uint64) bool { return n == 0 })
	return lost
}

// driven is a family that is fed by tests, with bytes and times of theirs: it is attached to nothing.
type driven struct {
	*ledger
	memory []byte // that the programs read, as they read a server's
	pid    uint32 // of the connection at hand
	cgroup uint64
	now    time.Duration
}

func newDriven(t testing.TB) *driven {
	t.Helper()
	if _, ok := t.(*testing.T); ok {
		observed.NeedsRoot(t.(*testing.T))
	}
	f, err := Load(Options{drive: true})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	memory, err := unix.Mmap(-1, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	d := &driven{ledger: newLedger(f), now: time.Second, memory: memory, cgroup: 1, pid: 1}
	if err := f.Watch(Target{Cgroup: d.cgroup, Port: 6379}); err != nil {
		t.Fatal(err)
	}
	return d
}

// What a program is driven to do.
const (
	read = iota
	sent
	closed
	accepted
)

func (d *driven) drive(t testing.TB, what uint64, b []byte) {
	t.Helper()
	if len(b) > len(d.memory) {
		t.Fatalf("%d bytes are too many", len(b))
	}
	copy(d.memory, b)
	ret, err := d.family.kernel.Drive.Run(&ebpf.RunOptions{Context: [6]uint64{
		what, uint64(d.pid), d.cgroup, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(d.memory)))), uint64(len(b)), uint64(d.now),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if ret != 0 {
		t.Fatalf("drive: %d", ret)
	}
}

// piece is what one side says at one time.
type piece struct {
	what  uint64
	bytes []byte
	after time.Duration // what came before
}

// asks are commands as clients send them: words between spaces, each line one. A word in quotes of Go is what they say.
func asks(lines ...string) piece {
	p := piece{what: read, after: time.Millisecond}
	for _, line := range lines {
		p.bytes = append(p.bytes, command(strings.Fields(line)...)...)
	}
	return p
}

func command(words ...string) []byte {
	b := []byte("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, word := range words {
		if text, err := strconv.Unquote(word); err == nil && strings.HasPrefix(word, `"`) {
			word = text
		}
		b = append(b, "$"+strconv.Itoa(len(word))+"\r\n"+word+"\r\n"...)
	}
	return b
}

// types are the very bytes that a client sends, and says those that a server does.
func types(text string) piece {
	return piece{what: read, after: time.Millisecond, bytes: []byte(text)}
}

func says(lines ...string) piece {
	return piece{what: sent, after: time.Millisecond, bytes: []byte(strings.Join(lines, "\r\n") + "\r\n")}
}

// say lets pieces happen on the connection at hand.
func (d *driven) say(t testing.TB, pieces ...piece) {
	t.Helper()
	for _, p := range pieces {
		d.now += p.after
		d.drive(t, p.what, p.bytes)
	}
}

// next is another connection, which was accepted.
func (d *driven) next(t testing.TB) {
	t.Helper()
	if err := d.family.kernel.Conns.Delete(kernelConnKey{Pid: d.pid}); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	d.pid++
	d.drive(t, accepted, nil)
}

// reset empties the counts, which only a test that counts alone may do.
func (d *driven) reset(t testing.TB) {
	t.Helper()
	for i, c := range d.family.counted.Values {
		if c.Live == 0 || c.Calls == 0 {
			continue
		}
		if err := d.family.kernel.Counted.Put(uint32(i), kernelCounts{Key: c.Key, Live: 1}); err != nil {
			t.Fatal(err)
		}
	}
}
