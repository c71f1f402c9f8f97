package view

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// container is a file system with an agent in it.
type container struct {
	root string
	l    net.Listener
}

func newContainer(t *testing.T) *container {
	t.Helper()
	root, err := os.MkdirTemp("", "view-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	c := &container{root: root}
	if err := os.MkdirAll(filepath.Dir(c.socket()), 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *container) socket() string { return filepath.Join(c.root, view.Socket) }

func (c *container) open() (*os.File, error) { return os.Open(c.root) }

// agent is one end of a connection that a probe made.
type agent struct {
	net.Conn
	lines *bufio.Reader
}

func (c *container) accept(t *testing.T) *agent {
	t.Helper()
	if c.l == nil {
		l, err := net.Listen("unix", c.socket())
		if err != nil {
			t.Fatal(err)
		}
		c.l = l
		t.Cleanup(func() { l.Close() })
	}
	conn, err := c.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &agent{conn, bufio.NewReader(conn)}
}

func (a *agent) reads(t *testing.T) string {
	t.Helper()
	line, err := a.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func (a *agent) wants(t *testing.T, want view.Want) {
	t.Helper()
	if err := json.NewEncoder(a).Encode(want); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, c *container, lost *atomic.Uint64) *Link {
	t.Helper()
	l := Open(c.open, "v1.2.3", lost)
	t.Cleanup(func() {
		l.Close()
		l.ended.Wait()
	})
	return l
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestWhatIsWantedIsKnownAndWhatIsSentArrives(t *testing.T) {
	c := newContainer(t)
	l := opened(t, c, new(atomic.Uint64))
	a := c.accept(t)
	if diff := cmp.Diff(`{"probe":"v1.2.3"}`+"\n", a.reads(t)); diff != "" {
		t.Error(diff)
	}
	if l.Want() != (view.Want{}) {
		t.Errorf("it wants %+v", l.Want())
	}
	for _, want := range []view.Want{{Table: true}, {Table: true, Told: true}, {}} {
		a.wants(t, want)
		until(t, "the want", func() bool { return l.Want() == want })
	}
	l.Send([]byte(`{"told":[]}`))
	if got := a.reads(t); got != `{"told":[]}`+"\n" {
		t.Errorf("arrived: %s", got)
	}
	if _, err := l.Trouble(); err != nil {
		t.Error(err)
	}
}

func TestAnAgentThatEndsWantsNothingAndIsFoundAgain(t *testing.T) {
	c := newContainer(t)
	l := opened(t, c, new(atomic.Uint64))
	a := c.accept(t)
	a.reads(t)
	a.wants(t, view.Want{Table: true})
	until(t, "the want", func() bool { return l.Want().Table })
	a.Close()
	until(t, "nothing to be wanted", func() bool { return !l.Want().Table })
	if since, err := l.Trouble(); err == nil || time.Since(since) > time.Minute || l.Gone() {
		t.Errorf("of the connection that has ended it says %v, since %v", err, since)
	}
	again := c.accept(t)
	again.reads(t)
	again.wants(t, view.Want{Told: true})
	until(t, "the want", func() bool { return l.Want().Told })
}

// A container may put what it likes where its agent listens.
func TestNoLinkLeadsOutOfAContainer(t *testing.T) {
	outside := newContainer(t)
	reached, err := net.Listen("unix", outside.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer reached.Close()
	for sentence, make := range map[string]func(c *container) error{
		"the socket is a link": func(c *container) error { return os.Symlink(outside.socket(), c.socket()) },
		"a directory is a link": func(c *container) error {
			return replaced(filepath.Dir(c.socket()), filepath.Dir(outside.socket()))
		},
		"a directory is a link upwards": func(c *container) error {
			return replaced(filepath.Join(c.root, "run"), "../"+filepath.Base(outside.root)+"/run")
		},
		"it is a file": func(c *container) error { return os.WriteFile(c.socket(), nil, 0o600) },
	} {
		t.Run(sentence, func(t *testing.T) {
			c := newContainer(t)
			if err := make(c); err != nil {
				t.Fatal(err)
			}
			l := &Link{root: c.open}
			conn, err := l.dial(t.Context())
			if err == nil {
				conn.Close()
				t.Fatal("it connected")
			}
			if !strings.Contains(err.Error(), view.Socket) {
				t.Errorf("%v does not name the socket", err)
			}
		})
	}
}

func replaced(dir, by string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Symlink(by, dir)
}

func TestNobodyWaitsForAnAgentThatDoesNotRead(t *testing.T) {
	c := newContainer(t)
	var lost atomic.Uint64
	l := opened(t, c, &lost)
	a := c.accept(t)
	a.reads(t)
	line := []byte(strings.Repeat("x", 256<<10))
	for n := 0; lost.Load() == 0; n++ {
		if n > 1000 {
			t.Fatal("nothing is lost")
		}
		l.Send(line)
	}
	before := lost.Load()
	l.Send(make([]byte, view.MaxLine))
	if got := lost.Load(); got != before+1 {
		t.Errorf("a line that is too long: lost %d after %d", got, before)
	}
	if most := l.waiting.Load(); most > mostBytes {
		t.Errorf("%d bytes wait", most)
	}
	// What was for one that has gone is for nobody else.
	a.Close()
	until(t, "nothing to wait", func() bool { return l.waiting.Load() == 0 && len(l.lines) == 0 })
}

func TestAProcessThatHasEndedIsToldFromAnAgentThatDoesNotListen(t *testing.T) {
	c := newContainer(t)
	l := opened(t, c, new(atomic.Uint64))
	until(t, "a failure", func() bool { _, err := l.Trouble(); return err != nil })
	if _, err := l.Trouble(); l.Gone() || !strings.Contains(err.Error(), view.Socket) {
		t.Errorf("nobody listens, and it says %v", err)
	}
	ended := Open(func() (*os.File, error) { return os.Open(filepath.Join(c.root, "gone")) }, "v1.2.3", new(atomic.Uint64))
	defer ended.ended.Wait()
	defer ended.Close()
	until(t, "the process to be gone", ended.Gone)
}
