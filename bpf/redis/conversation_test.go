package redis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conversation is what client and server say on a connection that was accepted, and what of it is to be counted.
type conversation struct {
	pieces []piece
	calls  map[string]uint64
	lost   map[string]uint64
	whole  bool // its first bytes come at once
}

func repeat[T any](n int, some ...T) []T { return slices.Repeat(some, n) }

func conversations() map[string]conversation {
	return map[string]conversation{
		"a command": {pieces: []piece{asks("SET user:123:cart 5"), says("+OK")}, calls: map[string]uint64{"set user:*:cart": 1}},
		"commands one by one": {
			pieces: []piece{asks("get a"), says("$-1"), asks("Get a"), says("$3", "abc"), asks("INCR n1"), says(":5"), asks("LRANGE l 0 -1"), says("*2", "$1", "a", "$0", "")},
			calls:  map[string]uint64{"get a": 2, "incr n*": 1, "lrange l": 1},
		},
		"a pipeline of like commands": {
			pieces: []piece{asks(repeat(50, "SET key:1 x")...), says(repeat(50, "+OK")...)},
			calls:  map[string]uint64{"set key:*": 50},
		},
		"a pipeline of different commands, deeper than the FIFO": {
			pieces: []piece{asks(repeat(20, "SET key:1 x", "GET key:1", "PING")...), says(repeat(20, "+OK", "$1", "x", "+PONG")...)},
			calls:  map[string]uint64{"set key:*": 20, "get key:*": 20, "ping": 20},
		},
		"inline commands": {
			pieces: []piece{types("PING\r\n"), says("+PONG"), types("\r\n  set  user:1 \"a b\\\" c\" \r\nget user:1\n"), says("+OK", "$6", "a b\" c")},
			calls:  map[string]uint64{"ping": 1, "set user:*": 1, "get user:*": 1},
		},
		"errors by their first word": {
			pieces: []piece{
				asks("LPUSH a 1", "GET b", "SECRET x"), says("-WRONGTYPE Operation against a key", "-ERR", "-ERR unknown command 'SECRET'"),
				asks("EVAL x 0"), says("-MADEUP by a script"),
			},
			calls: map[string]uint64{"lpush a WRONGTYPE": 1, "get b ERR": 1, "other ERR": 1, "eval 00001": 1},
		},
		"an error within an answer is none of the command": {
			pieces: []piece{asks("EVAL x 1 k"), says("*1", "*2", "-ERR it failed", ":1"), asks("PING"), says("+PONG")},
			calls:  map[string]uint64{"eval k": 1, "ping": 1},
		},
		"subcommands": {
			pieces: []piece{
				asks("CONFIG GET maxmemory", "config", "CONFIG nonsense", "COMMAND", "OBJECT ENCODING a1b2", "XINFO STREAM s", "client setname me"),
				says("*2", "$9", "maxmemory", "$1", "0", "-ERR wrong number", "-ERR unknown subcommand", "*0", "$3", "raw", "*0", "+OK"),
			},
			calls: map[string]uint64{"config|get": 1, "config ERR": 2, "command": 1, "object|encoding *": 1, "xinfo|stream s": 1, "client|setname": 1},
		},
		"where the key is": {
			pieces: []piece{
				asks("EVAL code 1 k1 v", "EVAL code 0 secret", "BITOP AND dest a", "XREAD COUNT 2 STREAMS s1 0", "SINTERCARD 2 a b", "MGET x1 x2", "PUBLISH news hello"),
				says(repeat(7, ":1")...),
			},
			calls: map[string]uint64{"eval k*": 1, "eval": 1, "bitop dest": 1, "xread s*": 1, "sintercard a": 1, "mget x*": 1, "publish news": 1},
		},
		"keys that name one of many": {
			pieces: []piece{
				asks(`GET "session:9f86d081884c7d65"`, `GET "a\x20b"`, `GET "\x00\xff"`, `GET ""`, "GET "+strings.Repeat("x", 33), "GET "+strings.Repeat("ab:", 50), `GET "üser:1"`),
				says(repeat(7, "$-1")...),
			},
			calls: map[string]uint64{"get session:*": 1, "get a b": 1, "get *": 2, "get ": 1, "get " + strings.Repeat("ab:", 42) + "ab…": 1, "get *:*": 1},
		},
		"a transaction": {
			pieces: []piece{
				asks("MULTI"), says("+OK"), asks("SET a 1", "LPUSH a 1", "GET a"), says("+QUEUED", "+QUEUED", "+QUEUED"), asks("EXEC"),
				says("*3", "+OK", "-WRONGTYPE Operation", "$1", "1"), asks("PING"), says("+PONG"),
			},
			calls: map[string]uint64{"multi": 1, "set a": 1, "lpush a WRONGTYPE": 1, "get a": 1, "exec": 1, "ping": 1},
		},
		"a transaction all at once, longer than the FIFO": {
			pieces: []piece{
				asks(slices.Concat([]string{"MULTI"}, repeat(15, "SET a 1", "LRANGE l 0 1"), []string{"EXEC", "PING"})...),
				says(slices.Concat([]string{"+OK"}, repeat(30, "+QUEUED"), []string{"*30"}, repeat(15, "+OK", "*2", "$1", "a", "$1", "b"), []string{"+PONG"})...),
			},
			calls: map[string]uint64{"multi": 1, "set a": 15, "lrange l": 15, "exec": 1, "ping": 1},
		},
		"transactions that come to nothing": {
			pieces: []piece{
				asks("MULTI", "SET a 1", "DISCARD"), says("+OK", "+QUEUED", "+OK"),
				asks("WATCH a", "MULTI", "SET a 1", "EXEC"), says("+OK", "+OK", "+QUEUED", "*-1"),
				asks("MULTI", "SET a", "GET a", "EXEC"), says("+OK", "-ERR wrong number of arguments", "+QUEUED", "-EXECABORT Transaction discarded"),
				asks("MULTI", "EXEC", "GET a"), says("+OK", "*0", "$-1"),
			},
			calls: map[string]uint64{"multi": 4, "discard": 1, "watch a": 1, "exec": 2, "set a ERR": 1, "exec EXECABORT": 1, "get a": 1},
		},
		"blocking commands": {
			pieces: []piece{asks("BLPOP q1 0", "XREAD BLOCK 0 STREAMS s $", "GET a"), says("*2", "$2", "q1", "$1", "v"), says("*-1", "$-1")},
			calls:  map[string]uint64{"blpop q*": 1, "xread s": 1, "get a": 1},
		},
		"a subscriber in RESP2": {
			pieces: []piece{
				asks("SUBSCRIBE news sport"), says("*3", "$9", "subscribe", "$4", "news", ":1", "*3", "$9", "subscribe", "$5", "sport", ":2"),
				says("*3", "$7", "message", "$4", "news", "$5", "hello"), asks("PING"), says("*3", "$7", "message", "$4", "news", "$0", "", "*2", "$4", "pong", "$0", ""),
				asks("PSUBSCRIBE n*"), says("*3", "$10", "psubscribe", "$2", "n*", ":3"), says("*4", "$8", "pmessage", "$2", "n*", "$4", "news", "$1", "x"),
				asks("UNSUBSCRIBE"), says("*3", "$11", "unsubscribe", "$4", "news", ":2", "*3", "$11", "unsubscribe", "$5", "sport", ":1"),
			},
			calls: map[string]uint64{"subscribe news": 1, "ping": 1, "psubscribe": 1, "unsubscribe": 1},
		},
		"a subscriber in RESP3, which goes on with other commands": {
			pieces: []piece{
				asks("HELLO 3"), says("%2", "$6", "server", "$5", "redis", "$5", "proto", ":3"), asks("SUBSCRIBE news", "LRANGE l 0 -1"),
				says(">3", "$9", "subscribe", "$4", "news", ":1", "*2", "$7", "message", "$1", "x"),
				says(">3", "$7", "message", "$4", "news", "$5", "hello"), asks("GET a"), says(">2", "$10", "invalidate", "*1", "$1", "a", "_"),
			},
			calls: map[string]uint64{"hello": 1, "subscribe news": 1, "lrange l": 1, "get a": 1},
		},
		"answers of RESP3": {
			pieces: []piece{
				asks("HELLO 3", "HGETALL h", "SMEMBERS s", "ZSCORE z m", "GET a", "EXISTS a", "INFO", "DEBUG x", "PING"),
				says("%1", "$5", "proto", ":3", "%1", "+f", "*1", ":1", "~2", "+a", "+b", ",1.5", "_", "#t", "=8", "txt:some", "!10", "SYNTAX bad", "(12345678901234567890"),
			},
			calls: map[string]uint64{"hello": 1, "hgetall h": 1, "smembers s": 1, "zscore z": 1, "get a": 1, "exists a": 1, "info": 1, "debug SYNTAX": 1, "ping": 1},
		},
		"who speaks, and to which database": {
			pieces: []piece{
				asks("GET a"), says("-NOAUTH Authentication required."), asks("AUTH ada secret"), says("-WRONGPASS invalid"),
				asks("AUTH ada right", "SELECT 3", "GET a", "SELECT 99", "GET a", "SELECT 0"), says("+OK", "+OK", "$-1", "-ERR DB index is out of range", "$-1", "+OK"),
				asks("HELLO 3 AUTH eve pw SETNAME auth", "GET a"), says("%0", "_"), asks("HELLO 2", "GET a"), says("*0", "$-1"), asks("RESET", "GET a", "AUTH pass", "GET a"), says("+RESET", "$-1", "+OK", "$-1"),
			},
			calls: map[string]uint64{
				"get a NOAUTH": 1, "auth WRONGPASS": 1, "auth": 2, "select by ada/0": 1, "get a by ada/3": 2, "select by ada/3 ERR": 1, "select by ada/3": 1,
				"hello by ada/0": 1, "get a by eve/0": 2, "hello by eve/0": 1, "reset by eve/0": 1, "get a": 2,
			},
		},
		"answers that are left out": {
			pieces: []piece{
				asks("CLIENT REPLY SKIP", "SET a 1", "GET a"), says("$1", "1"), asks("CLIENT REPLY OFF", "SET a 1", "SET a 2"), asks("CLIENT REPLY ON", "PING"), says("+OK", "+PONG"),
			},
			calls: map[string]uint64{"client|reply": 3, "set a": 3, "get a": 1, "ping": 1},
		},
		"a monitor": {
			pieces: []piece{asks("MONITOR"), says("+OK"), says(`+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`), says("+more")},
			calls:  map[string]uint64{"monitor": 1},
		},
		"a replica's link": {
			pieces: []piece{
				asks("PING"), says("+PONG"), asks("REPLCONF listening-port 6380"), says("+OK"), asks("PSYNC ? -1"), says("+FULLRESYNC 8371 0"),
				says("$5", "REDIS*1", "$4", "PING"), asks("REPLCONF ACK 0"),
			},
			calls: map[string]uint64{"ping": 1, "replconf": 1, "psync": 1},
		},
		"values that look like commands": {
			pieces: []piece{asks(`SET a "*1\r\n$4\r\nPING\r\n"`), says("+OK"), asks("GET a"), says("$14", "*1\r\n$4\r\nPING\r\n")},
			calls:  map[string]uint64{"set a": 1, "get a": 1},
		},
		"no command at all": {
			pieces: []piece{types("*0\r\n*-1\r\n\r\n"), asks("PING"), says("+PONG")},
			calls:  map[string]uint64{"ping": 1},
		},
		"nonsense, and the connection is followed again": {
			pieces: []piece{types("*1\r\n!4\r\nPING\r\n"), says("-ERR Protocol error: expected '$', got '!'"), asks("PING"), says("+PONG")},
			calls:  map[string]uint64{"ping": 1},
			lost:   map[string]uint64{"framing": 1}, whole: true,
		},
		"a connection that is refused": {
			pieces: []piece{says("-ERR max number of clients reached")},
		},
		"the bus of a cluster": {
			pieces: []piece{types("RCmb\x00\x00\x01\x02"), says("RCmb")}, whole: true,
		},
	}
}

