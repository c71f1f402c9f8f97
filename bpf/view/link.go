// Package view hands what a probe counted of an instance to the instance's own agent, while somebody there wants to see it.
package view

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

const (
	// dialTimeout bounds a connection to an agent, and sendTimeout a line to it.
	dialTimeout, sendTimeout = 2 * time.Second, 5 * time.Second
	// A connection that failed or ended is tried again after a pause that doubles between these.
	minRetry, maxRetry = time.Second, time.Minute
	// mostWaiting bounds the lines that wait to be sent.
	mostWaiting = 16
)

// Link is the connection to one agent. It is made again whenever it ends, until Close.
type Link struct {
	root    func() (*os.File, error)
	version string
	want    atomic.Pointer[view.Want]
	lines   chan []byte
	lost    *atomic.Uint64
	said    atomic.Pointer[string]
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// Open begins to keep a connection to the agent of a container. Root opens the root of the container's file system; it is asked each time. Lost counts
// the lines that found no room. The link says to be a probe of this version.
func Open(root func() (*os.File, error), version string, lost *atomic.Uint64) *Link {
	ctx, stop := context.WithCancel(context.Background())
	l := &Link{root: root, version: version, lines: make(chan []byte, mostWaiting), lost: lost, stop: stop}
	l.want.Store(&view.Want{})
	l.ended.Go(func() { l.run(ctx) })
	return l
}

// Close ends the connection.
func (l *Link) Close() {
	l.stop()
	l.ended.Wait()
}

// Want is what the agent wants now: nothing while there is no connection.
func (l *Link) Want() view.Want { return *l.want.Load() }

// Trouble is why there is no connection; empty if there is one, or none was tried yet.
func (l *Link) Trouble() string {
	if said := l.said.Load(); said != nil {
		return *said
	}
	return ""
}

// Send a line without its end. It never waits: a line that finds no room is counted as lost.
func (l *Link) Send(line []byte) {
	if len(line) >= view.MaxLine {
		l.lost.Add(1)
		return
	}
	select {
	case l.lines <- line:
	default:
		l.lost.Add(1)
	}
}

func (l *Link) run(ctx context.Context) {
	pause := minRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := l.serve(ctx)
		l.want.Store(&view.Want{})
		said := fmt.Sprint(err)
		l.said.Store(&said)
		if time.Since(began) > maxRetry {
			pause = minRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRetry)
	}
}

// serve one connection until it ends.
func (l *Link) serve(ctx context.Context) error {
	conn, err := l.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // nothing that was sent is worth a graceful end
	hello, err := json.Marshal(view.Hello{Probe: l.version})
	if err == nil {
		err = send(conn, hello)
	}
	if err != nil {
		_ = conn.Close() // it is of no use
		return err
	}
	l.said.Store(nil)
	var reading sync.WaitGroup
	reading.Go(func() { cancel(l.listen(conn)) })
	defer reading.Wait()
	defer func() { _ = conn.Close() }() // which ends the reading
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line := <-l.lines:
			if err := send(conn, line); err != nil {
				return err
			}
		}
	}
}

func send(conn net.Conn, line []byte) error {
	err := conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		_, err = conn.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("send to the agent: %w", err)
	}
	return nil
}

// listen for what is wanted.
func (l *Link) listen(conn net.Conn) error {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 256), view.MaxHello)
	for lines.Scan() {
		var want view.Want
		if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
			return fmt.Errorf("read what the agent wants: %w", err)
		}
		l.want.Store(&want)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what the agent wants: %w", err)
	}
	return errors.New("the agent ended the connection")
}

// dial the agent's socket below the root of its container. No link on the way is followed: a container may make them as it likes, and then the
// probe would speak, as root, to a socket of the node.
func (l *Link) dial(ctx context.Context) (net.Conn, error) {
	root, err := l.root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), strings.TrimPrefix(view.Socket, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "find the agent's socket", Path: view.Socket, Err: err}
	}
	socket := os.NewFile(uintptr(fd), view.Socket)
	defer socket.Close()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("connect to the agent's socket %s: %w", view.Socket, err)
	}
	return conn, nil
}
