package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// maxEntry bounds one line of output; what is longer is cut and counted.
	maxEntry = 64 << 10
	// tailLines and tailText bound what is kept for the report of a failure.
	tailLines = 5
	tailText  = 300
)

// logs writes the server's records to the agent's own output, one JSON object a line, and keeps the last ones.
type logs struct {
	out  io.Writer
	name string
	cut  atomic.Int64

	mu   sync.Mutex
	last []string
}

// emit writes one record. A write that fails is dropped: there is nowhere to say so.
func (l *logs) emit(e Entry) {
	if len(e.Message) > maxEntry {
		e.Message, e.Cut = strings.ToValidUTF8(e.Message[:maxEntry], ""), true
	}
	if e.Cut {
		l.cut.Add(1)
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	var b bytes.Buffer
	b.WriteByte('{')
	field := func(name, value string) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		writeString(&b, name)
		b.WriteByte(':')
		writeString(&b, value)
	}
	field("time", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"))
	field("level", e.Level)
	field("logger", l.name)
	field("msg", e.Message)
	for _, f := range e.Fields {
		if f[1] != "" && b.Len() < 4*maxEntry {
			field(f[0], f[1])
		}
	}
	if e.Cut {
		field("cut", strconv.FormatInt(l.cut.Load(), 10))
	}
	b.WriteString("}\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.out.Write(b.Bytes()) // there is nowhere else to say that the log cannot be written
	l.keep(e)
}

func writeString(b *bytes.Buffer, s string) {
	raw, err := json.Marshal(s)
	if err != nil {
		raw = []byte(`""`) // strings always have a form in JSON
	}
	b.Write(raw)
}

func (l *logs) keep(e Entry) {
	text, _, _ := strings.Cut(e.Message, "\n")
	if len(text) > tailText {
		text = strings.ToValidUTF8(text[:tailText], "")
	}
	if e.Level != "" {
		text = e.Level + ": " + text
	}
	l.last = append(l.last, text)
	if over := len(l.last) - tailLines; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
}

// tail is what was said last, in a line.
func (l *logs) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "; ")
}

// plain reads output of no known form: each line is a message.
func plain(ctx context.Context, from io.Reader, emit func(Entry)) error {
	r := bufio.NewReaderSize(from, 4<<10)
	var line []byte
	cut := false
	for ctx.Err() == nil {
		part, more, err := r.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		room := maxEntry - len(line)
		cut = cut || len(part) > room
		line = append(line, part[:min(len(part), room)]...)
		if more {
			continue
		}
		text := string(line)
		if !utf8.ValidString(text) {
			text = strings.ToValidUTF8(text, "\uFFFD")
		}
		emit(Entry{Message: text, Cut: cut})
		line, cut = line[:0], false
	}
	return ctx.Err()
}
