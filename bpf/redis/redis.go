// Package redis measures the commands of Redis and Valkey servers from the kernel.
package redis

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/window"
)

// Target is a container whose server is measured.
type Target struct {
	Cgroup        uint64 // id of its cgroup in the v2 hierarchy
	Port, TLSPort uint16 // that its server listens on; 0 for none
	SlowNS        uint64 // a command that takes longer is an event of its own, and so is each that failed; 0 for none
}

// Family is this probe's programs and memory, loaded into the kernel. Its methods may not be called side by side.
type Family struct {
	kernel    kernelObjects
	names     []string // of commands, by number
	records   *ringbuf.Reader
	counted   *window.Window[kernelCounts]
	losses    *window.Window[uint64]
	exits     link.Link
	syscalls  []link.Link
	libraries map[string]*probed // by build-id and inode
	cookie    uint32             // that the last library was attached with
	round     uint32             // of texts that were forgotten
	tended    tended
}

// Options of a family.
type Options struct {
	drive bool // keep the program that tests feed with bytes of their own
}

// Load loads the programs. They see nothing before AttachSyscalls, and count nothing before Watch.
func Load(o Options) (_ *Family, err error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read the programs of the command probe: %w", err)
	}
	f := &Family{names: names(), libraries: map[string]*probed{}, tended: tended{watched: map[uint64]bool{}}}
	if err := spec.LoadAndAssign(&f.kernel, nil); err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			return nil, fmt.Errorf("load the command probe: the kernel's verifier refused it: %w", err)
		}
		return nil, fmt.Errorf("load the command probe: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if !o.drive {
		if err := f.kernel.Drive.Close(); err != nil {
			return nil, fmt.Errorf("leave out the program for tests: %w", err)
		}
	}
	if err := f.teach(); err != nil {
		return nil, err
	}
	for i := range f.kernel.Counted.MaxEntries() {
		free := f.kernel.Vacant
		if i < f.kernel.Kept.MaxEntries() {
			free = f.kernel.Kept
		}
		if err := free.Update(nil, i, ebpf.UpdateAny); err != nil {
			return nil, fmt.Errorf("offer place %d of the command counts: %w", i, err)
		}
	}
	if err := f.tended.open(f.kernel.Counted.MaxEntries()); err != nil {
		return nil, err
	}
	if f.counted, err = window.Open[kernelCounts](f.kernel.Counted); err != nil {
		return nil, err
	}
	if f.losses, err = window.Open[uint64](f.kernel.Losses); err != nil {
		return nil, err
	}
	if f.records, err = ringbuf.NewReader(f.kernel.Records); err != nil {
		return nil, fmt.Errorf("open the ring of commands: %w", err)
	}
	return f, nil
}

// Session tells who a Key's Who is. Keep the answer, which never changes: to ask bars programs from this CPU for a moment. It is known as
// long as a connection or a place of Counts has it.
func (f *Family) Session(who uint64) (event.Session, bool, error) {
	var s kernelSession
	if err := f.kernel.Sessions.Lookup(who, &s); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return event.Session{}, false, nil
		}
		return event.Session{}, false, fmt.Errorf("look up session %x: %w", who, err)
	}
	return event.Session{User: text(s.User[:]), Database: strconv.Itoa(int(s.Database))}, true, nil
}

// Close takes the programs and their counts out of the kernel.
func (f *Family) Close() error {
	var errs []error
	for _, b := range f.libraries {
		errs = append(errs, b.close())
	}
	for _, l := range slices.Backward(f.syscalls) {
		errs = append(errs, l.Close())
	}
	if f.exits != nil {
		errs = append(errs, f.exits.Close())
	}
	if f.records != nil {
		errs = append(errs, f.records.Close())
	}
	errs = append(errs, f.counted.Close(), f.losses.Close(), f.tended.close(), f.kernel.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the command probe out of the kernel: %w", err)
	}
	return nil
}
