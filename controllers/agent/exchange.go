package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/process"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// exchangePatience is how long a program that was sent waits for a quiet moment before it is given up.
	exchangePatience = time.Minute
	// Between two attempts.
	minExchangePause = 100 * time.Millisecond
	maxExchangePause = 3 * time.Second
	// doorPatience is what requests that are under way get to end; outputPatience what the reader of the log gets to stop between two lines.
	doorPatience   = 300 * time.Millisecond
	outputPatience = 200 * time.Millisecond
	// holdPatience bounds the wait for those who must stand still.
	holdPatience = 500 * time.Millisecond
)

// exchange replaces this process's program by another one, under a running server.
type exchange struct {
	agent  *Agent
	engine Engine
	table  *process.Table
	leave  <-chan struct{} // the member was asked to end

	receiving sync.Mutex // one program at a time

	mu      sync.Mutex
	digest  string // of this program
	under   *engine.Exchange
	program *os.File
	wake    chan struct{}
}

func newExchange(a *Agent, e Engine, t *process.Table) *exchange {
	return &exchange{agent: a, engine: e, table: t, wake: make(chan struct{}, 1)}
}

// told is for the report.
func (e *exchange) told() (string, *engine.Exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.under == nil {
		return e.digest, nil
	}
	under := *e.under
	return e.digest, &under
}

// take a program that was sent. It is checked here, so that who sent it hears what is wrong; it begins at the next quiet moment.
func (e *exchange) take(ctx context.Context, from io.Reader, size int64, digest, version string) error {
	if !e.receiving.TryLock() {
		return errors.New("another program is being received")
	}
	defer e.receiving.Unlock()
	e.mu.Lock()
	same, waits := e.digest == digest, e.program != nil
	e.mu.Unlock()
	if same {
		return nil // it runs already
	}
	if waits {
		return errors.New("another program waits for a quiet moment already")
	}
	if err := e.quiet(ctx); err != nil {
		return fmt.Errorf("not now: %w", err) // before megabytes come over the network
	}
	program, err := receive(from, size, digest)
	if err != nil {
		return err
	}
	if err := e.rehearse(ctx, program, digest, version); err != nil {
		_ = program.Close() // it is not wanted
		return err
	}
	e.agent.log.Info("program received", "version", version, "digest", digest, "bytes", size)
	e.mu.Lock()
	e.program, e.under = program, &engine.Exchange{Digest: digest, Version: version, Message: "waits for a quiet moment"}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return nil
}

// quiet says whether an attempt would be worth it now.
func (e *exchange) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	_, release, err := e.still(ctx)
	if err != nil {
		return err
	}
	release()
	return nil
}

// rehearse has the program read what it would be left now.
func (e *exchange) rehearse(ctx context.Context, program *os.File, digest, version string) error {
	still, end := context.WithTimeout(ctx, holdPatience)
	k, release, err := e.still(still)
	end()
	if err != nil {
		return fmt.Errorf("not now: %w", err)
	}
	release()
	k.Digest, k.Version, k.Doors = digest, version, make([]int, doors)
	if k.Keeper.Life == up {
		k.Output = 3 // any
	}
	raw, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("write what the next program needs: %w", err)
	}
	return check(ctx, program, raw)
}

// still makes keeper and leadership stand still, and returns what they keep.
func (e *exchange) still(ctx context.Context) (*Kept, func(), error) {
	a := e.agent
	held, letKeeper, err := a.keeper.hold(ctx)
	if err != nil {
		return nil, nil, err
	}
	leadership, letLeadership, err := a.runner.Hold(ctx)
	if err != nil {
		letKeeper()
		return nil, nil, err
	}
	k := &Kept{Format: keptFormat, UID: a.cfg.UID, Instance: a.cfg.Instance, Lease: leadership, Keeper: held.kept}
	k.output = held.out
	return k, func() { letLeadership(); letKeeper() }, nil
}

// run tries until the program is another one, or was given up.
func (e *exchange) run(ctx context.Context) {
	e.identify()
	for {
		select {
		case <-ctx.Done():
			e.drop("", false)
			return
		case <-e.wake:
		}
		e.attempts(ctx)
	}
}

// identify this program. Of one that was received the digest was checked before it began.
func (e *exchange) identify() {
	if digest, _ := e.told(); digest != "" {
		return
	}
	digest, err := digestOfSelf()
	if err != nil {
		e.agent.log.Warn("the agent's program is not known", "error", err.Error())
		return
	}
	e.mu.Lock()
	e.digest = digest
	e.mu.Unlock()
	e.agent.sampler.nudge() // and so told
}

