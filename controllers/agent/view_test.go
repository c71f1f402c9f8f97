package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestTheSocketLiesWhereAgentsMayWrite: the rest of a pod's root is read-only.
func TestTheSocketLiesWhereAgentsMayWrite(t *testing.T) {
	if dir := path.Dir(view.Socket); dir != engine.RunDir {
		t.Errorf("the socket is in %s, want %s", dir, engine.RunDir)
	}
	if got := (Config{}).withDefaults().ViewSocket; got != view.Socket {
		t.Errorf("an agent listens at %s, want %s", got, view.Socket)
	}
}

// TestWatchersAndProbe is a watch from its begin to its end, by the lines of each side.
func TestWatchersAndProbe(t *testing.T) {
	h := startHub(t, nil)
	first := h.come(t, `{"want":{"table":true}}`)
	first.hears(t, `{"probe":false}`)
	probe := h.come(t, `{"probe":"v1"}`)
	probe.hears(t, `{"table":true}`)
	first.hears(t, `{"probe":true}`)
	probe.says(t, `{"table":{"rows":[], "of":"another release"}}`)
	first.hears(t, `{"table":{"rows":[], "of":"another release"}}`)

	second := h.come(t, `{"want":{"told":true}}`)
	second.hears(t, `{"probe":true}`)
	probe.hears(t, `{"table":true,"told":true}`)
	probe.says(t, `{"told":[]}`)
	first.hears(t, `{"told":[]}`)
	second.hears(t, `{"told":[]}`)

	first.goes()
	probe.hears(t, `{"told":true}`)
	third := h.come(t, `{"want":{"told":true}}`) // which is nothing new
	third.hears(t, `{"probe":true}`)
	second.goes()
	third.goes()
	probe.hears(t, `{}`)

	last := h.come(t, `{"want":{}}`)
	last.hears(t, `{"probe":true}`)
	probe.says(t, `{"told":["the last word"]}`)
	probe.goes()
	last.hears(t, `{"told":["the last word"]}`, `{"probe":false}`)
}

// TestTheNewestProbeIsHeard: an earlier one is told to go.
func TestTheNewestProbeIsHeard(t *testing.T) {
	h := startHub(t, nil)
	w := h.come(t, `{"want":{"table":true,"told":true}}`)
	w.hears(t, `{"probe":false}`)
	old := h.come(t, `{"probe":"v1"}`)
	old.hears(t, `{"table":true,"told":true}`)
	w.hears(t, `{"probe":true}`)
	next := h.come(t, `{"probe":"v2"}`)
	next.hears(t, `{"table":true,"told":true}`)
	old.ends(t)
	next.says(t, `{"table":{}}`)
	w.hears(t, `{"table":{}}`) // that there is one has not changed
	next.goes()
	w.hears(t, `{"probe":false}`)
}

// TestFirstLines that are none end the connection, and say why if they can.
func TestFirstLines(t *testing.T) {
	h := startHub(t, func(h *hub) { h.patience = time.Second })
	for sentence, row := range map[string]struct{ says, want string }{
		"nobody":                   {"{}\n", "the first line says who comes"},
		"both":                     {`{"probe":"v1","want":{}}` + "\n", "the first line says who comes"},
		"no JSON":                  {"GET / HTTP/1.1\r\n", "the first line is no JSON value"},
		"longer than it may be":    {strings.Repeat(" ", view.MaxHello+1), "longer than it may be: 4096 bytes"},
		"one that does not end":    {`{"want":`, "i/o timeout"},
		"one that does not come":   {"", "i/o timeout"},
		"as long as it may be":     {`{"want":{}}` + strings.Repeat(" ", view.MaxHello-12) + "\n", ""},
		"one of a later release":   {`{"want":{"plans":true},"as":"json"}` + "\n", ""},
		"a probe's, of no release": {`{"probe":""}` + "\n", "the first line says who comes"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := h.dial(t)
			if _, err := io.WriteString(g.conn, row.says); err != nil {
				t.Fatal(err)
			}
			var got view.Line
			if err := json.Unmarshal([]byte(g.line(t)), &got); err != nil {
				t.Fatal(err)
			}
			if row.want == "" {
				if got.Probe == nil {
					t.Errorf("it is told %+v, want whether there is a probe", got)
				}
				return
			}
			if !strings.Contains(got.Refused, row.want) {
				t.Errorf("it is refused with %q, want %q", got.Refused, row.want)
			}
			g.ends(t)
		})
	}
}

