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
	// mostWaiting bounds the lines that wait to be sent, and mostBytes all of them together: the room that a link takes while its agent does not read.
	mostWaiting, mostBytes = 16, view.MaxLine
	// heedPause is after each line that an agent sends, so that one that sends without an end costs no more than that.
	heedPause = 100 * time.Millisecond
)

// Link is the connection to one agent. It is made again whenever it ends, until Close.
type Link struct {
	root    func() (*os.File, error)
	version string
	want    atomic.Pointer[view.Want]
	lines   chan []byte
	waiting atomic.Int64 // bytes of lines
	lost    *atomic.Uint64
	trouble atomic.Pointer[trouble]
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// trouble is why there is no connection.
type trouble struct {
	err   error
	since time.Time
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

// Close ends the connection, and waits for nothing: the file system of a container may never answer.
func (l *Link) Close() { l.stop() }

// Want is what the agent wants now: nothing while there is no connection.
func (l *Link) Want() view.Want { return *l.want.Load() }

// Trouble is why there is no connection, and since when; nil if there is one, or none was tried yet.
func (l *Link) Trouble() (since time.Time, err error) {
	if t := l.trouble.Load(); t != nil {
		return t.since, t.err
	}
	return time.Time{}, nil
}

// Gone says that the process is, by which the container's root was to be found.
func (l *Link) Gone() bool {
	_, err := l.Trouble()
	return errors.Is(err, errRoot) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH))
}

// Send a line without its end. It never waits: a line that finds no room is counted as lost.
func (l *Link) Send(line []byte) {
	if len(line) >= view.MaxLine {
		l.lost.Add(1)
		return
	}
	size := int64(len(line))
	if l.waiting.Add(size) <= mostBytes {
		select {
		case l.lines <- line:
			return
		default:
		}
	}
	l.waiting.Add(-size)
	l.lost.Add(1)
}

// forget the lines that wait for a connection that has ended: who watches next is shown nothing old.
func (l *Link) forget() {
	for {
		select {
		case line := <-l.lines:
			l.waiting.Add(-int64(len(line)))
			l.lost.Add(1)
		default:
			return
		}
	}
}

func (l *Link) run(ctx context.Context) {
	pause := minRetry
	for ctx.Err() == nil {
		before := l.trouble.Load()
		served, err := l.serve(ctx)
		l.want.Store(&view.Want{})
		l.forget()
		now := &trouble{err, time.Now()}
		if served {
			pause = minRetry
		} else if before != nil {
			now.since = before.since
		}
		l.trouble.Store(now)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRetry)
	}
}

// serve one connection until it ends, and say whether there was one.
func (l *Link) serve(ctx context.Context) (served bool, err error) {
	conn, err := l.dial(ctx)
	if err != nil {
		return false, err
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
		return false, err
	}
	l.trouble.Store(nil)
	var reading sync.WaitGroup
	reading.Go(func() { cancel(l.listen(conn)) })
	defer reading.Wait()
	defer func() { _ = conn.Close() }() // which ends the reading
	for {
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case line := <-l.lines:
			l.waiting.Add(-int64(len(line)))
			if err := send(conn, line); err != nil {
				return true, err
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
		time.Sleep(heedPause)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what the agent wants: %w", err)
	}
	return errors.New("the agent ended the connection")
}

// errRoot is that the root of a container cannot be opened.
var errRoot = errors.New("find the file system of the container")

// dial the agent's socket below the root of its container. No link on the way is followed: a container may make them as it likes, and then the
// probe would speak, as root, to a socket of the node.
func (l *Link) dial(ctx context.Context) (net.Conn, error) {
	root, err := l.root()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRoot, err)
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
