package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// watchdog kills the server shortly before the leader's deadline, whatever everything else in the agent is busy with. The
// protocol's machine does so too; this is the second rope, and it holds no lock that a slow step or a slow disk could keep.
type watchdog struct {
	clock lease.Clock
	timer *os.File
	kill  func(reason string)

	mu       sync.Mutex
	deadline lease.Time
	lead     time.Duration
	fired    lease.Time
}

// newWatchdog makes a timer on the boot clock: after a suspension it fires at once, where the runtime's timers would wait on.
func newWatchdog(clock lease.Clock, kill func(string)) (*watchdog, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make the deadline's timer: %w", err)
	}
	return &watchdog{clock: clock, timer: os.NewFile(uintptr(fd), "timerfd"), kill: kill}, nil
}

// set moves the deadline; zero takes it away. The kill begins lead before it.
func (w *watchdog) set(deadline lease.Time, lead time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline, w.lead = deadline, lead
	var spec unix.ItimerSpec // zero disarms
	if deadline != 0 {
		spec.Value = unix.NsecToTimespec(int64(max(deadline.Add(-lead), 1)))
	}
	raw, err := w.timer.SyscallConn()
	if err != nil {
		return fmt.Errorf("set the deadline's timer: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil) })
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("set the deadline's timer: %w", err)
	}
	return nil
}

// run waits for the timer until the context ends.
func (w *watchdog) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = w.timer.Close() }) // wakes the read
	defer stop()
	for ctx.Err() == nil {
		var count [8]byte
		if _, err := w.timer.Read(count[:]); err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // a read fails if the timer was moved meanwhile; never spin
			continue
		}
		if binary.NativeEndian.Uint64(count[:]) > 0 && w.due() {
			w.kill("the leadership's deadline")
		}
	}
}

// due says whether the deadline still is the one that the timer was set for.
func (w *watchdog) due() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline == 0 || w.deadline == w.fired || w.clock.Now() < w.deadline.Add(-w.lead) {
		return false
	}
	w.fired = w.deadline
	return true
}