// TestWatchersAreBounded, and who was refused may come again.
func TestWatchersAreBounded(t *testing.T) {
	h := startHub(t, nil)
	var all []*guest
	for range maxWatchers {
		g := h.come(t, `{"want":{"table":true}}`)
		g.hears(t, `{"probe":false}`)
		all = append(all, g)
	}
	more := h.come(t, `{"want":{"table":true}}`)
	more.hears(t, `{"refused":"16 others watch this instance, and no more can: try again when one of them has gone"}`)
	more.ends(t)
	probe := h.come(t, `{"probe":"v1"}`)
	probe.hears(t, `{"table":true}`)
	for _, g := range all {
		g.goes()
	}
	probe.hears(t, `{}`)
	h.come(t, `{"want":{"table":true}}`).hears(t, `{"probe":true}`)
}

// TestASlowWatcherLosesLines and is told how many, while the others get all. What nobody has yet to read is not kept.
func TestASlowWatcherLosesLines(t *testing.T) {
	h := startHub(t, nil)
	slow := h.come(t, `{"want":{"told":true}}`)
	slow.hears(t, `{"probe":false}`)
	probe := h.come(t, `{"probe":"v1"}`)
	probe.hears(t, `{"told":true}`)
	slow.hears(t, `{"probe":true}`)
	quick := h.come(t, `{"want":{"told":true}}`)
	quick.hears(t, `{"probe":true}`)

	const sent = 60
	word := strings.Repeat("x", 100<<10) // more of them than fit into sockets and the backlog
	line := func(i int) string { return fmt.Sprintf(`{"told":[%q],"n":%d}`, word, i) }
	for i := range sent {
		probe.says(t, line(i))
		quick.hears(t, line(i))
		h.hub.mu.Lock()
		if n := len(h.hub.lines); n > maxLines || h.hub.size > maxBacklog {
			t.Errorf("%d lines of %d bytes are kept", n, h.hub.size)
		}
		h.hub.mu.Unlock()
	}
	got, lost, marks := 0, uint64(0), 0
	for i := 0; i < sent; {
		var l struct {
			Lost uint64
			N    int
		}
		if err := json.Unmarshal([]byte(slow.line(t)), &l); err != nil {
			t.Fatal(err)
		}
		if l.Lost > 0 {
			lost, marks, i = lost+l.Lost, marks+1, i+int(l.Lost)
			continue
		}
		if l.N != i {
			t.Fatalf("line %d comes where %d is next", l.N, i)
		}
		got, i = got+1, i+1
	}
	if lost == 0 || marks > 2 || got+int(lost) != sent {
		t.Errorf("of %d lines it got %d, and lost %d in %d places", sent, got, lost, marks)
	}
	probe.says(t, `{"told":[]}`)
	slow.hears(t, `{"told":[]}`)
	quick.hears(t, `{"told":[]}`)
	h.empty(t)
}

// TestLinesAreBounded by their number, too.
func TestLinesAreBounded(t *testing.T) {
	h := newHub("", slog.New(slog.DiscardHandler))
	w, p := &watcher{caller: newCaller(nil, 0)}, newCaller(nil, 0)
	h.probe = p
	if !h.pass(p, []byte("{}\n")) || len(h.lines) > 0 {
		t.Error("a line that nobody wants is kept, or ends its probe")
	}
	if !h.join(w) {
		t.Fatal("it is refused")
	}
	for range maxLines + 3 {
		h.pass(p, []byte("{}\n"))
	}
	var got []string
	for range 3 {
		got = append(got, string(h.forWatcher(w)))
	}
	if diff := cmp.Diff([]string{"{\"probe\":true}\n", "{\"lost\":3}\n", "{}\n"}, got); diff != "" {
		t.Errorf("it is told (-want +got):\n%s", diff)
	}
	if h.pass(newCaller(nil, 0), []byte("{}\n")) {
		t.Error("a probe that is not the newest is heard")
	}
}

// TestWhoDoesNotReadIsCutOff: a watcher, and a probe that does not hear what is wanted.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	h := startHub(t, func(h *hub) { h.patience = time.Second })
	probe := h.come(t, `{"probe":"v1"}`)
	probe.hears(t, `{}`)
	deaf := h.come(t, `{"want":{"table":true}}`)
	deaf.hears(t, `{"probe":true}`)
	probe.hears(t, `{"table":true}`)
	probe.says(t, `{"table":"`+strings.Repeat("x", view.MaxLine-13)+`"}`)
	probe.hears(t, `{}`)
	h.empty(t)
}

