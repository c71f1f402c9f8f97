package redis

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// AttachSyscalls sees connections that are not sealed, and to which connection what libssl seals belongs. It needs tracefs at its usual place. Every read
// and write of the node passes these programs: attach them while there is a server to measure.
func (f *Family) AttachSyscalls() error {
	if len(f.syscalls) > 0 {
		return nil
	}
	if err := f.attachExits(); err != nil {
		return err
	}
	// An end before its begin, so that no begin stays without one.
	for _, at := range []struct {
		name    string
		program *ebpf.Program
	}{
		{"sys_enter_close", f.kernel.Closes},
		{"sys_exit_accept", f.kernel.Accepted},
		{"sys_exit_accept4", f.kernel.Accepted},
		{"sys_exit_read", f.kernel.ReadEnds},
		{"sys_exit_write", f.kernel.WriteEnds},
		{"sys_exit_writev", f.kernel.WriteEnds},
		{"sys_enter_write", f.kernel.WriteBegins},
		{"sys_enter_writev", f.kernel.WritevBegins},
		{"sys_enter_read", f.kernel.ReadBegins},
	} {
		l, err := link.Tracepoint("syscalls", at.name, at.program, nil)
		if err != nil {
			return errors.Join(fmt.Errorf("attach to tracepoint syscalls/%s: %w", at.name, err), f.DetachSyscalls())
		}
		f.syscalls = append(f.syscalls, l)
	}
	return nil
}

// DetachSyscalls lets the node's reads and writes alone. Connections that are open are followed anew when they are attached again.
func (f *Family) DetachSyscalls() error {
	var errs []error
	for len(f.syscalls) > 0 {
		last := len(f.syscalls) - 1
		errs = append(errs, f.syscalls[last].Close())
		f.syscalls = f.syscalls[:last]
	}
	return errors.Join(errs...)
}

// attachExits forgets connections whose process ends.
func (f *Family) attachExits() error {
	if f.exits != nil {
		return nil
	}
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: f.kernel.ProcessExits})
	if err != nil {
		return fmt.Errorf("attach to the end of processes: %w", err)
	}
	f.exits = l
	return nil
}

// librariesMost bounds the libraries that are probed at one time: each takes four probes.
const librariesMost = 256

// probed is a library that is probed.
type probed struct {
	file  *os.File
	links []link.Link
}

func (p *probed) close() error {
	errs := []error{p.file.Close()}
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Attach sees the sealed connections of all servers that have mapped this library, which it closes. One that is probed already is left as it is. It gives
// back what Detach knows the library by.
func (f *Family) Attach(l *Library) (string, error) {
	path, sites := l.file.Name(), l.sites
	p := &probed{file: l.file}
	id := sites.id()
	if _, ok := f.libraries[id]; ok {
		return id, p.close()
	}
	if len(f.libraries) == librariesMost {
		return "", errors.Join(p.close(), fmt.Errorf("probe %s: %d libraries are probed already: detach those that no container has mapped any more", path, librariesMost))
	}
	if err := f.attachExits(); err != nil {
		return "", errors.Join(err, p.close())
	}
	executable, err := link.OpenExecutable("/proc/self/fd/" + strconv.Itoa(int(l.file.Fd())))
	if err != nil {
		return "", errors.Join(fmt.Errorf("open %s: %w", path, err), p.close())
	}
	f.cookie++
	for _, at := range []struct {
		attach  func(string, *ebpf.Program, *link.UprobeOptions) (link.Link, error)
		name    string
		program *ebpf.Program
		offset  uint64
	}{
		{executable.Uretprobe, "SSL_read", f.kernel.SealedReadEnds, sites.Read},
		{executable.Uretprobe, "SSL_write", f.kernel.SealedWriteEnds, sites.Write},
		{executable.Uprobe, "SSL_write", f.kernel.SealedWriteBegins, sites.Write},
		{executable.Uprobe, "SSL_read", f.kernel.SealedReadBegins, sites.Read},
	} {
		l, err := at.attach(at.name, at.program, &link.UprobeOptions{Address: at.offset, Cookie: uint64(f.cookie)})
		if err != nil {
			return "", errors.Join(fmt.Errorf("attach behind %s of %s: %w", at.name, path, err), p.close())
		}
		p.links = append(p.links, l)
	}
	f.libraries[id] = p
	return id, nil
}

// Detach leaves the servers alone that have mapped a library. When it is attached again, their sealed connections are followed anew, from a command
// behind an answer on.
func (f *Family) Detach(id string) error {
	p, ok := f.libraries[id]
	if !ok {
		return nil
	}
	delete(f.libraries, id)
	if err := p.close(); err != nil {
		return fmt.Errorf("detach from the library %s: %w", id, err)
	}
	return nil
}
