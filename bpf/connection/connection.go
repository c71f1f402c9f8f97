// Package connection measures the connections of a database's clients over TCP from the kernel.
package connection

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Target is a container whose server is measured.
type Target struct {
	Cgroup uint64 // id of its cgroup in the v2 hierarchy: that in which the server began to listen
	Port   uint16 // that its server listens on
}

// needed is what the kernel must take.
type needed struct {
	kernelMaps
	StateChanges *ebpf.Program `ebpf:"state_changes"`
	SocketGoes   *ebpf.Program `ebpf:"socket_goes"`
	Resets       *ebpf.Program `ebpf:"resets"`
	Tend         *ebpf.Program `ebpf:"tend"`
}

// objects are all that is loaded. A kernel may refuse to list its sockets to programs.
type objects struct {
	needed
	Found *ebpf.Program `ebpf:"found"`
}

func (o *objects) close() error {
	return errors.Join(o.StateChanges.Close(), o.SocketGoes.Close(), o.Resets.Close(), o.Tend.Close(), o.Found.Close(), o.kernelMaps.Close())
}

// Family is this probe's programs and memory, loaded into the kernel. Its methods may not be called side by side.
type Family struct {
	kernel   objects
	unlisted error // why connections that were there before cannot be found, if they cannot
	counted  *window[kernelCounts]
	losses   *window[uint64]
	links    []link.Link
	sockets  *link.Iter
	tended   tended
}

// Load loads the programs. They see nothing before Attach, and count nothing before Watch.
func Load() (*Family, error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read the programs of the connection probe: %w", err)
	}
	return load(spec)
}

func load(spec *ebpf.CollectionSpec) (_ *Family, err error) {
	f := &Family{tended: tended{watched: map[uint64]bool{}}}
	if f.unlisted = spec.LoadAndAssign(&f.kernel, nil); f.unlisted != nil {
		err = spec.LoadAndAssign(&f.kernel.needed, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("load the connection probe: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range f.kernel.Counted.MaxEntries() {
		free := f.kernel.Vacant
		if i < f.kernel.Kept.MaxEntries() {
			free = f.kernel.Kept
		}
		if err := free.Update(nil, i, ebpf.UpdateAny); err != nil {
			return nil, fmt.Errorf("offer place %d of the connection counts: %w", i, err)
		}
	}
	if err := f.tended.open(f.kernel.Counted.MaxEntries()); err != nil {
		return nil, err
	}
	if f.counted, err = open[kernelCounts](f.kernel.Counted); err != nil {
		return nil, err
	}
	if f.losses, err = open[uint64](f.kernel.Losses); err != nil {
		return nil, err
	}
	return f, nil
}

// Attach sees connections from now on. It needs no tracefs.
func (f *Family) Attach() error {
	if len(f.links) > 0 {
		return nil
	}
	for _, at := range []struct {
		name    string
		program *ebpf.Program
	}{
		// The end before the begin, so that no begin stays without one.
		{"tcp_destroy_sock", f.kernel.SocketGoes},
		{"inet_sock_set_state", f.kernel.StateChanges},
		{"tcp_send_reset", f.kernel.Resets},
	} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: at.name, Program: at.program})
		if err != nil {
			return errors.Join(fmt.Errorf("attach to the raw tracepoint %s: %w", at.name, err), f.detach())
		}
		f.links = append(f.links, l)
	}
	if f.unlisted == nil {
		f.sockets, f.unlisted = link.AttachIter(link.IterOptions{Program: f.kernel.Found})
	}
	return nil
}

func (f *Family) detach() error {
	var errs []error
	if f.sockets != nil {
		errs = append(errs, f.sockets.Close())
		f.sockets = nil
	}
	for _, l := range slices.Backward(f.links) {
		errs = append(errs, l.Close())
	}
	f.links = nil
	return errors.Join(errs...)
}

// Find counts the connections of measured servers that were there before them, in the network namespace of the file at path, which may be
// /proc/PID/ns/net. It is for after Attach and Watch; what is known already is left as it is.
func (f *Family) Find(path string) error {
	if f.unlisted != nil {
		return fmt.Errorf("find the connections that are open: the kernel does not list its sockets to programs: %w", f.unlisted)
	}
	if f.sockets == nil {
		return errors.New("find the connections that are open: the connection probe is not attached")
	}
	done := make(chan error, 1)
	go func() { done <- f.find(path) }()
	if err := <-done; err != nil {
		return fmt.Errorf("find the connections that are open in the network namespace %s: %w", path, err)
	}
	return nil
}

// find is run by a goroutine of its own: if its thread does not find back, both end.
func (f *Family) find(path string) (err error) {
	namespace, err := os.Open(path)
	if err != nil {
		return err
	}
	defer namespace.Close()
	// The kernel lists the sockets of the namespace that the thread is in.
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter it: %w; this needs the capability SYS_ADMIN", err)
	}
	defer func() {
		back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
		if back == nil {
			runtime.UnlockOSThread()
			return
		}
		err = errors.Join(err, fmt.Errorf("leave it: %w", back))
	}()
	sockets, err := f.sockets.Open()
	if err != nil {
		return err
	}
	defer sockets.Close()
	_, err = io.Copy(io.Discard, sockets) // the program says nothing: reading runs it
	return err
}

// Close takes the programs and their counts out of the kernel.
func (f *Family) Close() error {
	if err := errors.Join(f.detach(), f.counted.close(), f.losses.close(), f.tended.close(), f.kernel.close()); err != nil {
		return fmt.Errorf("take the connection probe out of the kernel: %w", err)
	}
	return nil
}
