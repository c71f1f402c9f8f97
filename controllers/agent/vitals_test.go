package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// TestSign goes through what a watcher sees, look by look: each stands for a second.
func TestSign(t *testing.T) {
	type look struct {
		began  int64  // when the attempt under way began
		failed bool   // the last one came to a bad end
		effort uint64 // of whoever is asked
	}
	hangs := func(n int, effort ...uint64) (all []look) {
		for i := range n {
			l := look{began: 7}
			if i < len(effort) {
				l.effort = effort[i]
			} else if len(effort) > 0 {
				l.effort = effort[len(effort)-1]
			}
			all = append(all, l)
		}
		return all
	}
	for name, tc := range map[string]struct {
		looks []look
		fails bool
	}{
		"nothing is under way":                         {looks: make([]look, 20)},
		"each look sees another attempt":               {looks: []look{{began: 1}, {began: 2}, {began: 3}, {began: 4}, {began: 5}, {began: 6}}},
		"one attempt hangs for less than the patience": {looks: hangs(4)},
		"one attempt hangs for longer":                 {looks: hangs(5), fails: true},
		"it hangs, and whoever is asked still works":   {looks: hangs(9, 1, 2, 3, 4, 5, 6, 7, 8, 9)},
		"it hangs, and whoever is asked stops working": {looks: hangs(8, 1, 2, 3, 4, 4), fails: true},
		"it hangs for longer than anybody may work":    {looks: hangs(12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), fails: true},
		"it hung, and goes on":                         {looks: append(hangs(9), look{}), fails: false},
		"attempts come to a bad end":                   {looks: []look{{failed: true}, {failed: true}, {failed: true}, {failed: true}}, fails: true},
		"attempts come to a bad end, others' do not":   {looks: []look{{failed: true, effort: 1}, {failed: true, effort: 2}, {failed: true, effort: 3}, {failed: true, effort: 4}}, fails: true},
		"a bad end and a good one":                     {looks: []look{{failed: true}, {failed: true}, {failed: true}, {}, {failed: true}, {failed: true}}},
		"a bad end, and the next attempt is under way": {looks: []look{{failed: true}, {failed: true, began: 2}, {failed: true, began: 2}, {failed: true, began: 3}}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var effort uint64
			s := &sign{words: "nothing happened", patience: 4 * time.Second, most: 11 * time.Second, effort: func() (uint64, bool) { return effort, true }}
			why := ""
			for _, l := range tc.looks {
				s.began.Store(l.began)
				s.failed.Store(l.failed)
				effort = l.effort
				why = s.look(time.Second)
			}
			if (why != "") != tc.fails {
				t.Errorf("it says %q in the end, want a failure: %v", why, tc.fails)
			}
		})
	}
}

func TestBroken(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EIO: true, unix.EROFS: true, unix.ENODEV: true, unix.ESTALE: true,
		unix.ENOSPC: false, unix.EDQUOT: false, unix.EACCES: false, errors.New("other"): false,
	} {
		if got := broken(err); got != want {
			t.Errorf("broken(%v) is %v", err, got)
		}
	}
}

func TestPulse(t *testing.T) {
	dir := t.TempDir()
	p := &pulse{dir: dir}
	for range 3 {
		if err := p.beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, pulseName))
	if err != nil || len(raw) != 8 || raw[7] != 3 {
		t.Errorf("the file holds %v (%v), want the number of the last beat and no more", raw, err)
	}
	if _, known := room(dir); !known {
		t.Error("the room of a volume is not known")
	}
	if err := (&pulse{dir: filepath.Join(dir, "absent")}).beat(t.Context()); err == nil {
		t.Error("a volume that is not there takes writes")
	}
	if _, known := computed(os.Getpid()); !known {
		t.Error("the kernel does not tell how long this process has run")
	}
	if _, known := computed(0); known {
		t.Error("no process has run")
	}
	if _, known := (device{path: filepath.Join(dir, "absent")}).writes(); known {
		t.Error("a volume without a device has written")
	}
}

