package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestOutputChangesHands writes lines of all sizes without a pause, in pieces, while the reading is handed from one reader to the next
// through descriptors, as programs do. Every line comes once, whole, in order.
func TestOutputChangesHands(t *testing.T) {
	read, write := pipe(t)
	const lines = 3000
	var want []string
	for i := range lines {
		want = append(want, fmt.Sprintf("%d %s", i, strings.Repeat("x", i*37%900)))
	}
	wrote := make(chan error, 1)
	go func() {
		raw := []byte(strings.Join(want, "\n") + "\n")
		for i := 0; len(raw) > 0; i++ {
			n := min(len(raw), 1+i*i%4000)
			if _, err := write.Write(raw[:n]); err != nil {
				wrote <- err
				return
			}
			raw = raw[n:]
			if i%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		wrote <- write.Close()
	}()

	var got bytes.Buffer
	a := &Agent{log: slog.New(slog.DiscardHandler), logs: &logs{out: io.Discard}, pump: func(_ context.Context, from io.Reader, emit func(Entry)) error {
		_, err := io.Copy(&got, from)
		return err
	}}
	from, part, hands := read, []byte(nil), 0
	for {
		o := newOutput(from, part)
		ended := make(chan struct{})
		go func() { defer close(ended); a.forward(o) }()
		time.Sleep(2 * time.Millisecond)
		rest, ok := o.pause(time.Second)
		if !ok {
			<-ended
			break // it is at its end
		}
		if hands%3 == 2 { // this one was called off
			o.resume()
			time.Sleep(time.Millisecond)
			if rest, ok = o.pause(time.Second); !ok {
				<-ended
				break
			}
		}
		c, err := o.from.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := bequeath(c)
		if err != nil {
			t.Fatal(err)
		}
		next, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || next&unix.FD_CLOEXEC != 0 {
			t.Fatalf("the next program would not find the descriptor: %d %v", next, err)
		}
		part = bytes.Clone(rest)
		_ = o.from.Close()
		o.part, o.ready = nil, nil
		o.again <- struct{}{} // it finds its file closed
		<-ended
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		from = inherited(fd, "output")
		hands++
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if hands < 3 {
		t.Fatalf("it changed hands %d times: that shows nothing", hands)
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(got.String(), "\n"), "\n")); diff != "" {
		t.Errorf("after %d hands (-want +got):\n%s", hands, diff)
	}
	t.Logf("%d lines in %d hands", lines, hands+1)
}

func pipe(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}
