package query

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// change makes the connection at hand what it would be after a long life.
func (d *driven) change(t *testing.T, how func(*kernelConn)) {
	t.Helper()
	var c kernelConn
	if err := d.family.kernel.Conns.Lookup(d.pid, &c); err != nil {
		t.Fatal(err)
	}
	how(&c)
	if err := d.family.kernel.Conns.Put(d.pid, c); err != nil {
		t.Fatal(err)
	}
}

func TestTheNumbersOfUnitsWrap(t *testing.T) {
	const units = 100
	for _, before := range []uint32{1, 8, 16, 50, units} {
		t.Run(fmt.Sprintf("%d before", before), func(t *testing.T) {
			d := newDriven(t)
			d.say(t, startup()...)
			d.change(t, func(c *kernelConn) { c.Head, c.Tail = -before, -before })
			d.say(t, asks(append(append([]pgproto3.FrontendMessage{parse("s", "INSERT INTO t VALUES ($1)")}, repeat(units, bind("", "s"), execute(""))...), syncs())...),
				says(append(append([]pgproto3.BackendMessage{parsed()}, repeat(units, bound(), done("INSERT 0 1"))...), ready())...))
			got, _ := d.counts(t, "shop")
			if diff := cmp.Diff(map[string]tally{"INSERT INTO t VALUES (?)": {units, units}}, got); diff != "" {
				t.Error(diff)
			}
			if n := entries(t, d.family.kernel.Spill); n > 0 {
				t.Errorf("%d units are left", n)
			}
			if diff := cmp.Diff(map[string]uint64{}, d.lost(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAStatementOfMoreThanFourGigabytes(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	const most = math.MaxUint32 - 1
	ask, data := asks(query("COPY t FROM STDIN")), asks(&pgproto3.CopyData{Data: []byte("1\n2\n")})
	d.say(t, ask, says(&pgproto3.CopyInResponse{}), data)
	d.change(t, func(c *kernelConn) { c.In.Bytes += most; c.Out.Bytes += most })
	d.say(t, data, asks(&pgproto3.CopyDone{}), says(done("COPY 4"), ready()))
	c := d.only(t)
	if want := uint64(most + len(ask.bytes) + 2*len(data.bytes) + 5); c.BytesIn != want {
		t.Errorf("%d bytes were read, want %d", c.BytesIn, want)
	}
	if want := uint64(most + len(says(&pgproto3.CopyInResponse{}, done("COPY 4")).bytes)); c.BytesOut != want {
		t.Errorf("%d bytes were written, want %d", c.BytesOut, want)
	}
}

func TestDifferencesOfSumsThatWrapAreRight(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	one := []piece{asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready())}
	d.say(t, one...)
	slot := 0
	for i, n := range d.only(t).Slots {
		if n > 0 {
			slot = i
		}
	}
	for i := range d.family.counted.Values {
		if c := d.family.counted.Values[i]; c.Calls > 0 {
			c.Calls, c.Slots[slot], c.LatencyNs, c.ServiceNs = math.MaxUint32, math.MaxUint32, math.MaxUint64-5, math.MaxInt64-5
			if err := d.family.kernel.Counted.Put(uint32(i), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := d.only(t)
	d.say(t, one...)
	after := d.only(t)
	if after.Calls != 1<<32 || after.Slots[slot] != 1<<32 {
		t.Errorf("%d calls, %d of them in their slot", after.Calls, after.Slots[slot])
	}
	if latency, service := after.Latency-before.Latency, after.Service-before.Service; latency != time.Millisecond || service != time.Millisecond {
		t.Errorf("latency grew by %v, service by %v", latency, service)
	}
}

func TestAPipelineThatIsTooDeepIsGivenUpUntilItsAnswerEnds(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	d.say(t, asks(append(repeat(1<<16+1, execute("")), syncs())...), says(done("SELECT 1"), ready()))
	d.say(t, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	if c := d.only(t); d.name(c.Key) != "text not seen" || c.Calls != 1 {
		t.Errorf("counted %+v", c)
	}
	const own = 16
	lost := uint64(1<<16-own-d.family.kernel.Spill.MaxEntries()) + 1
	if diff := cmp.Diff(map[string]uint64{"units": lost}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
	if n := entries(t, d.family.kernel.Spill); n > 0 {
		t.Errorf("%d units are left", n)
	}
}

func TestUnitsThatFindNoMemoryAreCountedWithTheRest(t *testing.T) {
	d := newDriven(t)
	const each = 40000
	all := append(append([]pgproto3.FrontendMessage{parse("", "SELECT $1")}, repeat(each, bind("", ""), execute(""))...), syncs())
	for range 2 {
		d.pid++
		d.say(t, startup()...)
		d.say(t, asks(all...))
	}
	for range 2 {
		d.say(t, says(append(append([]pgproto3.BackendMessage{parsed()}, repeat(each, bound(), done("SELECT 1"))...), ready())...))
		d.pid--
	}
	got, _ := d.counts(t, "shop")
	lost := d.lost(t)["units"]
	// Those that found memory: each connection's own, and the hash. The last of those that did not are the Syncs.
	const syncs = 2
	want := map[string]tally{"SELECT ?": {2*each - lost + syncs, 2*each - lost + syncs}, "not known": {lost - syncs, lost - syncs}}
	if diff := cmp.Diff(want, got); diff != "" || lost < 10000 {
		t.Errorf("lost %d: %s", lost, diff)
	}
	if n := entries(t, d.family.kernel.Spill); n > 0 {
		t.Errorf("%d units are left", n)
	}
}

func TestSessionsAndConnectionsThatFindNoRoom(t *testing.T) {
	d := newDriven(t)
	sessions, conns := d.family.kernel.Sessions.MaxEntries(), d.family.kernel.Conns.MaxEntries()
	for n := range conns {
		d.pid++
		d.say(t, hello(fmt.Sprintf("user%d", min(n, sessions)))...)
	}
	d.say(t, asks(query("SELECT 1")), says(row("1"), done("SELECT 1"), ready()))
	if c := d.only(t); c.Key.Who != 0 {
		t.Errorf("counted %+v", c.Key)
	}
	d.pid++
	if ret := d.try(t, read, nil); ret != 1 {
		t.Errorf("a connection found room: %d", ret)
	}
	want := map[string]uint64{"sessions": uint64(conns - sessions), "connections": 1}
	if diff := cmp.Diff(want, d.lost(t)); diff != "" {
		t.Error(diff)
	}
	if _, known, err := d.family.Session(event.Key{}.Who); err != nil || known {
		t.Errorf("session 0 is known: %v, %v", known, err)
	}
}