func TestDeviceCountsWritesAndFlushes(t *testing.T) {
	for name, tc := range map[string]struct {
		stat  string
		want  uint64
		known bool
	}{
		"a kernel that counts flushes": {"1 2 3 4 50 6 7 8 9 10 11 12 13 14 15 600 17\n", 650, true},
		"an older kernel":              {"1 2 3 4 50 6 7 8 9 10 11\n", 50, true},
		"something else":               {"a b c d e f", 0, false},
		"nothing":                      {"", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stat")
			if err := os.WriteFile(path, []byte(tc.stat), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, known := (device{path: path}).writes(); got != tc.want || known != tc.known {
				t.Errorf("%d, %v; want %d, %v", got, known, tc.want, tc.known)
			}
		})
	}
}

// TestVitalsDoNotWaitForWhatHangs: a sign that hangs for good is told, well again when it goes on, and holds up nobody at the end.
func TestVitalsDoNotWaitForWhatHangs(t *testing.T) {
	var hang atomic.Bool
	release := make(chan struct{})
	told := make(chan string, 8)
	v := &vitals{clock: lease.BootClock{}, told: func(why []string) { told <- why[0] }, signs: []*sign{{
		words: "nothing happened", every: time.Millisecond, patience: 300 * time.Millisecond,
		do: func(context.Context) error {
			if hang.Load() {
				<-release
			}
			return nil
		},
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { v.run(ctx); close(ended) }()
	hang.Store(true)
	if why := <-told; !strings.Contains(why, "nothing happened for ") {
		t.Errorf("told %q", why)
	}
	hang.Store(false)
	release <- struct{}{}
	if why := <-told; why != "" {
		t.Errorf("told %q after it went on", why)
	}
	hang.Store(true)
	<-told
	cancel()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the end waits for what hangs")
	}
	close(release)
}

func TestOneAnswerThatGetsLostIsAskedForAgain(t *testing.T) {
	asked := 0
	s := &sign{limit: time.Millisecond, do: func(ctx context.Context) error {
		if asked++; asked < 3 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	if err := s.once(t.Context()); err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

func TestKeeperKillsAServerThatAnswersNobody(t *testing.T) {
	b := newBench(t, politeServer)
	b.decide(leading8())
	b.until("it leads", obeys(1, lease.ServerPrimary))
	pid := b.k.told().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.k.freeze(pid)
	b.until("its end is told as that of any server", func(_ word, f lease.Facts) bool { return f.Server == lease.ServerStopped && !f.BackAtOnce })
	b.until("it starts again, for the decision stands", func(w word, f lease.Facts) bool { return f.Server == lease.ServerPrimary && w.PID != pid })
}

func TestServerWithoutRoomWaitsForSome(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a volume of its own needs root")
	}
	volume := t.TempDir()
	if err := syscall.Mount("tmpfs", volume, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mount a volume: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(volume, syscall.MNT_DETACH) })
	b := newBench(t, politeServer)
	b.k.cfg.DataDir = volume // before the first decision the keeper's loop does not read it
	b.decide(leading8())
	b.until("it leads", obeys(1, lease.ServerPrimary))
	filler := filepath.Join(volume, "filler")
	if err := os.WriteFile(filler, make([]byte, 48<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	pid := b.k.told().PID
	if err := syscall.Kill(pid, syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	b.until("it waits for room", func(w word, f lease.Facts) bool {
		return f.Full && f.BackAtOnce && f.Server == lease.ServerStopped && w.Trouble.Reason == volumeFull
	})
	time.Sleep(3 * fallPause)
	if w := b.k.told(); w.Server.Life != down {
		t.Errorf("a server was started without room: %+v", w.Server)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	b.until("it leads again", func(w word, f lease.Facts) bool {
		return !f.Full && f.Server == lease.ServerPrimary && w.PID != pid && w.Trouble == (trouble{})
	})
}
