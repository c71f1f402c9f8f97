package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

const (
	// callerPatience is for a caller to say who it is, and to read each part of what it is told.
	callerPatience = 5 * time.Second
	callerPart     = 64 << 10
)

// caller is who has come to the socket.
type caller struct {
	conn     net.Conn
	in       *bufio.Reader
	patience time.Duration
	wake     chan struct{} // there may be something to tell it
}

func newCaller(conn net.Conn, patience time.Duration) *caller {
	return &caller{conn: conn, in: bufio.NewReaderSize(conn, view.MaxHello), patience: patience, wake: make(chan struct{}, 1)}
}

// hello is how it begins. An error is for the caller.
func (c *caller) hello() (view.Hello, error) {
	var hello view.Hello
	if err := c.conn.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return hello, err
	}
	line, err := readLine(c.in, view.MaxHello)
	if err != nil {
		return hello, fmt.Errorf("read the first line: %w", err)
	}
	if err := json.Unmarshal(line, &hello); err != nil {
		return hello, fmt.Errorf("the first line is no JSON value of the right kind: %w", err)
	}
	if (hello.Probe != "") == (hello.Want != nil) {
		return hello, errors.New(`the first line says who comes, one of the two: {"probe":"VERSION"} or {"want":{"table":true,"told":true}}`)
	}
	return hello, c.conn.SetReadDeadline(time.Time{})
}

// converse tells it what tell has, whenever it is woken, and hears it meanwhile, until either fails.
func (c *caller) converse(tell func() []byte, hear func()) {
	gone := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		defer func() { _ = c.conn.Close() }() // which ends the hearing
		for {
			for line := tell(); line != nil; line = tell() {
				if c.write(line) != nil {
					return
				}
			}
			select {
			case <-c.wake:
			case <-gone:
				return
			}
		}
	})
	hear()
	close(gone)
	_ = c.conn.Close() // which ends a write
	telling.Wait()
}

// write a line. Somebody who reads it slowly has the patience's time for each part, so that only one who has stopped is cut off.
func (c *caller) write(line []byte) error {
	for part := range slices.Chunk(line, callerPart) {
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
			return err
		}
		if _, err := c.conn.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// refuse says why nothing comes.
func (c *caller) refuse(why string) { _ = c.write(lineOf(view.Line{Refused: why})) } // it may be gone

// nudge says that there may be something to tell.
func (c *caller) nudge() {
	select {
	case c.wake <- struct{}{}:
	default: // it looks again in any case
	}
}

// errLong is a line that does not end in time.
var errLong = errors.New("the line is longer than it may be")

// readLine reads the next line with its end, of so many bytes at the most.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("%w: %d bytes", errLong, most)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// lineOf a value of ours, all of which can be written.
func lineOf(v any) []byte {
	raw, _ := json.Marshal(v)
	return append(raw, '\n')
}
