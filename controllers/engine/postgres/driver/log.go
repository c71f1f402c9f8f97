package driver

import (
	"bytes"
	"context"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of what is read of the server's log: a longer line is cut, and counted.
const (
	MaxLine   = 64 << 10
	MaxRecord = 256 << 10
)

// Reasons of replicas that cannot follow.
const (
	reasonLogRemoved = "LogRemoved"
	reasonForked     = "Forked"
)

// Record is one report of the server's log.
type Record struct {
	// Time that the server gives; zero if the line is none of the server's reports.
	Time time.Time
	// PID of the process, SQLState and Backend (its kind) of the report.
	PID      int
	SQLState string
	Backend  string
	// Host, User and Database of the session; empty outside of one.
	Host, User, Database string
	// Level as the server writes it: LOG, WARNING, ERROR, FATAL, PANIC, DETAIL, HINT, STATEMENT ... Empty for a line of another form.
	Level string
	// Message with the lines that continue it.
	Message string
	// Details are the reports that belong to this one: DETAIL, HINT, CONTEXT, STATEMENT, by level.
	Details map[string]string
	// Cut is true if something was too long.
	Cut bool
}

// Watch reads the server's log and counts what the agent should know. It is safe for use from several goroutines.
type Watch struct {
	mu      sync.Mutex
	pending *Record
	part    string // level of the detail that the next continuation belongs to; empty for the message
	size    int
	auth    int64
	cut     int64
	fell    int64
	problem string
	reason  string
}

// NewWatch makes one.
func NewWatch() *Watch { return &Watch{} }

// AuthFailures counts refused logins (SQLSTATE 28P01 and 28000).
func (w *Watch) AuthFailures() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.auth }

// Fell counts the ends of recovery by an error for which neither a want of room or memory nor a setting is to blame.
func (w *Watch) Fell() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.fell }

// Cut counts lines and records that were too long.
func (w *Watch) Cut() int64 { w.mu.Lock(); defer w.mu.Unlock(); return w.cut }

// ReplicationProblem is why this replica last failed to follow, if the log told a reason that does not go away by itself.
func (w *Watch) ReplicationProblem(reason, problem string) (string, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == "" || reason != "" {
		return reason, problem
	}
	return w.reason, w.problem
}

// forget what was said of replication: the data is new.
func (w *Watch) forget() { w.mu.Lock(); w.reason, w.problem = "", ""; w.mu.Unlock() }

// Feed takes one line without its end and gives the record that it completes, if any: a report goes on for as long as lines
// continue it.
func (w *Watch) Feed(line []byte) (Record, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	cut := len(line) > MaxLine
	if cut {
		line = line[:MaxLine]
		w.cut++
	}
	text := clean(line)
	if w.pending != nil && strings.HasPrefix(text, "\t") {
		w.append(text[1:])
		return Record{}, false
	}
	r := parseLine(text)
	r.Cut = cut
	if w.pending != nil && belongs(r, *w.pending) {
		w.detail(r)
		return Record{}, false
	}
	done, ok := w.take()
	w.pending, w.size = &r, len(r.Message)
	return done, ok
}

// Flush gives the record that is held back for lines that may continue it.
func (w *Watch) Flush() (Record, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take()
}

func (w *Watch) take() (Record, bool) {
	if w.pending == nil {
		return Record{}, false
	}
	r := *w.pending
	w.pending, w.size, w.part = nil, 0, ""
	w.count(r)
	return r, true
}

func (w *Watch) room(text string) bool {
	if w.size+len(text) <= MaxRecord {
		w.size += len(text)
		return true
	}
	if !w.pending.Cut {
		w.pending.Cut = true
		w.cut++
	}
	return false
}

func (w *Watch) append(text string) {
	if !w.room(text + "\n") {
		return
	}
	if w.part != "" {
		w.pending.Details[w.part] += "\n" + text
		return
	}
	w.pending.Message += "\n" + text
}

func (w *Watch) detail(r Record) {
	if !w.room(r.Message) {
		return
	}
	if w.pending.Details == nil {
		w.pending.Details = map[string]string{}
	}
	if old := w.pending.Details[r.Level]; old != "" {
		r.Message = old + "\n" + r.Message
	}
	w.pending.Details[r.Level] = r.Message
	w.part = r.Level
}

func (w *Watch) count(r Record) {
	switch r.SQLState {
	case "28P01", "28000":
		w.auth++
	}
	if r.Level != "FATAL" && r.Level != "PANIC" && r.Level != "ERROR" && r.Level != "LOG" {
		return
	}
	if r.Backend != "walreceiver" && r.Backend != "startup" {
		return // what a client says proves nothing, and it may have any name
	}
	if (r.Level == "FATAL" || r.Level == "PANIC") && r.Backend == "startup" && !strings.HasPrefix(r.SQLState, outOfResources) && r.SQLState != invalidValue {
		w.fell++
	}
	switch {
	case strings.Contains(r.Message, "requested WAL segment") && strings.Contains(r.Message, "has already been removed"):
		w.blame(reasonLogRemoved)
	case strings.Contains(r.Message, "is not in this server's history"), strings.Contains(r.Message, "forked off current database system timeline"),
		strings.Contains(r.Message, "is ahead of the WAL flush position of this server"):
		w.blame(reasonForked)
	case strings.Contains(r.Message, "started streaming WAL"):
		w.reason, w.problem = "", ""
	}
}

