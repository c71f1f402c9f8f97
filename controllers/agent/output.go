package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// output is what the server says, from the pipe that it writes to. It hands on whole lines only, so that the reading can stop between two
// and go on in another program: nothing is lost, and the server never waits for longer than the stop takes.
type output struct {
	from *os.File

	stopped chan struct{} // a reader has stopped
	again   chan struct{} // and goes on
	stop    bool          // of the reader: it met the deadline

	chunk []byte
	ready []byte // whole lines
	part  []byte // of a line that has not ended
}

func newOutput(from *os.File, part []byte) *output {
	return &output{from: from, part: part, stopped: make(chan struct{}), again: make(chan struct{}), chunk: make([]byte, 16<<10)}
}

// Read gives whole lines. It says that it is at the end when it was asked to stop.
func (o *output) Read(p []byte) (int, error) {
	for len(o.ready) == 0 {
		n, err := o.from.Read(o.chunk)
		o.part = append(o.part, o.chunk[:n]...)
		switch end := bytes.LastIndexByte(o.part, '\n'); {
		case end >= 0:
			o.ready, o.part = o.part[:end+1], bytes.Clone(o.part[end+1:])
		case len(o.part) > maxEntry:
			o.ready, o.part = o.part, nil // whoever reads cuts it
		}
		if len(o.ready) > 0 {
			break
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.stop = true
			return 0, io.EOF
		}
		if err != nil {
			o.ready, o.part = o.part, nil
			if len(o.ready) == 0 {
				return 0, err
			}
		}
	}
	n := copy(p, o.ready)
	o.ready = o.ready[n:]
	return n, nil
}

// forward reads the server's output to its end.
func (a *Agent) forward(o *output) {
	defer func() { _ = o.from.Close() }()
	for {
		// Until the last writer is gone: the keeper kills what holds it.
		if err := a.pump(context.Background(), o, a.logs.emit); err != nil {
			a.log.Warn("the server's log is not read any more", "error", err.Error())
			break
		}
		if !o.stop {
			return
		}
		o.stop = false
		select {
		case o.stopped <- struct{}{}:
			<-o.again
		case <-time.After(time.Second): // whoever wanted it has given up
		}
	}
	_, _ = io.Copy(io.Discard, o.from) // a server whose pipe is full stands still
}

// pause the reading, and return what is held of a line that has not ended; false if the reader is not done in time.
func (o *output) pause(patience time.Duration) ([]byte, bool) {
	if err := o.from.SetReadDeadline(time.Now()); err != nil {
		return nil, false // at its end
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-o.stopped:
		return o.part, true
	case <-late.C:
		_ = o.from.SetReadDeadline(time.Time{}) // at its end the reader finds out
		return nil, false
	}
}

// resume the reading.
func (o *output) resume() {
	_ = o.from.SetReadDeadline(time.Time{}) // at its end the reader finds out
	o.again <- struct{}{}
}