// run lets a conversation happen on a fresh connection, in pieces that cut makes of each.
func (d *driven) run(t *testing.T, c conversation, cut func(n int, b []byte) [][]byte) {
	t.Helper()
	d.next(t)
	for n, p := range c.pieces {
		d.now += p.after
		for _, b := range cut(n, p.bytes) {
			if len(b) > 0 {
				d.drive(t, p.what, b)
			}
		}
	}
}

// check compares what a conversation counted since before.
func (d *driven) check(t *testing.T, how string, c conversation, before map[string]uint64) {
	t.Helper()
	calls, lost := d.calls(t), map[string]uint64{}
	for reason, n := range d.lost(t) {
		if n -= before[reason]; n > 0 && reason != "texts" { // a key that comes in pieces is shown when it next comes as a whole
			lost[reason] = n
		}
	}
	if c.calls == nil {
		c.calls = map[string]uint64{}
	}
	if c.lost == nil {
		c.lost = map[string]uint64{}
	}
	if diff := cmp.Diff([]any{c.calls, c.lost}, []any{calls, lost}); diff != "" {
		t.Errorf("%s: %s", how, diff)
	}
}

func TestConversations(t *testing.T) {
	d := newDriven(t)
	for _, sentence := range slices.Sorted(maps.Keys(conversations())) {
		c := conversations()[sentence]
		t.Run(sentence, func(t *testing.T) {
			d.reset(t)
			before := d.lost(t)
			d.run(t, c, func(_ int, b []byte) [][]byte { return [][]byte{b} })
			d.check(t, "as it is", c, before)
			if c.whole {
				return
			}
			// The texts are known from here on: whatever the pieces are, the same things are counted.
			for n := range c.pieces {
				for at := 1; at < len(c.pieces[n].bytes); at++ {
					d.reset(t)
					before := d.lost(t)
					d.run(t, c, func(m int, b []byte) [][]byte {
						if m != n {
							return [][]byte{b}
						}
						return [][]byte{b[:at], b[at:]}
					})
					d.check(t, fmt.Sprintf("piece %d cut at %d", n, at), c, before)
					if t.Failed() {
						return
					}
				}
			}
			d.reset(t)
			before = d.lost(t)
			d.run(t, c, func(_ int, b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 1)) })
			d.check(t, "byte by byte", c, before)
		})
	}
}

func TestEveryCommandOfAPipelineThatIsTooDeepIsCounted(t *testing.T) {
	d := newDriven(t)
	d.next(t)
	const deep = 20000
	d.say(t, asks(repeat(deep/2, "GET a", "GET b")...), says(repeat(deep, "$1", "x")...), asks("GET a"), says("$-1"))
	const most = 16384
	want := map[string]uint64{"get a": most/2 + 1, "get b": most / 2, "other": deep - most}
	if diff := cmp.Diff(want, d.calls(t)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{"units": deep - most}, d.lost(t)); diff != "" {
		t.Error(diff)
	}
	if _, _, _, spill := d.family.entries(t); spill > 0 {
		t.Errorf("%d units are kept", spill)
	}
}
