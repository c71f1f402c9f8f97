package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Lines writes each entry as one line of JSON.
type Lines struct {
	to io.Writer
}

// NewLines writes to a file or a pipe. A write that hangs holds up nobody but this sink.
func NewLines(to io.Writer) *Lines { return &Lines{to: to} }

// Name implements Sink.
func (l *Lines) Name() string { return "lines" }

// Send implements Sink.
func (l *Lines) Send(_ context.Context, entries []Entry) error {
	var b bytes.Buffer
	for _, e := range entries {
		if err := e.write(&b); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	if _, err := l.to.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write statements: %w", err)
	}
	return nil
}

// MarshalJSON gives an entry as its line has it.
func (e Entry) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := e.write(&b)
	return b.Bytes(), err
}

// write an entry as JSON. Its fields keep their order, so that people can read it.
func (e Entry) write(b *bytes.Buffer) error {
	name, said := e.event()
	_, severity := e.severity()
	all := append([]field{
		{"time", e.End.UTC().Format(time.RFC3339Nano)},
		{"severity", severity},
		{"event", name},
		{"message", said},
	}, e.Origin.fields()...)
	separator := byte('{')
	for _, f := range append(all, e.fields()...) {
		value, err := json.Marshal(f.value)
		if err != nil {
			return fmt.Errorf("write %s of a statement: %w", f.name, err)
		}
		b.WriteByte(separator)
		fmt.Fprintf(b, "%q:%s", f.name, value)
		separator = ','
	}
	b.WriteByte('}')
	return nil
}
