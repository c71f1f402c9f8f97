package query

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// account adds up differences between two passes, place by place, as a reader of counts does.
type account struct {
	last  map[uint64]event.Counts
	calls map[bool]uint64 // by whether they found no place of their own
}

func (a *account) pass(f *Family) {
	if a.calls == nil {
		a.calls = map[bool]uint64{}
	}
	now := map[uint64]event.Counts{}
	for c := range f.Counts() {
		now[c.Place] = c
		a.calls[c.Key.Print == 0] += c.Calls - a.last[c.Place].Calls
	}
	a.last = now
}

func (d *driven) tend(t *testing.T) {
	t.Helper()
	if err := d.family.Tend(); err != nil {
		t.Fatal(err)
	}
}

// hello is how a connection of this user begins.
func hello(user string) []piece {
	begun := startup()
	begun[0] = asks(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": user, "database": "shop"}})
	return begun
}

func entries(t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestContainersComeAndGo(t *testing.T) {
	d := newDriven(t)
	f := d.family
	a := &account{}
	const rounds, statements = 10000, 2
	for n := range rounds {
		d.container(t)
		d.say(t, hello(fmt.Sprintf("user%d", n))...)
		d.say(t, asks(query("SELECT 1")), says(done("SELECT 1"), ready()), asks(query(fmt.Sprintf("SELECT c%d", n))), says(failure("42703")), says(ready()), piece{what: exit})
		if err := f.Unwatch(d.cgroup); err != nil {
			t.Fatal(err)
		}
		if n%200 == 0 {
			a.pass(f)
			d.tend(t)
			d.read(t)
		}
	}
	if err := f.Unwatch(1); err != nil { // of newDriven
		t.Fatal(err)
	}
	for range 3 {
		a.pass(f)
		d.tend(t)
	}
	if diff := cmp.Diff(map[bool]uint64{false: rounds * statements, true: 0}, a.calls); diff != "" {
		t.Errorf("calls: %s", diff)
	}
	if room := f.room(); room != len(f.tended.places) {
		t.Errorf("%d of %d places are vacant", room, len(f.tended.places))
	}
	for _, m := range []*ebpf.Map{f.kernel.Targets, f.kernel.Conns, f.kernel.Places, f.kernel.Sessions, f.kernel.Spill} {
		if n := entries(t, m); n > 0 {
			t.Errorf("%d entries are left in %s", n, m)
		}
	}
	if diff := cmp.Diff(map[string]uint64{}, d.lost(t)); diff != "" {
		t.Errorf("lost: %s", diff)
	}
}

func TestTextsThatNeverComeAgainMakeRoomForOthers(t *testing.T) {
	d := newDriven(t)
	a := &account{}
	d.say(t, startup()...)
	places := len(d.family.tended.places)
	for n := range 3 * places {
		d.say(t, asks(query(fmt.Sprintf("SELECT c%d", n))), says(done("SELECT 1"), ready()))
		if n%500 == 0 {
			d.say(t, asks(query("SELECT often")), says(done("SELECT 1"), ready()))
			a.pass(d.family)
			d.tend(t)
			d.read(t)
		}
	}
	a.pass(d.family)
	often := uint64(1 + (3*places-1)/500)
	if diff := cmp.Diff(map[bool]uint64{false: uint64(3*places) + often, true: 0}, a.calls); diff != "" {
		t.Errorf("calls: %s", diff)
	}
	var kept bool
	for _, c := range a.last {
		kept = kept || c.Calls == often
	}
	if !kept {
		t.Error("the statement that came again and again lost its place")
	}
	if diff := cmp.Diff(map[string]uint64{}, d.lost(t)); diff != "" {
		t.Errorf("lost: %s", diff)
	}
}

func TestPlacesAreTakenBackWhileStatementsAreCounted(t *testing.T) {
	d := newDriven(t)
	a := &account{}
	const workers, each = 3, 8000
	var all sync.WaitGroup
	for n := range workers {
		d.pid++
		one := &driven{ledger: d.ledger, pid: d.pid, cgroup: d.cgroup, now: d.now}
		one.room(t, 1<<16)
		all.Go(func() {
			one.say(t, startup()...)
			for m := range each {
				one.say(t, asks(query(fmt.Sprintf("SELECT c%d_%d", n, m))), says(done("SELECT 1"), ready()), asks(query(fmt.Sprintf("SELECT c%d", m/100))), says(done("SELECT 1"), ready()))
			}
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	for going := true; going; {
		select {
		case <-over:
			going = false
		case <-time.After(20 * time.Millisecond):
		}
		a.pass(d.family)
		d.tend(t)
		d.read(t)
	}
	a.pass(d.family)
	// How many find no place of their own is a matter of who is quicker.
	if got, want := a.calls[true]+a.calls[false], uint64(2*workers*each); got != want {
		t.Errorf("%d calls, want %d; lost %v", got, want, d.lost(t))
	}
	var taken uint32
	for _, p := range d.family.tended.places {
		taken += p.generation
	}
	t.Logf("%d places were taken back, %d calls found none; lost %v", taken, a.calls[true], d.lost(t))
	if taken == 0 {
		t.Error("no place was taken back")
	}
}

func TestAPlaceIsKeptUntilItsEndWasTold(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	one := []piece{asks(query("SELECT 1")), says(done("SELECT 1"), ready())}
	d.say(t, one...)
	if err := d.family.Unwatch(d.cgroup); err != nil {
		t.Fatal(err)
	}
	d.tend(t) // before anybody read
	d.tend(t)
	for c := range d.family.Counts() {
		if c.Calls > 0 {
			break // this pass is not to its end
		}
	}
	a := &account{}
	a.pass(d.family)
	d.tend(t)
	if a.calls[false] != 1 {
		t.Errorf("%d calls were told", a.calls[false])
	}
	if room := d.family.room(); room != len(d.family.tended.places) {
		t.Errorf("%d places are vacant", room)
	}
	// The same container, user and text begin anew, in another place.
	if err := d.family.Watch(Target{Cgroup: d.cgroup, Port: 5432}); err != nil {
		t.Fatal(err)
	}
	d.say(t, one...)
	a.pass(d.family)
	if a.calls[false] != 2 {
		t.Errorf("%d calls were told", a.calls[false])
	}
}

func TestAConnectionLetsGoOfThePlaceThatItCountedInLast(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	one := []piece{asks(query("SELECT 1")), says(done("SELECT 1"), ready())}
	d.say(t, one...)
	a := &account{}
	if err := d.family.Unwatch(d.cgroup); err != nil {
		t.Fatal(err)
	}
	d.tend(t) // takes its place
	if err := d.family.Watch(Target{Cgroup: d.cgroup, Port: 5432}); err != nil {
		t.Fatal(err)
	}
	a.pass(d.family) // tells it for the last time
	d.say(t, one...)
	d.tend(t) // makes it vacant
	d.say(t, one...)
	a.pass(d.family)
	if a.calls[false] != 3 {
		t.Errorf("%d calls were told, want 3", a.calls[false])
	}
}

func TestWatchSaysWhenThereIsNoRoom(t *testing.T) {
	d := newDriven(t)
	most := uint64(d.family.kernel.Targets.MaxEntries())
	for n := uint64(1); n <= most; n++ {
		if err := d.family.Watch(Target{Cgroup: n}); err != nil {
			t.Fatal(err)
		}
	}
	want := "measure cgroup 1025: no place left: 1024 of 1024 containers are measured, and 2050 of 8192 places for counts are taken: try again after Tend"
	if err := d.family.Watch(Target{Cgroup: most + 1}); message(err) != want {
		t.Errorf("%v", err)
	}
}

func TestManyStatementsOfOneContainerKeepNoOtherFromBeingMeasured(t *testing.T) {
	d := newDriven(t)
	d.say(t, startup()...)
	flood := func() {
		for n := range len(d.family.tended.places) {
			d.say(t, asks(query(fmt.Sprintf("SELECT c%d", n))), says(done("SELECT 1"), ready()))
		}
	}
	flood()
	for n := range uint64(2) {
		d.container(t)
		d.say(t, startup()...)
		d.say(t, asks(query(fmt.Sprintf("SELECT %d", n))), says(done("SELECT 1"), ready()))
		if c := d.only(t); c.Calls != 1 || c.Key.Print != 0 {
			t.Errorf("counted %+v, want one call among what has no place of its own", c)
		}
	}
	// What is given back goes there first.
	if err := d.family.Unwatch(d.cgroup); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		(&account{}).pass(d.family)
		d.tend(t)
	}
	if n := d.family.kernel.Kept.MaxEntries(); !d.full(t, n) {
		t.Errorf("fewer than %d places are kept", n)
	}
}

// full takes what is kept for containers, and says whether it was as much.
func (d *driven) full(t *testing.T, want uint32) bool {
	t.Helper()
	var n, at uint32
	for d.family.kernel.Kept.LookupAndDelete(nil, &at) == nil {
		n++
	}
	return n == want
}

func TestAConnectionOfAContainerThatIsMeasuredNoLongerIsForgotten(t *testing.T) {
	s := newServer(t)
	f := measure(t, s)
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), s.URL(sslmode, "postgres"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			run := func() {
				if _, err := conn.Exec(t.Context(), "SELECT "+sslmode+" FROM (VALUES (1)) v ("+sslmode+")", pgx.QueryExecModeExec); err != nil {
					t.Fatal(err)
				}
			}
			run()
			called(f, 1)
			a := &account{}
			a.pass(f)
			if err := f.Unwatch(s.cgroup); err != nil {
				t.Fatal(err)
			}
			run()
			for deadline := time.Now().Add(5 * time.Second); entries(t, f.kernel.Conns) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d connections are left", entries(t, f.kernel.Conns))
				}
			}
			before := a.calls[false]
			a.pass(f)
			if a.calls[false] != before {
				t.Errorf("%d calls, want %d", a.calls[false], before)
			}
			if err := f.Watch(Target{Cgroup: s.cgroup, Port: uint16(s.Port)}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
