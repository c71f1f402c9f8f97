package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// envScene makes the test binary play a scene as PID 1 of a namespace of its own, or as an ordinary process.
const envScene = "PLIMSOLL_PROCESS_SCENE"

func TestMain(m *testing.M) {
	name := os.Getenv(envScene)
	if name == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := play(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// play runs a scene beside the reaper, which needs the main goroutine.
func play(name string) error {
	wander()
	if os.Getpid() == 1 {
		if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	table, err := NewTable()
	if err != nil {
		return err
	}
	scenes := map[string]func(*Table) error{"reap": sceneReap, "stop": sceneStop, "exit": sceneExit, "exchange": sceneExchange}
	if scenes["adopted"], err = adopted(table); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- scenes[name](table)
	}()
	if err := table.Reap(ctx); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	default:
		return errors.New("the scene did not end in time")
	}
}

// wander gives the runtime every reason to move the main goroutine to another thread, as it may between init and main.
func wander() {
	var others sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		others.Go(func() {
			for range 100 {
				time.Sleep(10 * time.Microsecond)
			}
		})
	}
	for range 100 {
		time.Sleep(10 * time.Microsecond)
	}
	others.Wait()
}

// sceneReap runs many children that somebody waits for, among many orphans, and compares every exit status.
func sceneReap(t *Table) error {
	var group sync.WaitGroup
	failures := make(chan error, 400)
	for worker := range 8 {
		group.Go(func() {
			for i := range 25 {
				want := (worker*25 + i) % 120
				script := fmt.Sprintf("(exit 77) & (sleep 0.00%d; exit 78) & exit %d", i%10, want)
				err := exec.Command("/bin/sh", "-c", script).Run()
				var failed *exec.ExitError
				switch {
				case want == 0 && err == nil:
				case !errors.As(err, &failed):
					failures <- fmt.Errorf("child %d of worker %d: %w, want exit code %d", i, worker, err, want)
				case failed.ExitCode() != want:
					failures <- fmt.Errorf("child %d of worker %d: exit code %d, want %d", i, worker, failed.ExitCode(), want)
				}
				p, err := t.Start(Spec{Path: "/bin/sh", Args: []string{"-c", script}})
				if err != nil {
					failures <- err
					continue
				}
				if got := p.Exit().Code; got != want {
					failures <- fmt.Errorf("process %d of worker %d: exit code %d, want %d", i, worker, got, want)
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	return t.eventuallyAlone()
}

func (t *Table) eventuallyAlone() error {
	var left []int
	for range 500 {
		var err error
		if left, err = t.others(); err != nil || len(left) == 0 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("processes %v are left; the orphans were not reaped", left)
}

// sceneStop starts processes that try to survive, and ends them.
func sceneStop(t *Table) error {
	tree := `
trap '' TERM INT HUP QUIT
setsid sh -c 'trap "" TERM; sleep 300 & wait' &
(sh -c 'kill -STOP $$; sleep 300') &
(while :; do (sleep 300 &); sleep 0.002; done) &
setsid sh -c 'while :; do setsid sleep 300 & sleep 0.002; done' &
sleep 300 &
wait`
	p, err := t.Start(Spec{Path: "/bin/sh", Args: []string{"-c", tree}})
	if err != nil {
		return err
	}
	var before []int
	for begin := time.Now(); len(before) < 20; time.Sleep(100 * time.Millisecond) {
		if before, err = t.others(); err != nil {
			return err
		}
		if time.Since(begin) > 20*time.Second {
			return fmt.Errorf("only %d processes started: the scene proves nothing", len(before))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	took, err := t.HardStop(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("hard stop of %d processes took %s\n", len(before), took)
	if got := p.Exit(); got.Signal != syscall.SIGKILL {
		return fmt.Errorf("the server ended by %s, want SIGKILL", got)
	}
	if _, err := t.HardStop(ctx); err != nil {
		return fmt.Errorf("second hard stop: %w", err)
	}
	return t.eventuallyAlone()
}

// sceneExit sees the server's exit at once, although a grandchild holds its output open.
func sceneExit(t *Table) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := t.Start(Spec{Path: "/bin/sh", Args: []string{"-c", "setsid sleep 300 & sleep 0.2; kill -9 $$"}, Stdout: w, Stderr: w})
	if err != nil {
		return err
	}
	w.Close()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if !p.WaitDone(ctx) {
		return errors.New("the exit was not seen")
	}
	fmt.Printf("exit seen %s after start, want 200ms and little more\n", time.Since(begin))
	if diff := cmp.Diff("signal killed", p.Exit().String()); diff != "" {
		return errors.New(diff)
	}
	_, err = t.HardStop(ctx)
	return err
}

func TestScenes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, scene := range []string{"reap", "stop", "exit"} {
		for place, attr := range map[string]*syscall.SysProcAttr{
			"as PID 1":               {Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL},
			"as an ordinary process": {Pdeathsig: syscall.SIGKILL},
		} {
			t.Run(scene+" "+place, func(t *testing.T) {
				if attr.Cloneflags != 0 && os.Getuid() != 0 {
					t.Skip("a PID namespace of its own needs root")
				}
				attr.Unshareflags = 0
				cmd := exec.CommandContext(t.Context(), self)
				cmd.Env = append(os.Environ(), envScene+"="+scene)
				cmd.SysProcAttr = attr
				out, err := cmd.CombinedOutput()
				t.Logf("%s", out)
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestReapRefusesAnotherThread(t *testing.T) {
	table := &Table{self: -1, proc: "/proc"} // no thread has this id, whichever the test runs on
	done := make(chan error, 1)
	go func() { done <- table.Reap(t.Context()) }()
	if err := <-done; !errors.Is(err, errNotMainThread) {
		t.Fatalf("got %v, want %v", err, errNotMainThread)
	}
}

func TestParseStat(t *testing.T) {
	rows := map[string]struct {
		raw  string
		want stat
		ok   bool
	}{
		"a plain line":                             {"42 (postgres) S 1 42 42 0", stat{'S', 1}, true},
		"a name with spaces and parentheses":       {"42 (a) R (b c) Z 17 42 42", stat{'Z', 17}, true},
		"a line that was cut":                      {"42 (postgres", stat{}, false},
		"a line without a parent":                  {"42 (postgres) S", stat{}, false},
		"a parent that is no number":               {"42 (postgres) S x", stat{}, false},
		"an empty file, as of a process that left": {"", stat{}, false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			got, ok := parseStat([]byte(row.raw))
			if got != row.want || ok != row.ok {
				t.Fatalf("got %v %v, want %v %v", got, ok, row.want, row.ok)
			}
		})
	}
}

// TestDead looks at process trees that this machine cannot be made to show on demand.
func TestDead(t *testing.T) {
	const pending, none = "0000000000000100", "0000000000000000"
	type thread struct{ state, own, shared string }
	rows := map[string]struct {
		threads []thread
		want    bool
	}{
		"a sleeping process lives":                                      {[]thread{{"S", none, none}}, false},
		"a zombie is dead":                                              {[]thread{{"Z", none, none}}, true},
		"a zombie whose second thread runs lives":                       {[]thread{{"Z", none, none}, {"R", none, none}}, false},
		"uninterruptible sleep with the kill pending is dead":           {[]thread{{"D", pending, none}}, true},
		"uninterruptible sleep with the process's kill pending is dead": {[]thread{{"D", none, pending}}, true},
		"uninterruptible sleep without a kill lives":                    {[]thread{{"D", none, none}}, false},
		"one thread of two without the kill lives":                      {[]thread{{"D", pending, none}, {"D", none, none}}, false},
		"a running thread with the kill pending still lives":            {[]thread{{"R", pending, none}}, false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			table := &Table{self: 1, init: true, proc: t.TempDir()}
			for i, th := range row.threads {
				dir := filepath.Join(table.proc, "50", "task", strconv.Itoa(50+i))
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, "stat"), "50 (postgres) "+th.state+" 1 50 50")
				write(t, filepath.Join(dir, "status"), strings.Join([]string{"Name:\tpostgres", "SigPnd:\t" + th.own, "ShdPnd:\t" + th.shared, ""}, "\n"))
			}
			if got := table.dead(50); got != row.want {
				t.Fatalf("dead is %v, want %v", got, row.want)
			}
		})
	}
	if table := (&Table{proc: t.TempDir()}); !table.dead(50) {
		t.Fatal("a process that is gone lives")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzStat: the name of a process is its own choice; it must never change whose child it is taken for.
func FuzzStat(f *testing.F) {
	f.Add("postgres", int64(17))
	f.Add(") R 1 (", int64(4194304))
	f.Add("a\n) Z 3", int64(-1))
	f.Fuzz(func(t *testing.T, name string, parent int64) {
		if parent < math.MinInt32 || parent > math.MaxInt32 {
			return
		}
		got, ok := parseStat(fmt.Appendf(nil, "42 (%s) S %d 1 1 0 -1", name, parent))
		if want := (stat{state: 'S', parent: int(parent)}); !ok || got != want {
			t.Errorf("%q of parent %d is %+v (%v)", name, parent, got, ok)
		}
	})
}

// FuzzPending: the kernel's mask says it, whatever else the file holds.
func FuzzPending(f *testing.F) {
	f.Add("SigPnd:\t0000000000000100\n")
	f.Add("Name:\tSigPnd: 0000000000000100\nShdPnd:\t0000000000000000\n")
	f.Add("SigBlk:\t0000000000000100\nSigPnd:\tzz\n")
	f.Fuzz(func(t *testing.T, text string) {
		want := false
		for _, line := range strings.SplitAfter(text, "\n") {
			for _, name := range []string{"SigPnd:", "ShdPnd:"} {
				if mask, found := strings.CutPrefix(line, name); found {
					n, ok := new(big.Int).SetString(strings.TrimSpace(mask), 16)
					want = want || ok && n.IsUint64() && n.Uint64()&0x100 != 0 && !strings.ContainsAny(mask, "+-_")
				}
			}
		}
		if got := parsePending([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	})
}
