package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// keptFormat numbers what Kept means. A program understands its own format alone; one that it does not is never begun with, and the
// program that runs goes on.
const keptFormat = 1

// EnvKept names the file descriptor by which a program gets what the one before it left. The server does not see it.
const EnvKept = "PLIMSOLL_KEPT"

// maxKept bounds it.
const maxKept = 1 << 20

// Kept is all that outlives the exchange of the agent's program under a running server. Files are numbers of descriptors that stay open.
type Kept struct {
	Format   int    `json:"format"`
	UID      string `json:"uid"`
	Instance string `json:"instance"`
	// Digest and Version of the program that it is for.
	Digest  string `json:"digest"`
	Version string `json:"version"`

	Lease  lease.Kept `json:"lease"`
	Keeper keptKeeper `json:"keeper"`
	// Doors are the listeners, as they are opened; Output is the server's, with the line that has not ended; Held is the engine's.
	Doors  []int  `json:"doors"`
	Output int    `json:"output"`
	Part   []byte `json:"part,omitempty"`
	Held   int    `json:"held"`

	Sampler  keptSampler  `json:"sampler"`
	Reporter keptReporter `json:"reporter"`
	// Names are the addresses of hosts: the leader must find the members although DNS is away.
	Names map[string]string `json:"names,omitempty"`
	Asked keptPatience      `json:"asked"`

	output *output // of this program
}

type keptSampler struct {
	HasData bool `json:"hasData"`
	Primary int  `json:"primary"`
}

type keptReporter struct {
	HandOver *engine.HandOver  `json:"handOver,omitempty"`
	Raised   *engine.Raise     `json:"raised,omitempty"`
	Former   string            `json:"former"`
	Step     lease.Time        `json:"step"`
	Aborted  map[string]string `json:"aborted,omitempty"`
}

type keptPatience struct {
	ID    string     `json:"id"`
	Until lease.Time `json:"until"`
}

// lease is the leadership's part; nil without any.
func (k *Kept) lease() *lease.Kept {
	if k == nil {
		return nil
	}
	return &k.Lease
}

// ReadKept reads what the program before this one left, strictly: what is not understood is an error, and then this program must not begin.
func ReadKept(from io.Reader, now lease.Time) (*Kept, error) {
	raw, err := io.ReadAll(io.LimitReader(from, maxKept+1))
	if err != nil {
		return nil, fmt.Errorf("read what the program before left: %w", err)
	}
	if len(raw) > maxKept {
		return nil, fmt.Errorf("read what the program before left: more than %d bytes", maxKept)
	}
	var of struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return nil, fmt.Errorf("read what the program before left: %w", err)
	}
	if of.Format != keptFormat {
		return nil, fmt.Errorf("what the program before left is of format %d, and this program knows format %d", of.Format, keptFormat)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var k Kept
	if err := d.Decode(&k); err != nil {
		return nil, fmt.Errorf("read what the program before left: %w", err)
	}
	return &k, k.validate(now)
}

func (k *Kept) validate(now lease.Time) error {
	if err := k.Lease.Validate(k.Instance, k.UID, now); err != nil {
		return fmt.Errorf("what the program before left: %w", err)
	}
	runs := k.Keeper.Life == up && k.Keeper.PID > 0 && k.Output > 2 && (k.Keeper.Kind == engine.Primary || k.Keeper.Kind == engine.Replica)
	if !runs && (k.Keeper.Life != down || k.Keeper.PID != 0 || k.Output != 0) {
		return fmt.Errorf("what the program before left: a server that is %q as %q, process %d, output %d", k.Keeper.Life, k.Keeper.Kind, k.Keeper.PID, k.Output)
	}
	if len(k.Doors) != doors {
		return fmt.Errorf("what the program before left: %d listeners, want %d", len(k.Doors), doors)
	}
	return nil
}

// Inherit reads what the program before this one left to this process, by the environment; nil if none did.
func Inherit(clock lease.Clock) (*Kept, error) {
	text, found := os.LookupEnv(EnvKept)
	if !found {
		return nil, nil //nolint:nilnil // an ordinary start
	}
	if err := os.Unsetenv(EnvKept); err != nil {
		return nil, fmt.Errorf("forget %s: %w", EnvKept, err)
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("environment variable %s is %q, want a file descriptor", EnvKept, text)
	}
	f := inherited(fd, "kept")
	defer func() { _ = f.Close() }() // read only: nothing to lose
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read what the program before left: %w", err)
	}
	return ReadKept(f, clock.Now())
}

// inherited is an open file of the program before; no child of this one gets it.
func inherited(fd int, name string) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// bequeath makes a descriptor that the next program finds open.
func bequeath(of interface {
	Control(f func(fd uintptr)) error
},
) (int, error) {
	next, failed := -1, error(nil)
	err := of.Control(func(fd uintptr) {
		next, failed = unix.FcntlInt(fd, unix.F_DUPFD, 3) // without the flag that closes it
	})
	return next, errors.Join(err, failed)
}

// takeUp goes on where the program before ended, as far as that is not the keeper's or the leadership's.
func (a *Agent) takeUp(e Engine) error {
	k := a.kept
	for _, fd := range k.Doors {
		f := inherited(fd, "listener")
		l, err := net.FileListener(f)
		_ = f.Close() // the listener has its own
		if err != nil {
			return fmt.Errorf("take up a listener: %w", err)
		}
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return fmt.Errorf("take up a listener: it is of %s", l.Addr().Network())
		}
		a.taken = append(a.taken, tcp)
	}
	if k.Output != 0 {
		if err := unix.SetNonblock(k.Output, true); err != nil {
			return fmt.Errorf("take up the server's output: %w", err)
		}
		a.keeper.listenTo(inherited(k.Output, "output"), k.Part)
	}
	if e.Adopt != nil {
		var held *os.File
		if k.Held != 0 {
			held = inherited(k.Held, "held")
		}
		if err := e.Adopt(held); err != nil {
			return fmt.Errorf("take up the server: %w", err)
		}
	}
	a.sampler.hasData.Store(k.Sampler.HasData)
	a.sampler.primary = k.Sampler.Primary
	a.reporter.handOver, a.reporter.raised, a.reporter.former, a.reporter.step = k.Reporter.HandOver, k.Reporter.Raised, k.Reporter.Former, k.Reporter.Step
	for id, why := range k.Reporter.Aborted {
		a.reporter.aborted[id] = why
	}
	for host, address := range k.Names {
		a.peers.names.Learn(host, address)
	}
	a.exchange.digest = k.Digest
	a.asked = patience{id: k.Asked.ID, until: k.Asked.Until}
	a.log.Info("agent exchanged", "version", a.cfg.Version, "digest", k.Digest, "pid", k.Keeper.PID, "epoch", k.Lease.Decided.Epoch,
		"role", k.Lease.Decided.Role, "took", a.clock.Now().Sub(k.Lease.At).String())
	return nil
}

// withKept is the environment of the next program.
func withKept(env []string, fd int) []string {
	var out []string
	for _, pair := range env {
		if !strings.HasPrefix(pair, EnvKept+"=") {
			out = append(out, pair)
		}
	}
	return append(out, EnvKept+"="+strconv.Itoa(fd))
}
