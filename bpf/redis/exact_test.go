package redis

import (
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

func TestRedisBenchmarkIsCountedAsInfoCommandstatsCountsIt(t *testing.T) {
	for _, sslmode := range []string{"disable", "require", observed.Local} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			s := newServer(t)
			l := newLedger(measure(t, s))
			control := s.connect(t, "disable")
			for _, pipeline := range []int{1, 16} {
				s.Benchmark(t, sslmode, "-n", "1600", "-c", "20", "-r", "1000", "-P", strconv.Itoa(pipeline))
				l.agree(t, control, nil)
			}
			if lost := l.lost(t); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
		})
	}
}

// script is what one client does that tells servers and probes apart.
func script(c *client) {
	c.do("PING", "SET user:1:cart x", "GET user:1:cart", "LPUSH user:1:cart y", "GETEX user:1:cart", "get", "CONFIG GET maxmemory", "CONFIG nothing", "OBJECT ENCODING user:1:cart")
	c.do("MULTI", "SET a 1", "LPUSH a 1", "GET a", "EXEC", "MULTI", "SET a", "EXEC", "MULTI", "SET a 1", "DISCARD", "WATCH a", "UNWATCH")
	c.do("EVAL code", `EVAL "return\x20{err='MADEUP\x20x'}" 0`, `EVAL "return\x201" 1 key`, "XADD stream * f v", "XREAD COUNT 1 STREAMS stream 0", "XREAD BLOCK 1 STREAMS stream $", "BLPOP none 0.01")
	c.do("SELECT 3", "SET b 1", "SELECT 99", "SELECT 0", "AUTH default nothing", "ZADD z 1 m", "SINTERCARD 1 none", "MSET a1 1 a2 2", "SCAN 0", "CLIENT SETNAME me")
	c.send("CLIENT REPLY SKIP", "SET a 1", "PING")
	c.receive(1)
	c.do("HELLO 3", "HGETALL none", "ZADD z 1 a 2 b", "ZRANGE z 0 -1 WITHSCORES", "RESET")
	c.write([]byte("SET inline:1 \"a b\"\r\n\r\nGET inline:1\r\n"))
	c.receive(2)
	// A value that comes in many reads, and an answer that is sent in many writes.
	large := string(make([]byte, 3<<20))
	c.write(command("SET", "large", large))
	c.receive(1)
	c.do("GET large")
	var many []string
	for i := range 1000 {
		many = append(many, "RPUSH list item:"+strconv.Itoa(i), "INCR n"+strconv.Itoa(i%7))
	}
	c.send(many...)
	c.receive(len(many))
	c.do("LRANGE list 0 -1")
}

func TestWhatClientsDoIsCountedAsTheServerCountsIt(t *testing.T) {
	for _, threads := range []string{"1", "4"} {
		s := newServer(t, "--io-threads", threads, "--io-threads-do-reads", "yes")
		l := newLedger(measure(t, s))
		control := s.connect(t, "disable")
		// Redis counts no call of a subcommand that it does not know, nor of SET within a DISCARD; the errors of a pipeline are its own.
		for _, sslmode := range []string{"disable", "require", observed.Local} {
			t.Run("io-threads "+threads+", sslmode "+sslmode, func(t *testing.T) {
				done := make(chan struct{})
				for range 8 {
					c := s.connect(t, sslmode)
					go func() {
						defer func() { done <- struct{}{} }()
						script(c)
					}()
				}
				for range 8 {
					<-done
				}
				but := map[string]stat{}
				for name, st := range l.stats(t) {
					if name == "config" || name == "other" {
						but[name] = st
					}
				}
				l.agree(t, control, but)
				if lost := l.lost(t); len(lost) > 0 {
					t.Errorf("lost: %v", lost)
				}
			})
		}
	}
}

func TestAReplicaAndItsPrimaryAreNoClients(t *testing.T) {
	primary := newServer(t)
	replica := newServer(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port))
	f := measure(t, primary, replica)
	l := newLedger(f)
	control := primary.connect(t, "disable")
	reader := replica.connect(t, "disable")
	for deadline := time.Now().Add(20 * time.Second); reader.do("PING") == "" || reader.do("WAIT 0 0")[0] == 'x' || !synced(reader); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the replica does not follow")
		}
	}
	before := l.calls(t)
	for range 100 {
		control.do("SET a 1")
	}
	control.do("WAIT 1 5000")
	after := l.calls(t)
	if n := after["set a"] - before["set a"]; n != 100 {
		t.Errorf("%d SET, want 100: the replica's link is counted, or the primary's is not: %v", n, after)
	}
}

func synced(c *client) bool { return c.do("ROLE")[:5] == "slave" }

func TestAConnectionThatWasThereBeforeIsFollowedBehindAnAnswer(t *testing.T) {
	for _, sslmode := range []string{"disable", "require"} {
		t.Run("sslmode "+sslmode, func(t *testing.T) {
			s := newServer(t)
			c := s.connect(t, sslmode)
			c.do("SET a 1", "GET a")
			f := measure(t, s)
			l := newLedger(f)
			c.do("GET a", "GET a", "GET a")
			deadline := time.Now().Add(5 * time.Second)
			for time.Now().Before(deadline) && l.calls(t)["get a by /"] < 2 {
				time.Sleep(10 * time.Millisecond)
			}
			if n := l.calls(t)["get a by /"]; n != 2 || l.lost(t)["unsynced"] != 1 {
				t.Errorf("counted %v, lost %v", l.calls(t), l.lost(t))
			}
		})
	}
}

func TestNothingIsKeptOfConnectionsThatAreClosedAndServersThatEnd(t *testing.T) {
	var f *Family
	t.Run("while it runs", func(t *testing.T) {
		s := newServer(t)
		f = measureFor(t, s)
		for range 3 {
			for _, sslmode := range []string{"disable", "require"} {
				c := s.connect(t, sslmode)
				c.do("SET a 1")
				c.conn.Close()
			}
		}
		awaitNothing(t, f, func(conns, threads, seals, _ int) bool { return conns == 0 && seals == 0 && threads > 0 })
		s.connect(t, "require").do("GET a")
	})
	awaitNothing(t, f, func(conns, threads, seals, spill int) bool { return conns+threads+seals+spill == 0 })
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func awaitNothing(t *testing.T, f *Family, is func(conns, threads, seals, spill int) bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conns, threads, seals, spill := f.entries(t)
		if is(conns, threads, seals, spill) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections, %d threads, %d seals, %d units are kept", conns, threads, seals, spill)
		}
	}
}