// TestALongLineEndsAProbe: the longest that may be is passed on, a longer one is not, and is told once.
func TestALongLineEndsAProbe(t *testing.T) {
	var log bytes.Buffer
	h := startHub(t, func(h *hub) { h.log = slog.New(slog.NewTextHandler(&log, nil)) })
	w := h.come(t, `{"want":{"table":true}}`)
	w.hears(t, `{"probe":false}`)
	for range 2 {
		probe := h.come(t, `{"probe":"v1"}`)
		probe.hears(t, `{"table":true}`)
		w.hears(t, `{"probe":true}`)
		longest := `{"table":"` + strings.Repeat("x", view.MaxLine-13) + `"}`
		probe.says(t, longest)
		w.hears(t, longest)
		_, _ = io.WriteString(probe.conn, "x"+longest+"\n") // it may be cut off before the end
		w.hears(t, `{"probe":false}`)
	}
	h.stop(t)
	if got := strings.Count(log.String(), fmt.Sprintf("longer than it may be: %d bytes", view.MaxLine)); got != 1 {
		t.Errorf("it is logged %d times:\n%s", got, log.String())
	}
}

// TestTheHubEnds with all who are there, and leaves no socket.
func TestTheHubEnds(t *testing.T) {
	h := startHub(t, nil)
	w, probe, silent := h.come(t, `{"want":{"table":true}}`), h.come(t, `{"probe":"v1"}`), h.dial(t)
	w.line(t)
	probe.line(t)
	h.stop(t)
	for _, g := range []*guest{w, probe, silent} {
		_, _ = io.Copy(io.Discard, g.in) // what was said before
		g.ends(t)
	}
	if _, err := os.Stat(h.hub.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
}

// TestTheSocketOfAnAgentBefore is replaced, and everybody who comes to it may connect.
func TestTheSocketOfAnAgentBefore(t *testing.T) {
	at := filepath.Join(t.TempDir(), "view.sock")
	before := must(net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"}))(t)
	before.SetUnlinkOnClose(false) // as one that was killed, or has become another program
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	h := startHub(t, func(h *hub) { h.path = at })
	h.come(t, `{"want":{}}`).hears(t, `{"probe":false}`)
	if mode := must(os.Stat(at))(t).Mode(); mode.Perm() != 0o666 {
		t.Errorf("the socket's mode is %s", mode)
	}
}

// TestAHubThatCannotListen says so once, and ends.
func TestAHubThatCannotListen(t *testing.T) {
	var log bytes.Buffer
	h := newHub(filepath.Join(t.TempDir(), "missing", "view.sock"), slog.New(slog.NewTextHandler(&log, nil)))
	h.run(t.Context())
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "make the socket: listen unix "+h.path) {
		t.Errorf("it says %q", got)
	}
}

// runningHub serves on a socket of its own.
type runningHub struct {
	hub    *hub
	cancel context.CancelFunc
	ended  chan struct{}
}

// startHub with a patience for machines that do much else, but for what change says.
func startHub(t *testing.T, change func(*hub)) *runningHub {
	t.Helper()
	h := newHub(filepath.Join(t.TempDir(), "view.sock"), slog.New(slog.DiscardHandler))
	h.patience = time.Minute
	if change != nil {
		change(h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &runningHub{hub: h, cancel: cancel, ended: make(chan struct{})}
	l := must(h.listen(ctx))(t)
	go func() {
		defer close(r.ended)
		h.serve(ctx, l)
	}()
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *runningHub) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(30 * time.Second):
		t.Error("the hub does not end")
	}
}

// empty waits until nothing is kept for anybody.
func (r *runningHub) empty(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r.hub.mu.Lock()
		n, size := len(r.hub.lines), r.hub.size
		r.hub.mu.Unlock()
		if n == 0 && size == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d lines of %d bytes are kept for nobody", n, size)
		}
	}
}

// guest is the other side of a connection.
type guest struct {
	conn net.Conn
	in   *bufio.Reader
}

func (r *runningHub) dial(t *testing.T) *guest {
	t.Helper()
	conn := must(net.Dial("unix", r.hub.path))(t)
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &guest{conn: conn, in: bufio.NewReader(conn)}
}

func (r *runningHub) come(t *testing.T, hello string) *guest {
	t.Helper()
	g := r.dial(t)
	g.says(t, hello)
	return g
}

func (g *guest) says(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(g.conn, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (g *guest) line(t *testing.T) string {
	t.Helper()
	line, err := g.in.ReadString('\n')
	if err != nil {
		t.Fatalf("got %q and %v, want a line", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (g *guest) hears(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if got := g.line(t); got != want {
			t.Fatalf("it hears %.200s, want %.200s", got, want)
		}
	}
}

// ends expects that the hub hangs up.
func (g *guest) ends(t *testing.T) {
	t.Helper()
	if line, err := g.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it hears %q and %v, want the end", line, err)
	}
}

func (g *guest) goes() { _ = g.conn.Close() }
