package query

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/tests/observed"
)

// driven is a family that is fed by tests, with bytes and times of theirs: it is attached to nothing.
type driven struct {
	*ledger
	memory []byte // that the programs read, as they read a server's
	pid    uint32 // of the connection at hand
	cgroup uint64
	now    time.Duration
}

func newDriven(t *testing.T) *driven {
	t.Helper()
	return drivenWith(t, Options{})
}

func drivenWith(t *testing.T, o Options) *driven {
	t.Helper()
	observed.NeedsRoot(t)
	o.drive = true
	f, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &driven{ledger: newLedger(f), now: time.Second}
	d.room(t, 1<<20)
	d.container(t)
	return d
}

// room makes memory for so many bytes.
func (d *driven) room(t testing.TB, size int) {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	d.memory = memory
}

// container begins to measure another container.
func (d *driven) container(t *testing.T) {
	t.Helper()
	d.cgroup++
	d.pid++
	if err := d.family.Watch(Target{Cgroup: d.cgroup, Port: 5432}); err != nil {
		t.Fatal(err)
	}
}

// What a program is driven to do.
const (
	read = iota
	sent
	exit
	report
)

func (d *driven) drive(t testing.TB, what uint64, b []byte) {
	t.Helper()
	if ret := d.try(t, what, b); ret != 0 {
		t.Fatalf("drive: %d", ret)
	}
}

// try gives back 1 if there is no room for another connection.
func (d *driven) try(t testing.TB, what uint64, b []byte) uint32 {
	t.Helper()
	if len(b) > len(d.memory) {
		d.room(t, len(b))
	}
	copy(d.memory, b)
	ret, err := d.family.kernel.Drive.Run(&ebpf.RunOptions{Context: [6]uint64{
		what, uint64(d.pid), d.cgroup, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(d.memory)))), uint64(len(b)), uint64(d.now),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return ret
}

// forget makes the next sight of every text the first.
func (d *driven) forget(t *testing.T) {
	t.Helper()
	for _, m := range []*ebpf.Map{d.family.kernel.Texts, d.family.kernel.Raws} {
		var keys []uint64
		var key uint64
		value := make([]byte, m.ValueSize())
		entries := m.Iterate()
		for entries.Next(&key, &value) {
			keys = append(keys, key)
		}
		if err := entries.Err(); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if err := m.Delete(key); err != nil {
				t.Fatal(err)
			}
		}
	}
	clear(d.texts)
}

// piece is what one side says at one time.
type piece struct {
	what  uint64
	bytes []byte
	after time.Duration // what came before
}

// asks and says are the client and the server.
func asks(messages ...pgproto3.FrontendMessage) piece {
	p := piece{what: read, after: time.Millisecond}
	for _, m := range messages {
		p.bytes = must(m.Encode(p.bytes))
	}
	return p
}

func says(messages ...pgproto3.BackendMessage) piece {
	p := piece{what: sent, after: time.Millisecond}
	for _, m := range messages {
		p.bytes = must(m.Encode(p.bytes))
	}
	return p
}

// reports is the server's own word of what it is at work on.
func reports(text string) piece { return piece{what: report, bytes: append([]byte(text), 0)} }

func must(b []byte, err error) []byte {
	if err != nil {
		panic(fmt.Sprintf("encode: %v", err)) //nolint:forbidigo // a message of the test itself
	}
	return b
}

// Short names of messages, so that a conversation can be read at a glance.
func query(text string) pgproto3.FrontendMessage { return &pgproto3.Query{String: text} }

func parse(name, text string) pgproto3.FrontendMessage {
	return &pgproto3.Parse{Name: name, Query: text, ParameterOIDs: []uint32{23}}
}

func bind(portal, statement string) pgproto3.FrontendMessage {
	return &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: statement, Parameters: [][]byte{[]byte("42")}}
}

func describe(portal string) pgproto3.FrontendMessage {
	return &pgproto3.Describe{ObjectType: 'P', Name: portal}
}
func execute(portal string) pgproto3.FrontendMessage { return &pgproto3.Execute{Portal: portal} }
func syncs() pgproto3.FrontendMessage                { return &pgproto3.Sync{} }
func done(tag string) pgproto3.BackendMessage {
	return &pgproto3.CommandComplete{CommandTag: []byte(tag)}
}
func ready() pgproto3.BackendMessage  { return &pgproto3.ReadyForQuery{TxStatus: 'I'} }
func parsed() pgproto3.BackendMessage { return &pgproto3.ParseComplete{} }
func bound() pgproto3.BackendMessage  { return &pgproto3.BindComplete{} }
func noData() pgproto3.BackendMessage { return &pgproto3.NoData{} }
func row(values ...string) pgproto3.BackendMessage {
	r := &pgproto3.DataRow{}
	for _, v := range values {
		r.Values = append(r.Values, []byte(v))
	}
	return r
}

func failure(state string) pgproto3.BackendMessage {
	return &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: state, Message: "it failed"}
}

func fatal(state string) pgproto3.BackendMessage {
	return &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: state, Message: "it ends"}
}

// startup is how a connection begins.
func startup() []piece {
	return []piece{
		asks(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "ada", "database": "shop", "application_name": "test"}}),
		says(&pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "server_version", Value: "15"}, &pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 2}}, ready()),
	}
}

// reset empties the counts, which only a test that counts alone may do.
func (d *driven) reset(t *testing.T) {
	t.Helper()
	for i, c := range d.family.counted.Values {
		if c.Live == 0 || c.Calls == 0 && c.Rows == 0 {
			continue
		}
		if err := d.family.kernel.Counted.Put(uint32(i), kernelCounts{Key: c.Key, Live: 1}); err != nil {
			t.Fatal(err)
		}
	}
}
