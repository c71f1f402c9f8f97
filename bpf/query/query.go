// Package query measures the statements of PostgreSQL servers from the kernel.
package query

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
	"github.com/plimsoll-dev/plimsoll-operator/bpf/window"
)

// Target is a container whose server is measured.
type Target struct {
	Cgroup uint64 // id of its cgroup in the v2 hierarchy
	Port   uint16 // that its server listens on
	SlowNS uint64 // a statement that takes longer is an event of its own; 0 for none
	// Failed makes each statement that failed an event of its own. Literals are the texts of both as clients sent them, with what is secret in
	// them; of prepared statements that is known only of those that are executed in the turn in which they were prepared.
	Failed, Literals bool
}

// Family is this probe's programs and memory, loaded into the kernel. Its methods may not be called side by side.
type Family struct {
	kernel   kernelObjects
	records  *ringbuf.Reader // first texts
	told     *ringbuf.Reader // slow and failed statements
	counted  *window.Window[kernelCounts]
	losses   *window.Window[uint64]
	exits    link.Link
	syscalls []link.Link
	binaries map[string]*probed // by build-id and inode
	cookie   uint32             // that the last program was attached with
	round    uint32             // of texts that were forgotten
	tended   tended
}

// Options of a family.
type Options struct {
	// BinariesAlone measures plain connections at the server's functions too, where system calls cannot be hooked, or all speak TLS and
	// the node's other programs are to pay nothing. An answer of which a plain socket takes a part is then seen twice, and its
	// connection lost until the next answer ends (reason "framing").
	BinariesAlone bool

	drive bool // keep the program that tests feed with bytes of their own
}

// Load loads the programs. They see nothing before AttachSyscalls or AttachBinary, and count nothing before Watch.
func Load(o Options) (_ *Family, err error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read the programs of the statement probe: %w", err)
	}
	if o.BinariesAlone {
		const fedByUprobes = uint8(1)
		if err := spec.Variables["first_feeder"].Set(fedByUprobes); err != nil {
			return nil, fmt.Errorf("set up the statement probe: %w", err)
		}
	}
	f := &Family{binaries: map[string]*probed{}, tended: tended{watched: map[uint64]bool{}}}
	if err := spec.LoadAndAssign(&f.kernel, nil); err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			return nil, fmt.Errorf("load the statement probe: the kernel's verifier refused it: %w", err)
		}
		return nil, fmt.Errorf("load the statement probe: %w", err)
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
	for i := range f.kernel.Counted.MaxEntries() {
		free := f.kernel.Vacant
		if i < f.kernel.Kept.MaxEntries() {
			free = f.kernel.Kept
		}
		if err := free.Update(nil, i, ebpf.UpdateAny); err != nil {
			return nil, fmt.Errorf("offer place %d of the statement counts: %w", i, err)
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
		return nil, fmt.Errorf("open the ring of texts: %w", err)
	}
	if f.told, err = ringbuf.NewReader(f.kernel.Told); err != nil {
		return nil, fmt.Errorf("open the ring of statements: %w", err)
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
	return event.Session{User: text(s.User[:]), Database: text(s.Database[:])}, true, nil
}

// Close takes the programs and their counts out of the kernel.
func (f *Family) Close() error {
	var errs []error
	for _, b := range f.binaries {
		errs = append(errs, b.close())
	}
	for _, l := range slices.Backward(f.syscalls) {
		errs = append(errs, l.Close())
	}
	if f.exits != nil {
		errs = append(errs, f.exits.Close())
	}
	for _, ring := range []*ringbuf.Reader{f.records, f.told} {
		if ring != nil {
			errs = append(errs, ring.Close())
		}
	}
	errs = append(errs, f.counted.Close(), f.losses.Close(), f.tended.close(), f.kernel.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the statement probe out of the kernel: %w", err)
	}
	return nil
}
