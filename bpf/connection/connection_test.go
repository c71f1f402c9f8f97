package connection

import (
	"io"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tally is what was counted of a client.
type tally struct{ Found, Opened, Closed, Reset, TimedOut, Refused, Open, In, Out uint64 }

func tallies(t *testing.T, f *Family) map[string]tally {
	t.Helper()
	if err := f.Look(); err != nil {
		t.Fatal(err)
	}
	all := map[string]tally{}
	for c := range f.Counts() {
		name := "rest"
		if c.Client.IsValid() {
			name = c.Client.String()
		}
		of := all[name]
		of.Found, of.Opened, of.Closed, of.Reset, of.TimedOut = of.Found+c.Found, of.Opened+c.Opened, of.Closed+c.Closed, of.Reset+c.Reset, of.TimedOut+c.TimedOut
		of.Refused += c.Refused
		of.Open, of.In, of.Out = of.Open+c.Open(), of.In+c.BytesIn, of.Out+c.BytesOut
		all[name] = of
	}
	maps.DeleteFunc(all, func(_ string, t tally) bool { return t == tally{} })
	return all
}

// await a count: the server's side of a connection ends a moment after the client's.
func await(t *testing.T, f *Family, want map[string]tally) {
	t.Helper()
	var got map[string]tally
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = tallies(t, f); cmp.Equal(want, got) {
			return
		}
	}
	t.Errorf("-want +got\n%s", cmp.Diff(want, got))
}

// nothingLost is checked at the end of tests that lose nothing.
func nothingLost(t *testing.T, f *Family) {
	t.Helper()
	lost, err := f.Lost()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(lost, func(_ string, n uint64) bool { return n == 0 })
	if len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

func TestAConnectionIsCountedByItsClient(t *testing.T) {
	s, other := newEcho(t), newEcho(t)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	other.dial(t, "127.0.0.1").Close()                                          // of a server that is not measured
	startEcho(t, s.group, s.cgroup, "127.0.0.1:0").dial(t, "127.0.0.1").Close() // beside it in its container, on another port
	one, two := s.dial(t, "127.0.0.2"), s.dial(t, "127.0.0.3")
	s.dial(t, "127.0.0.3").Close()
	say(t, one, 100)
	say(t, two, 20<<10)
	await(t, f, map[string]tally{
		"127.0.0.2": {Opened: 1, Open: 1, In: 100, Out: 100},
		"127.0.0.3": {Opened: 2, Closed: 1, Open: 1, In: 20 << 10, Out: 20 << 10},
	})
	// The client's FIN is no byte that it sent.
	one.Close()
	await(t, f, map[string]tally{
		"127.0.0.2": {Opened: 1, Closed: 1, In: 100, Out: 100},
		"127.0.0.3": {Opened: 2, Closed: 1, Open: 1, In: 20 << 10, Out: 20 << 10},
	})
	nothingLost(t, f)
}

func TestHowAConnectionEnds(t *testing.T) {
	s := newEcho(t)
	for sentence, row := range map[string]struct {
		end  func(t *testing.T, c *net.TCPConn)
		want tally
	}{
		"the client closes": {func(t *testing.T, c *net.TCPConn) { c.Close() }, tally{Opened: 1, Closed: 1, In: 10, Out: 10}},
		"the client closes, and answers with a reset": {func(t *testing.T, c *net.TCPConn) {
			if _, err := c.Write(make([]byte, 64<<10)); err != nil { // its echo comes when nobody reads any more
				t.Error(err)
			}
			closeInOrder(t, c)
		}, tally{Opened: 1, Closed: 1, In: 10 + 64<<10}},
		"the client says its last word": {closeWrite, tally{Opened: 1, Closed: 1, In: 10, Out: 10}},
		"the client resets": {func(t *testing.T, c *net.TCPConn) {
			if err := c.SetLinger(0); err != nil {
				t.Error(err)
			}
			c.Close()
		}, tally{Opened: 1, Reset: 1, In: 10, Out: 10}},
		"the server resets": {func(t *testing.T, c *net.TCPConn) {
			if _, err := io.WriteString(c, "reset"); err != nil {
				t.Error(err)
			}
			_, _ = c.Read(make([]byte, 1))
		}, tally{Opened: 1, Reset: 1, In: 15, Out: 10}},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := attached(t)
			f.watches(t, s.cgroup, s.port)
			c := s.dial(t, "127.0.0.2")
			say(t, c, 10)
			row.end(t, c)
			got := ended(t, f)
			if row.want.Out == 0 {
				got.Out = 0 // as much as had been sent by then
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			nothingLost(t, f)
		})
	}
}

// ended waits until no connection of the one client is open.
func ended(t *testing.T, f *Family) (got tally) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = tallies(t, f)["127.0.0.2"]; got.Opened > 0 && got.Open == 0 {
			break
		}
	}
	return got
}

// closeInOrder sends a FIN before what is to come can make a close a reset.
func closeInOrder(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	c.Close()
}

func closeWrite(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
}

func TestConnectionsThatWereThereBeforeAreFound(t *testing.T) {
	s := newEcho(t)
	c := s.dial(t, "127.0.0.2")
	say(t, c, 1000)
	f := attached(t)
	f.watches(t, s.cgroup, s.port)
	for range 2 { // the second finds nothing that is new
		if err := f.Find("/proc/self/ns/net"); err != nil {
			t.Fatal(err)
		}
		await(t, f, map[string]tally{"127.0.0.2": {Found: 1, Open: 1}})
	}
	say(t, c, 10)
	c.Close()
	await(t, f, map[string]tally{"127.0.0.2": {Found: 1, Closed: 1, In: 10, Out: 10}})
	nothingLost(t, f)
}
