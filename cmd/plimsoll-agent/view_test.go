package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// TestShow ends by each of the three who take part, and until then shows what the agent passes on as it comes.
func TestShow(t *testing.T) {
	const hello, lines = `{"want":{"table":true}}` + "\n", "{\"probe\":true}\n{\"table\":{}}\n"
	for sentence, row := range map[string]struct {
		end  func(agent net.Conn, in *io.PipeWriter, out *io.PipeReader)
		want string
	}{
		"the agent hangs up":  {end: func(agent net.Conn, _ *io.PipeWriter, _ *io.PipeReader) { _ = agent.Close() }},
		"standard input ends": {end: func(_ net.Conn, in *io.PipeWriter, _ *io.PipeReader) { _ = in.Close() }},
		"nobody reads": {
			end: func(agent net.Conn, _ *io.PipeWriter, out *io.PipeReader) {
				_ = out.CloseWithError(errors.New("nobody reads"))
				_, _ = io.WriteString(agent, lines)
			},
			want: "show what the agent passes on: nobody reads",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "view.sock")
			l := must(net.Listen("unix", at))(t)
			defer func() { _ = l.Close() }()
			in, typed := io.Pipe()
			said, out := io.Pipe()
			defer func() { _, _ = typed.Close(), said.Close() }()
			ended := make(chan error, 1)
			go func() { ended <- show(at, view.Want{Table: true}, in, out) }()
			agent := must(l.Accept())(t)
			defer func() { _ = agent.Close() }()
			if got := must(bufio.NewReader(agent).ReadString('\n'))(t); got != hello {
				t.Errorf("it says %q, want %q", got, hello)
			}
			if _, err := io.WriteString(agent, lines); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(lines))
			if _, err := io.ReadFull(said, got); err != nil || string(got) != lines {
				t.Errorf("it shows %q, want %q: %v", got, lines, err)
			}
			if _, err := io.WriteString(typed, "q\n"); err != nil { // which is nothing to it
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				t.Fatalf("it ended with %v while all were there", err)
			case <-time.After(50 * time.Millisecond):
			}
			row.end(agent, typed, said)
			if err := <-ended; (err == nil) != (row.want == "") || err != nil && err.Error() != row.want {
				t.Errorf("it ended with %v, want %q", err, row.want)
			}
		})
	}
}

// TestShowNeedsAnAgent that listens: one of an earlier release does not, nor does one that has gone.
func TestShowNeedsAnAgent(t *testing.T) {
	at := filepath.Join(t.TempDir(), "view.sock")
	gone := must(net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"}))(t)
	gone.SetUnlinkOnClose(false)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{at, at + ".missing"} {
		err := show(path, view.Want{}, strings.NewReader(""), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), "if it is of this release, its log says why: dial unix "+path) {
			t.Errorf("got %v", err)
		}
	}
}

// watched is a connection to the member's agent that is told what its probe sees.
func (m *memberPod) watched(t *testing.T) *bufio.Reader {
	t.Helper()
	conn := must(net.Dial("unix", m.pod.Agent.ViewSocket))(t)
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10*time.Minute + busy)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, `{"want":{"table":true}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if got := must(in.ReadString('\n'))(t); got != `{"probe":false}`+"\n" {
		t.Errorf("the agent of %s says %q", m.name, got)
	}
	return in
}
