// Package event is what the kernel tells of databases, decoded: counts of statements, and single statements that are worth a line.
package event

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Kind says why a single statement is told.
type Kind uint8

// Kinds of events.
const (
	Text   Kind = iota + 1 // the first text of its print
	Slow                   // it took longer than its container's bound
	Failed                 // it was answered with an error
)

// String names the kind in logs.
func (k Kind) String() string {
	names := [...]string{Text: "text", Slow: "slow", Failed: "failed"}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// State is an SQLSTATE as a number in base 36; 0 is success.
type State uint32

// NoState is an error that did not name its SQLSTATE.
const NoState State = 1

// String is the five characters that PostgreSQL writes, or the word with which Redis begins.
func (s State) String() string {
	if word, ok := s.Word(); ok {
		return word
	}
	text := strings.ToUpper(strconv.FormatUint(uint64(s), 36))
	return strings.Repeat("0", max(0, 5-len(text))) + text
}

// Class is the first two characters, the class of the error; a word is one of its own.
func (s State) Class() string {
	if word, ok := s.Word(); ok {
		return word
	}
	return s.String()[:2]
}

// Parsed says whether a statement that ended so has surely been read to its end as SQL: then its literals are where they seem to be. In a text
// that the server could not read, a stray quote turns round what is inside of strings and what is outside.
func (s State) Parsed() bool {
	if _, ok := s.Word(); ok { // not SQL, and in its normal form
		return true
	}
	switch s.String() {
	case "42601", "22021", "22025", "22P05", "22P06": // syntax, encoding, escapes
		return false
	case "57014": // cancelled while it ran
		return true
	case "25P03": // the session was idle for too long
		return false
	}
	switch s.Class() {
	case "08", "53", "57", "58", "XX":
		return false
	}
	return s != NoState
}

// Key is what is counted together.
type Key struct {
	Cgroup uint64 // of the container
	Print  uint64 // fingerprint of the text; 0 is what could not be told from the rest
	Who    uint64 // user and database, see Session; 0 is not known
	Nth    uint32 // which statement of the text, from 0
	State  State  // 0 for statements that succeeded
}

// Session is who spoke to which database.
type Session struct{ User, Database string }

// Buckets of a histogram: see Counts.
const Buckets = 208

// Counts of one Key since it has its place.
type Counts struct {
	// Place is never given to another key, nor to the same again: whoever adds up by differences takes those of one place. A key whose
	// place was taken back counts from 0 in another when it is next used, and for a while both are told.
	Place             uint64
	Key               Key
	Calls, Rows       uint64
	BytesIn, BytesOut uint64
	// Sums over calls, which wrap: with a thousand statements under way at all times after half a year, and differences stay right.
	// Latency is what the client waits for: from the end of reading the statement to the end of writing its answer. It
	// is made of Queue (behind earlier statements of the connection), Service (to the answer's first byte) and Transfer (to its last).
	Latency, Queue, Service, Transfer time.Duration
	// Slots count latencies as a native histogram of schema 3 does: slot i those up to Bound(i), and the last one the rest.
	Slots [Buckets]uint64
}

// Event is one statement.
type Event struct {
	Kind              Kind
	PID               uint32
	Key               Key
	At                time.Duration // when it ended, by the monotonic clock
	Latency           time.Duration // 0 if nobody saw it asked for; made of the next three, as in Counts
	Queue, Service    time.Duration
	Transfer          time.Duration
	Rows              uint64
	BytesIn, BytesOut uint64
	Client            netip.AddrPort // who asked, if it is known
	Local             bool           // it asked by a socket of the file system
	// Text as the client sent it, cut if it is longer than the kernel's side copies. Of one that was slow or failed only where literals are
	// asked for.
	Text  string
	Whole int // its size before it was cut
	// Normal says that the Text is a statement in its normal form, and no SQL.
	Normal bool
}

// Batch is what was read at one time.
type Batch struct {
	Events []Event
}