func (e *exchange) attempts(ctx context.Context) {
	end := time.Now().Add(exchangePatience)
	for try := 0; ; try++ {
		err := e.attempt(ctx)
		e.agent.log.Info("program not exchanged yet", "reason", err.Error())
		if ctx.Err() != nil {
			return
		}
		if time.Now().After(end) || !errors.Is(err, lease.ErrBusy) {
			e.drop(err.Error(), true)
			return
		}
		e.mu.Lock()
		e.under.Message = "waits for a quiet moment: " + err.Error()
		e.mu.Unlock()
		pause := time.NewTimer(backoff(minExchangePause, maxExchangePause, try))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// drop the program.
func (e *exchange) drop(why string, failed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.program == nil {
		return
	}
	_ = e.program.Close() // its memory is the server's
	e.program = nil
	e.under.Failed, e.under.Message = failed, why
	if failed {
		e.agent.log.Warn("the program was given up; this one goes on", "digest", e.under.Digest, "reason", why)
	}
}

// attempt returns only if it failed, and then all is as before.
func (e *exchange) attempt(ctx context.Context) error {
	a := e.agent
	ctx, cancel := context.WithTimeout(ctx, 2*holdPatience)
	defer cancel()
	if err := e.quiet(ctx); err != nil {
		return err // before anybody is kept waiting
	}
	for _, d := range a.doors {
		d.shut(doorPatience)
		defer func() {
			if err := d.open(); err != nil {
				d.fail(err)
			}
		}()
	}
	if !a.sampler.pause(holdPatience) {
		return fmt.Errorf("%w: a look at the server", lease.ErrBusy)
	}
	defer a.sampler.mu.Unlock()
	k, release, err := e.still(ctx)
	if err != nil {
		return err
	}
	defer release()
	if out := k.output; out != nil {
		part, ok := out.pause(outputPatience)
		if !ok {
			return fmt.Errorf("%w: the server's output", lease.ErrBusy)
		}
		defer out.resume()
		k.Part = part
	}
	if !a.keepRest(k) {
		return fmt.Errorf("%w: an aim or a report", lease.ErrBusy)
	}
	time.Sleep(2 * time.Millisecond) // a request to end that came before this is known by now; one that comes later waits for the next program
	select {
	case <-e.leave:
		return errors.New("the member was asked to end")
	default:
	}
	// From here on nothing may wait for anything: the watchdog could not stop the server.
	if !a.keeper.killing.TryLock() {
		return fmt.Errorf("%w: a hard stop", lease.ErrBusy)
	}
	defer a.keeper.killing.Unlock()
	return e.become(k)
}

// become the next program. It returns only if that fails.
func (e *exchange) become(k *Kept) (err error) {
	var files []int
	defer func() {
		for _, fd := range files {
			_ = unix.Close(fd) // a copy
		}
	}()
	leave := func(of interface {
		Control(f func(fd uintptr)) error
	},
	) int {
		fd, failed := bequeath(of)
		if failed != nil {
			err = errors.Join(err, failed)
			return 0
		}
		files = append(files, fd)
		return fd
	}
	raw := func(f interface {
		SyscallConn() (syscall.RawConn, error)
	},
	) int {
		c, failed := f.SyscallConn()
		if failed != nil {
			err = errors.Join(err, failed)
			return 0
		}
		return leave(c)
	}
	e.mu.Lock()
	program := e.program
	k.Digest, k.Version = e.under.Digest, e.under.Version
	e.mu.Unlock()
	for _, d := range e.agent.doors {
		k.Doors = append(k.Doors, raw(d.listener))
	}
	if k.output != nil {
		k.Output = raw(k.output.from)
	}
	if e.engine.Held != nil {
		f, idle := e.engine.Held()
		if !idle {
			return fmt.Errorf("%w: the engine", lease.ErrBusy)
		}
		if f != nil {
			k.Held = raw(f)
		}
	}
	if err != nil {
		return fmt.Errorf("leave open files: %w", err)
	}
	kept, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("write what the next program needs: %w", err)
	}
	f, err := inMemory("plimsoll-kept", false)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // in memory
	if _, err := f.Write(kept); err != nil {
		return fmt.Errorf("write what the next program needs: %w", err)
	}
	fd := raw(f)
	if err != nil {
		return fmt.Errorf("leave open files: %w", err)
	}
	return e.table.Become(program, os.Args, withKept(os.Environ(), fd))
}

// keepRest keeps what reports and requests rest on, and waits for nobody: an aim may be on its way to a volume that hangs.
func (a *Agent) keepRest(k *Kept) bool {
	if !a.taking.TryLock() {
		return false
	}
	k.Asked = keptPatience{ID: a.asked.id, Until: a.asked.until}
	a.taking.Unlock()
	kept, ok := a.reporter.keep()
	if !ok {
		return false
	}
	k.Sampler = keptSampler{HasData: a.sampler.hasData.Load(), Primary: a.sampler.primary}
	k.Reporter, k.Names = kept, a.peers.names.All()
	return true
}