// outOfResources is the class of SQLSTATE of those errors, and invalidValue that of a setting that is too low.
const (
	outOfResources = "53"
	invalidValue   = "22023"
)

// tell what was found out otherwise than by the log.
func (w *Watch) tell(reason string) { w.mu.Lock(); w.blame(reason); w.mu.Unlock() }

func (w *Watch) blame(reason string) {
	w.reason = reason
	switch reason {
	case reasonLogRemoved:
		w.problem = "the primary no longer has the log that this replica needs; it must be copied anew"
	case reasonForked:
		w.problem = "this replica has a log that the primary's history does not have; it must be rewound"
	}
}

func belongs(r, to Record) bool {
	switch r.Level {
	case "DETAIL", "HINT", "QUERY", "CONTEXT", "LOCATION", "STATEMENT":
		return r.PID == to.PID && to.Level != ""
	}
	return false
}

// clean makes the line valid text: databases and clients of other encodings write what they like.
func clean(line []byte) string {
	line = bytes.TrimRight(line, "\r\n")
	if utf8.Valid(line) {
		return strings.ReplaceAll(string(line), "\x00", "")
	}
	return strings.ReplaceAll(strings.ToValidUTF8(string(line), "\uFFFD"), "\x00", "")
}

// parseLine reads the prefix that postgres.LogLinePrefix asks for. Names that clients choose come last in it: one with a tab or a
// line end in it can spoil nothing but its own line.
func parseLine(text string) Record {
	f := strings.SplitN(text, "\t", 8)
	if len(f) != 8 {
		return Record{Message: text}
	}
	seconds, err1 := strconv.ParseFloat(f[0], 64)
	pid, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil || pid < 0 || seconds < 0 || seconds > 1e11 || math.IsNaN(seconds) || len(f[2]) != 5 {
		return Record{Message: text}
	}
	level, message, ok := strings.Cut(f[7], ":  ")
	if !ok || !isLevel(level) {
		return Record{Message: text}
	}
	return Record{
		Time: time.UnixMilli(int64(math.Round(seconds * 1000))).UTC(), PID: pid, SQLState: f[2], Backend: f[3],
		Host: f[4], User: unknown(f[5]), Database: unknown(f[6]), Level: level, Message: message,
	}
}

func unknown(name string) string {
	if name == "[unknown]" {
		return ""
	}
	return name
}

func isLevel(s string) bool {
	switch s {
	case "LOG", "INFO", "NOTICE", "WARNING", "ERROR", "FATAL", "PANIC", "DEBUG", "DEBUG1", "DEBUG2", "DEBUG3", "DEBUG4", "DEBUG5",
		"DETAIL", "HINT", "QUERY", "CONTEXT", "LOCATION", "STATEMENT":
		return true
	}
	return false
}

// hold is how long a record waits for lines that continue it.
const hold = 100 * time.Millisecond

// Pump reads the server's standard error to its end and emits each record. Emit must not block for long: the server waits then.
func (w *Watch) Pump(ctx context.Context, from io.Reader, emit func(Record)) error {
	var mu sync.Mutex // one record at a time
	send := func(r Record, ok bool) {
		if ok {
			emit(r)
		}
	}
	done := make(chan struct{})
	var idle sync.WaitGroup
	last := time.Now()
	idle.Go(func() {
		every(hold, done, func() {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(last) >= hold {
				send(w.Flush())
			}
		})
	})
	err := eachLine(ctx, from, func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		last = time.Now()
		send(w.Feed(line))
	})
	close(done)
	idle.Wait()
	send(w.Flush())
	return err
}

// eachLine with a bound: of a longer line the rest is read and dropped.
func eachLine(ctx context.Context, from io.Reader, take func([]byte)) error {
	buf := make([]byte, 0, 4096)
	chunk := make([]byte, 32<<10)
	for ctx.Err() == nil {
		n, err := from.Read(chunk)
		rest := chunk[:n]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				buf = appendBounded(buf, rest)
				break
			}
			take(appendBounded(buf, rest[:i]))
			buf, rest = buf[:0], rest[i+1:]
		}
		if err == io.EOF {
			if len(buf) > 0 {
				take(buf)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// appendBounded keeps one byte more than a line may have, so that Feed sees that it was longer.
func appendBounded(buf, more []byte) []byte {
	room := MaxLine + 1 - len(buf)
	return append(buf, more[:min(max(room, 0), len(more))]...)
}
