package query

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/aggregate"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// say drives pieces as they are, on the connection at hand.
func (d *driven) say(t testing.TB, pieces ...piece) {
	t.Helper()
	for _, p := range pieces {
		d.now += p.after
		d.drive(t, p.what, p.bytes)
	}
}

// only is the one key of a container that has calls.
func (d *driven) only(t *testing.T) event.Counts {
	t.Helper()
	var found []event.Counts
	for c := range d.family.Counts() {
		if c.Key.Cgroup == d.cgroup && c.Calls > 0 {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d keys were counted: %+v", len(found), found)
	}
	return found[0]
}

func TestTimesAndBytesOfAPipeline(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	ask := asks(parse("", "SELECT $1"), bind("", ""), execute(""), bind("", ""), execute(""), syncs())
	begun := says(parsed(), bound(), row("1"))
	rest := says(row("2"), done("SELECT 2"))
	last := says(bound(), done("SELECT 0"), ready())
	begun.after, rest.after, last.after = 3*time.Millisecond, 5*time.Millisecond, 7*time.Millisecond
	d.say(t, ask, begun, rest, last)
	c := d.only(t)
	slots := c.Slots
	got := c
	got.Slots, got.Key, got.Place = [event.Buckets]uint64{}, event.Key{}, 0
	// The first waited 3 ms for its first byte and 5 ms more for its last; the second waited 8 ms for the first and took 7 ms.
	want := event.Counts{
		Calls: 2, Rows: 2, BytesIn: uint64(len(ask.bytes) - 5), BytesOut: uint64(len(begun.bytes) + len(rest.bytes) + len(last.bytes) - 6),
		Latency: 23 * time.Millisecond, Queue: 8 * time.Millisecond, Service: 10 * time.Millisecond, Transfer: 5 * time.Millisecond,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for slot, n := range slots {
		inside := func(l time.Duration) bool { return l > event.Bound(slot-1) && l <= event.Bound(slot) }
		if want := inside(8*time.Millisecond) || inside(15*time.Millisecond); want != (n == 1) {
			t.Errorf("slot up to %v: %d", event.Bound(slot), n)
		}
	}
}

func TestAStatementWaitsUntilTheServerIsReadyAgain(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	failed, again, last := says(failure("22012")), says(ready()), says(bound(), done("SELECT 0"), ready())
	failed.after, again.after, last.after = time.Millisecond, 4*time.Millisecond, 2*time.Millisecond
	d.say(t, asks(parse("", "SELECT $1"), bind("", ""), execute(""), syncs(), bind("", ""), execute(""), syncs()), failed, again, last)
	for c := range d.family.Counts() {
		if c.Calls > 0 && c.Key.State == 0 && (c.Queue != 5*time.Millisecond || c.Service != 2*time.Millisecond) {
			t.Errorf("it waited %v and took %v", c.Queue, c.Service)
		}
	}
}

func TestEveryLatencyFallsIntoItsSlot(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	var want [event.Buckets]uint64
	try := func(latency time.Duration) {
		ask, answer := asks(query("SELECT 1")), says(done("SELECT 1"), ready())
		answer.after = latency
		d.say(t, ask, answer)
		slot := 0
		for slot < event.Buckets-1 && latency > event.Bound(slot) {
			slot++
		}
		want[slot]++
	}
	for slot := range event.Buckets - 1 {
		// The kernel's side reckons in units of 2^-34 s, which at a microsecond are 0.01 %.
		bound := event.Bound(slot)
		try(bound - 1 - bound/1000)
		try(bound + 1 + bound/1000)
	}
	for n := range 9 { // where a bound is a number of nanoseconds, it belongs to the slot below it
		try(time.Second >> n)
	}
	for _, latency := range []time.Duration{0, 1, time.Microsecond, time.Minute, 68 * time.Second, time.Hour, 24 * time.Hour, math.MaxInt64 / 4} {
		try(latency)
	}
	if diff := cmp.Diff(want, d.only(t).Slots); diff != "" {
		t.Error(diff)
	}
}

func TestSlowAndFailedStatementsAreTold(t *testing.T) {
	d := newDriven(t)
	d.container(t)
	if err := d.family.Watch(Target{Cgroup: d.cgroup, Port: 5432, SlowNS: uint64(10 * time.Millisecond), Failed: true}); err != nil {
		t.Fatal(err)
	}
	d.say(t, startup()...)
	slow := says(row("1"), done("SELECT 1"), ready())
	slow.after = 10 * time.Millisecond
	quick := slow
	quick.after--
	d.say(t, asks(query("SELECT 1")), quick, asks(query("SELECT 1")), slow, asks(query("SELECT 1")), says(row("1"), failure("57014")), says(ready()))
	d.read(t)
	if len(d.events) != 2 {
		t.Fatalf("%d events: %+v", len(d.events), d.events)
	}
	at := d.now - time.Millisecond
	want := []event.Event{
		{
			Kind: event.Slow, PID: d.pid, At: at - 2*time.Millisecond, Latency: 10 * time.Millisecond, Service: 10 * time.Millisecond, Rows: 1, BytesIn: 14,
			BytesOut: uint64(len(slow.bytes) - 6),
		},
		{Kind: event.Failed, PID: d.pid, At: at, Latency: time.Millisecond, Service: time.Millisecond, Rows: 1, BytesIn: 14, BytesOut: uint64(len(says(row("1"), failure("57014")).bytes))},
	}
	for i := range d.events {
		if name := d.name(d.events[i].Key); name != "SELECT ?" {
			t.Errorf("event %d is of %s", i, name)
		}
		d.events[i].Key = event.Key{}
	}
	if diff := cmp.Diff(want, d.events, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestATextThatIsTooLongIsCutAndSaidToBe(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	text := "SELECT a FROM t WHERE b = '" + strings.Repeat("x", 20000) + "'"
	ask := asks(query(text))
	for n := range 3 {
		p := ask
		p.bytes = ask.bytes[n*8192 : min(len(ask.bytes), (n+1)*8192)]
		d.say(t, p)
	}
	d.say(t, says(done("SELECT 0"), ready()))
	batch, err := d.family.Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(batch.Events) != 1 || batch.Events[0].Text != text[:4096] || batch.Events[0].Whole != len(text) {
		t.Errorf("read %d events: %.200v", len(batch.Events), batch.Events)
	}
	// A text that differs behind the part that is copied is another statement.
	d.say(t, asks(query(text+" AND c")), says(done("SELECT 0"), ready()))
	prints := map[uint64]bool{}
	for c := range d.family.Counts() {
		if c.Key.Cgroup == d.cgroup && c.Calls > 0 {
			prints[c.Key.Print] = true
		}
	}
	if len(prints) != 2 {
		t.Errorf("%d fingerprints", len(prints))
	}
}

func TestWhatFindsNoPlaceIsCountedWithTheRest(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	for n := range d.family.kernel.Counted.MaxEntries() + 10 {
		d.say(t, asks(query(fmt.Sprintf("SELECT c%d FROM t", n))), says(done("SELECT 2"), ready()))
		if n%500 == 0 {
			d.read(t)
		}
	}
	d.say(t, asks(query("SELECT of_the_rest FROM t")), says(failure("42P01")), says(ready()))
	sums := map[bool]tally{}
	var failed uint64
	for c := range d.family.Counts() {
		if c.Key.State != 0 {
			failed += c.Calls
			continue
		}
		sum := sums[c.Key.Print == 0]
		sum.Calls += c.Calls
		sum.Rows += c.Rows
		sums[c.Key.Print == 0] = sum
	}
	all := uint64(d.family.kernel.Counted.MaxEntries() + 10)
	// Those of the rest themselves are among what is kept.
	rest := uint64(10 + d.family.kernel.Kept.MaxEntries())
	if diff := cmp.Diff(map[bool]tally{false: {all - rest, 2 * (all - rest)}, true: {rest, 2 * rest}}, sums); diff != "" {
		t.Error(diff)
	}
	if failed != 1 {
		t.Errorf("%d errors", failed)
	}
	if lost := d.lost(t)["keys"]; lost != rest+1 {
		t.Errorf("%d are said to have found no place, want %d", lost, rest+1)
	}
}

func TestATextThatFindsNoRoomInTheRingIsSentTheNextTime(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	long := strings.Repeat("x", 2000)
	var lost uint64
	for n := 0; lost == 0; n++ {
		d.say(t, asks(query(fmt.Sprintf("SELECT c%d, %s FROM t", n, long))), says(done("SELECT 2"), ready()))
		lost = d.lost(t)["texts"]
	}
	d.read(t)
	missing := func() (names int) {
		for c := range d.family.Counts() {
			if c.Key.Cgroup == d.cgroup && c.Calls > 0 && d.texts[c.Key.Print] == "" {
				names++
			}
		}
		return names
	}
	if got := missing(); got != 1 {
		t.Fatalf("%d statements have no text", got)
	}
	for n := range len(d.texts) + 1 {
		d.say(t, asks(query(fmt.Sprintf("SELECT c%d, %s FROM t", n, long))), says(done("SELECT 2"), ready()))
	}
	d.read(t)
	if got := missing(); got != 0 {
		t.Errorf("%d statements have no text", got)
	}
}

func TestAConnectionThatWasThereBeforeIsFollowedFromTheNextAnswerOn(t *testing.T) {
	d := newDriven(t)
	d.say(t, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	d.say(t, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	if c := d.only(t); c.Calls != 1 || d.name(c.Key) == "SELECT ?" {
		t.Errorf("counted %+v", c)
	}
	if diff := cmp.Diff(map[string]uint64{"unsynced": 1}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAConnectionThatSpeaksNonsenseIsFollowedAgain(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	d.say(t, piece{what: read, bytes: []byte("GET / HTTP/1.1\r\n")}, says(failure("08P01")), says(ready()), asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	if c := d.only(t); c.Calls != 1 {
		t.Errorf("counted %+v", c)
	}
	if diff := cmp.Diff(map[string]uint64{"framing": 1}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
}

// PostgreSQL 17 and later send a large row as it lies, in one write.
func TestARowOfManyMegabytesInOneWrite(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	large := says(row(strings.Repeat("x", 6<<20)), done("SELECT 1"), ready())
	d.say(t, asks(query("SELECT large FROM t")), large, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	got, _ := d.counts(t, "shop")
	want := map[string]tally{"SELECT large FROM t": {1, 1}, "SELECT ?": {1, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAWriteOfTooManyMessagesIsGivenUpUntilItsEnd(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	many := says(parsed())
	many.bytes = bytes.Repeat(many.bytes, 1<<22)
	many.bytes = append(many.bytes, says(done("SELECT 1")).bytes...)
	d.say(t, asks(query("SELECT a FROM t")), many, says(ready()), asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	got, _ := d.counts(t, "shop")
	if diff := cmp.Diff(map[string]tally{"SELECT ?": {1, 1}}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{"framing": 1}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAPasswordIsNoPartOfAStatement(t *testing.T) {
	d := newDriven(t)
	begun := startup()
	d.say(t, begun[0], says(&pgproto3.AuthenticationCleartextPassword{}), asks(&pgproto3.PasswordMessage{Password: "secret"}), begun[1])
	ask := asks(query("SELECT 1"))
	d.say(t, ask, says(row("1"), done("SELECT 1"), ready()))
	if c := d.only(t); c.BytesIn != uint64(len(ask.bytes)) {
		t.Errorf("%d bytes, want %d", c.BytesIn, len(ask.bytes))
	}
}

func TestConnectionsThatSpeakNoSQLAreLeftAlone(t *testing.T) {
	for sentence, pieces := range map[string][]piece{
		"a cancel request": {asks(&pgproto3.CancelRequest{ProcessID: 1, SecretKey: []byte{0, 0, 0, 2}}), {what: exit}},
		"replication": {
			asks(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "r", "replication": "true"}}),
			says(&pgproto3.AuthenticationOk{}, ready()), asks(query("IDENTIFY_SYSTEM")), says(row("1"), done("IDENTIFY_SYSTEM"), ready()),
			asks(query("START_REPLICATION")), says(&pgproto3.CopyBothResponse{}),
			{what: sent, bytes: []byte{0, 1, 2, 3}},
			{what: read, bytes: []byte{0, 1, 2, 3}},
			{what: exit},
		},
		"a client that is not let in": {
			startup()[0], says(&pgproto3.AuthenticationCleartextPassword{}), asks(&pgproto3.PasswordMessage{Password: "wrong"}), says(fatal("28P01")), {what: exit},
		},
		"a client that does not wait to be let in": {
			startup()[0], asks(query("SELECT 1"), parse("", "SELECT 2"), bind("", ""), execute(""), syncs()), says(fatal("53300")), {what: exit},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDriven(t)
			d.say(t, pieces...)
			if n := entries(t, d.family.kernel.Sessions) + entries(t, d.family.kernel.Texts); n > 0 {
				t.Errorf("%d sessions and texts are kept", n)
			}
			for c := range d.family.Counts() {
				if c.Calls > 0 {
					t.Errorf("counted %+v", c)
				}
			}
			if diff := cmp.Diff(map[string]uint64{}, d.lost(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAClientThatSaysThatItDoesNotReplicateIsCounted(t *testing.T) {
	for value, counted := range map[string]bool{
		"false": true, "F": true, "no": true, "off": true, "OF": true, "0": true, "true": false, "on": false, "1": false, "yes": false, "database": false,
	} {
		t.Run(value, func(t *testing.T) {
			d := newDriven(t)
			begun := startup()
			begun[0] = asks(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "ada", "replication": value}})
			d.say(t, begun...)
			d.say(t, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
			var calls uint64
			for c := range d.family.Counts() {
				calls += c.Calls
			}
			if (calls == 1) != counted || calls > 1 {
				t.Errorf("%d calls were counted", calls)
			}
		})
	}
}

func TestAClientThatAsksForTLSAndIsRefusedGoesOn(t *testing.T) {
	d := newDriven(t)
	d.say(t, asks(&pgproto3.SSLRequest{}), piece{what: sent, bytes: []byte{'N'}})
	d.say(t, startup()...)
	d.say(t, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	c := d.only(t)
	who, known, err := d.family.Session(c.Key.Who)
	if err != nil || !known {
		t.Fatal("nobody knows who spoke", err)
	}
	if diff := cmp.Diff(event.Session{User: "ada", Database: "shop"}, who); diff != "" || c.Calls != 1 {
		t.Errorf("%d calls, %s", c.Calls, diff)
	}
}

func TestHowAConnectionBeginsIsKnownByItsFirstBytes(t *testing.T) {
	ask, answer := asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready())
	begun := startup()
	for sentence, row := range map[string]struct {
		options Options
		pieces  []piece
		calls   uint64
		who     event.Session
		lost    map[string]uint64
	}{
		"a handshake of TLS, without a question, at the server's functions": {
			options: Options{BinariesAlone: true},
			pieces:  []piece{{what: read, bytes: []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}}, begun[0], begun[1], ask, answer},
			calls:   1, who: event.Session{User: "ada", Database: "shop"},
		},
		"a handshake of TLS, without a question": {
			pieces: []piece{{what: read, bytes: []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}}, begun[0], begun[1], ask, answer},
			calls:  1, who: event.Session{User: "ada", Database: "shop"},
		},
		"the rest of a message, which begins as a startup does": {
			pieces: []piece{{what: read, bytes: []byte{0, 0, 0, 1, 0, 0, 0, 1, 'x', 'y'}}, answer, ask, answer},
			calls:  1, lost: map[string]uint64{"unsynced": 1},
		},
		"the rest of a message, which has no more": {
			pieces: []piece{{what: read, bytes: []byte{0}}, {what: read, bytes: []byte{'Q', 0, 0, 0}}, answer, ask, answer},
			calls:  1, lost: map[string]uint64{"framing": 1},
		},
		"the rest of a record of TLS": {
			pieces: []piece{{what: read, bytes: []byte{0x9a, 0x11, 0x42, 7}}, {what: read, bytes: []byte{0x17, 3, 3, 0, 0x20}}, ask, answer, ask, answer},
			calls:  1, lost: map[string]uint64{"unsynced": 2}, // the record's and the statement's, which the server's functions feed
		},
		"a startup that is longer than it may be": {
			pieces: []piece{{what: read, bytes: []byte{0, 0, 0x30, 0, 0, 3, 0, 0}}, answer, ask, answer},
			calls:  1, lost: map[string]uint64{"unsynced": 1},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := drivenWith(t, row.options)
			d.say(t, row.pieces...)
			c := d.only(t)
			if who := d.session(t, c.Key.Who); who != row.who || c.Calls != row.calls {
				t.Errorf("%d calls by %v, want %d by %v", c.Calls, who, row.calls, row.who)
			}
			want := row.lost
			if want == nil {
				want = map[string]uint64{}
			}
			if diff := cmp.Diff(want, d.lost(t)); diff != "" {
				t.Errorf("lost: %s", diff)
			}
		})
	}
}

func TestTwoTextsInPiecesAtOnePlaceAreBothCounted(t *testing.T) {
	d := newDriven(t)
	first := d.pid
	second := first + 32 // as many places as there are
	texts := map[uint32][]byte{first: asks(query("SELECT a FROM t")).bytes, second: asks(query("SELECT b FROM t")).bytes}
	for _, pid := range []uint32{first, second} {
		d.pid = pid
		d.say(t, startup()...)
		d.say(t, piece{what: read, bytes: texts[pid][:12]})
	}
	for _, pid := range []uint32{first, second} {
		d.pid = pid
		d.say(t, piece{what: read, bytes: texts[pid][12:]}, says(done("SELECT 1"), ready()))
	}
	// Once the place is free, it serves the next.
	d.pid = second
	d.say(t, piece{what: read, bytes: asks(query("SELECT c FROM t")).bytes[:12]}, piece{what: read, bytes: asks(query("SELECT c FROM t")).bytes[12:]}, says(done("SELECT 1"), ready()))
	got, _ := d.counts(t, "shop")
	want := map[string]tally{"SELECT a FROM t": {1, 1}, "text not seen": {1, 1}, "SELECT c FROM t": {1, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{"texts": 1}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
}

// The node's bound for kernel memory is 32 MiB. What is allocated as it comes is reckoned with 100 containers of 25 connections each.
func TestTheMapsStayInTheirBound(t *testing.T) {
	d := newDriven(t)
	k := &d.family.kernel
	var fixed uint64
	for _, m := range []*ebpf.Map{k.Targets, k.Conns, k.Blank, k.Spill, k.Names, k.Raws, k.Texts, k.Scraps, k.Literals, k.NoLiteral, k.Sessions, k.Counted, k.Places, k.Vacant, k.Kept, k.Records, k.Told, k.Losses} {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		size, known := info.Memlock()
		if !known {
			t.Fatalf("the kernel does not tell the size of %s", m)
		}
		t.Logf("%s: %d KiB", info.Name, size>>10)
		if m == k.Conns || m == k.Spill || m == k.Sessions || m == k.Literals {
			continue
		}
		fixed += size
	}
	if got, want := len(reasons()), int(k.Losses.MaxEntries()); got != want {
		t.Errorf("%d reasons for losses have names, want %d", got, want)
	}
	const header = 64 // of an entry of a hash
	conns := uint64(100 * 25 * (k.Conns.ValueSize() + header))
	rest := uint64(k.Spill.MaxEntries()*(k.Spill.ValueSize()+k.Spill.KeySize()+header) + k.Literals.MaxEntries()*(k.Literals.ValueSize()+header) + k.Sessions.MaxEntries()*(k.Sessions.ValueSize()+header))
	t.Logf("fixed %d KiB, connections %d KiB, deep pipelines, sessions and literals at most %d KiB", fixed>>10, conns>>10, rest>>10)
	if sum := fixed + conns + rest; sum > 32<<20 {
		t.Errorf("%d KiB", sum>>10)
	}
}

func TestTheTextOfAPreparedStatementThatWasForgottenIsLearnedAgain(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	run := func(name string) []piece {
		return []piece{asks(bind("", name), execute(""), syncs()), reports("SELECT " + name), says(bound(), done("SELECT 1"), ready())}
	}
	for _, name := range []string{"kept", "lost"} {
		d.say(t, asks(parse(name, "SELECT "+name), syncs()), says(parsed(), ready()))
		d.say(t, run(name)...)
	}
	d.read(t)
	for of, text := range d.texts {
		if text == "SELECT lost" {
			delete(d.texts, of)
		}
	}
	if err := d.family.ForgetTexts(maps.Keys(d.texts)); err != nil {
		t.Fatal(err)
	}
	clear(d.texts)
	for range 3 {
		d.say(t, slices.Concat(run("kept"), run("lost"))...)
	}
	d.read(t)
	if diff := cmp.Diff([]string{"SELECT lost"}, slices.Collect(maps.Values(d.texts))); diff != "" {
		t.Errorf("texts: %s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"prepared": 1}, d.lost(t)); diff != "" {
		t.Errorf("lost: %s", diff)
	}
}

// What a reader forgets is told again when it next comes, and what it keeps it knows for good.
func TestAStatementThatComesAgainAndAgainKeepsItsNameWhateverElseComes(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	names := aggregate.NewNames()
	ask := func(text string) { d.say(t, asks(query(text)), says(done("SELECT 1"), ready())) }
	often := d.print(t, "SELECT often")
	take := func() {
		placed := map[uint64]bool{}
		for c := range d.family.Counts() {
			placed[c.Key.Print] = true
		}
		if names.Full() && names.Drop(placed) {
			if err := d.family.ForgetTexts(names.Known()); err != nil {
				t.Fatal(err)
			}
		}
		for more := true; more; {
			batch, err := d.family.Read()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range batch.Events {
				names.Learn(e)
			}
			more = len(batch.Events) > 0
		}
		d.tend(t)
	}
	const texts, each = 40000, 500
	for n := range texts {
		ask(fmt.Sprintf("SELECT c%d", n))
		if n%each == 0 {
			ask("SELECT often")
			take()
			if _, known := names.Of(event.Key{Print: often}); !known {
				t.Fatalf("after %d other texts nobody knows it", n)
			}
		}
	}
	if names.Dropped() == 0 {
		t.Fatal("there was room for all")
	}
	for n := range texts / each { // the first ones were forgotten, some others refused
		text := fmt.Sprintf("SELECT c%d", each*n)
		ask(text)
		take()
		if _, known := names.Of(event.Key{Print: d.print(t, text)}); !known {
			t.Fatalf("%q came again, and nobody knows it", text)
		}
	}
}
