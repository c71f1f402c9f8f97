package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

const (
	// maxWatchers of an instance; further ones are refused. maxCallers bounds all who come, with those who have not said yet who they are.
	maxWatchers = 16
	maxCallers  = 2 * maxWatchers
	// maxLines, and maxBacklog in bytes, bound what is kept for those who have not had it yet: once for all of them, so that sixteen who are slow
	// take no more of the container's memory than one, beside the line that each is being sent.
	maxLines   = 64
	maxBacklog = view.MaxLine
	// acceptPause is for what keeps callers from being let in to pass, as too many open files.
	acceptPause = time.Second
)

// hub passes what the node's probe sees of this instance on to who watches. It keeps nothing but what somebody has yet to read.
type hub struct {
	path     string
	log      *slog.Logger
	patience time.Duration
	long     sync.Once // a line that was too long is worth one of the log

	mu       sync.Mutex
	probe    *caller // the newest; nil for none
	watchers map[*watcher]struct{}
	lines    [][]byte // that not every watcher has had
	first    uint64   // is the number of the first of these
	size     int      // of all of these
}

// watcher is somebody who is shown what the probe sends.
type watcher struct {
	*caller
	want view.Want
	told *bool  // whether there is a probe; nil for nothing yet
	next uint64 // is the number of the line that it is shown next
}

func newHub(path string, log *slog.Logger) *hub {
	return &hub{path: path, log: log, patience: callerPatience, watchers: map[*watcher]struct{}{}}
}

// run until the context ends. An agent whose hub cannot listen does all else.
func (h *hub) run(ctx context.Context) {
	l, err := h.listen(ctx)
	if err != nil {
		if ctx.Err() == nil {
			h.log.Warn("what the probe of the node sees of this instance cannot be watched", "error", err.Error())
		}
		return
	}
	h.serve(ctx, l)
}

// listen in the place of an agent before. Probes are root, with no right to pass over a file's mode: so everybody may connect who can come
// to the socket at all (decision 0017).
func (h *hub) listen(ctx context.Context) (net.Listener, error) {
	if err := os.Remove(h.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an agent before: %w", err)
	}
	var made net.ListenConfig
	l, err := made.Listen(ctx, "unix", h.path)
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	if err := os.Chmod(h.path, 0o666); err != nil {
		_ = l.Close() // a probe could not connect
		return nil, fmt.Errorf("open the socket to the probe: %w", err)
	}
	return l, nil
}

// serve who comes, until the context ends or the listener is closed.
func (h *hub) serve(ctx context.Context, l net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	l = netutil.LimitListener(l, maxCallers)
	context.AfterFunc(ctx, func() { _ = l.Close() }) // which ends the loop
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			callers.Go(func() { h.receive(ctx, conn) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

// receive who comes, and stay with it until one of the two goes.
func (h *hub) receive(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }() // it may be closed already: all has been said
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c := newCaller(conn, h.patience)
	hello, err := c.hello()
	switch {
	case err != nil:
		c.refuse(err.Error())
	case hello.Probe != "":
		h.follow(c)
	default:
		h.show(c, *hello.Want)
	}
}

// follow a probe, in the place of an earlier one: that is one which was started again, and may not have heard of its end.
func (h *hub) follow(c *caller) {
	h.mu.Lock()
	before := h.probe
	h.probe = c
	h.wakeWatchers()
	h.mu.Unlock()
	if before != nil {
		_ = before.conn.Close() // nobody listens to it any more
	}
	var told *view.Want
	c.converse(func() []byte {
		now := h.wanted()
		if told != nil && *told == now {
			return nil
		}
		told = &now
		return lineOf(now)
	}, func() {
		for {
			line, err := readLine(c.in, view.MaxLine)
			if errors.Is(err, errLong) {
				h.long.Do(func() { h.log.Warn("the probe is not heard", "error", err.Error()) })
			}
			if err != nil || !h.pass(c, line) {
				return
			}
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probe == c {
		h.probe = nil
		h.wakeWatchers()
	}
}

// wanted is what all watchers want together.
func (h *hub) wanted() view.Want {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all view.Want
	for w := range h.watchers {
		all.Table, all.Told = all.Table || w.want.Table, all.Told || w.want.Told
	}
	return all
}

// pass a line of the probe on; false if there is a newer one. The oldest lines make room for it.
func (h *hub) pass(from *caller, line []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probe != from {
		return false
	}
	if len(h.watchers) == 0 {
		return true // it was on its way when the last one went
	}
	h.lines = append(h.lines, line)
	h.size += len(line)
	for len(h.lines) > maxLines || h.size > maxBacklog {
		h.drop(1)
	}
	h.wakeWatchers()
	return true
}

// drop the first lines.
func (h *hub) drop(n int) {
	for _, line := range h.lines[:n] {
		h.size -= len(line)
	}
	h.lines = slices.Delete(h.lines, 0, n)
	h.first += uint64(n)
}

// end is the number of the line that the probe sends next.
func (h *hub) end() uint64 { return h.first + uint64(len(h.lines)) }

// trim lets go of what every watcher has had.
func (h *hub) trim() {
	slowest := h.end()
	for w := range h.watchers {
		slowest = min(slowest, w.next)
	}
	if slowest > h.first {
		h.drop(int(slowest - h.first))
	}
}

func (h *hub) wakeWatchers() {
	for w := range h.watchers {
		w.nudge()
	}
}

// show a watcher what the probe sends, from now on.
func (h *hub) show(c *caller, want view.Want) {
	w := &watcher{caller: c, want: want}
	if !h.join(w) {
		c.refuse(fmt.Sprintf("%d others watch this instance, and no more can: try again when one of them has gone", maxWatchers))
		return
	}
	defer h.part(w)
	c.converse(func() []byte { return h.forWatcher(w) }, func() {
		_, _ = io.Copy(io.Discard, c.in) // it has nothing to say; this ends when it is gone
	})
}

func (h *hub) join(w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) >= maxWatchers {
		return false
	}
	w.next = h.end()
	h.watchers[w] = struct{}{}
	if h.probe != nil {
		h.probe.nudge()
	}
	return true
}

func (h *hub) part(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
	h.trim()
	if h.probe != nil {
		h.probe.nudge()
	}
}

// forWatcher is what it reads next; nil for nothing now. Whether there is a probe comes first, and later in its place among the probe's lines.
func (h *hub) forWatcher(w *watcher) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := h.probe != nil
	some := w.next < h.end()
	switch {
	case w.told == nil, !some && *w.told != there:
		w.told = &there
		return lineOf(view.Line{Probe: &there})
	case !some:
		return nil
	case !*w.told: // there was one, at least
		w.told = new(true)
		return lineOf(view.Line{Probe: w.told})
	case w.next < h.first:
		lost := h.first - w.next
		w.next = h.first
		return lineOf(view.Line{Lost: lost})
	}
	line := h.lines[w.next-h.first]
	w.next++
	h.trim()
	return line
}
