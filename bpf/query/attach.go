package query

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// AttachSyscalls sees connections that are not sealed. It needs tracefs at its usual place.
func (f *Family) AttachSyscalls() error {
	if len(f.syscalls) > 0 {
		return nil
	}
	if err := f.attachExits(); err != nil {
		return err
	}
	var links []link.Link
	// An end before its begin, so that no begin stays without one.
	for _, at := range []struct {
		name    string
		program *ebpf.Program
	}{
		{"sys_exit_recvfrom", f.kernel.RecvEnds},
		{"sys_exit_sendto", f.kernel.SendEnds},
		{"sys_enter_sendto", f.kernel.SendBegins},
		{"sys_enter_recvfrom", f.kernel.RecvBegins},
	} {
		l, err := link.Tracepoint("syscalls", at.name, at.program, nil)
		if err != nil {
			errs := []error{fmt.Errorf("attach to tracepoint syscalls/%s: %w", at.name, err)}
			for _, l := range links {
				errs = append(errs, l.Close())
			}
			return errors.Join(errs...)
		}
		links = append(links, l)
	}
	f.syscalls = links
	return nil
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

// binariesMost bounds the programs that are probed at one time: each takes three probes.
const binariesMost = 256

// probed is a server's program that is probed.
type probed struct {
	file     *os.File
	activity uint64 // where the server tells the text that it is at work on
	links    []link.Link
	learning link.Link // of these texts, nil while none is wanted
}

func (b *probed) close() error {
	errs := []error{b.learn(nil), b.file.Close()}
	for _, l := range b.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// executable is the file that was looked at, whatever its name now leads to.
func (b *probed) executable() (*link.Executable, error) {
	executable, err := link.OpenExecutable("/proc/self/fd/" + strconv.Itoa(int(b.file.Fd())))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", b.file.Name(), err)
	}
	return executable, nil
}

// learn begins to take the texts that servers report, or ends it without a program.
func (b *probed) learn(program *ebpf.Program) error {
	if program == nil && b.learning != nil {
		err := b.learning.Close()
		b.learning = nil
		return err
	}
	if program == nil || b.learning != nil || b.activity == 0 {
		return nil
	}
	const name = "pgstat_report_activity"
	at := &link.UprobeOptions{Address: b.activity}
	executable, err := b.executable()
	if err == nil {
		b.learning, err = executable.Uprobe(name, program, at)
	}
	if err != nil {
		b.activity = 0 // not to be tried again
		return fmt.Errorf("attach to %s of %s, to learn texts of statements that were prepared before: %w", name, b.file.Name(), err)
	}
	return nil
}

// AttachBinary sees the sealed connections of all servers that run this program: the file at path, which may be /proc/PID/exe. A program
// that is probed already is left as it is. It gives back what DetachBinary knows the program by.
func (f *Family) AttachBinary(path string) (string, error) {
	p, err := Open(path)
	if err != nil {
		return "", err
	}
	return f.Attach(p)
}

// Attach is AttachBinary of a program that was opened before, which it closes.
func (f *Family) Attach(p *Program) (string, error) {
	path, sites := p.file.Name(), p.sites
	b := &probed{file: p.file, activity: sites.Activity}
	id := sites.id()
	if _, ok := f.binaries[id]; ok {
		return id, b.close()
	}
	if len(f.binaries) == binariesMost {
		return "", errors.Join(b.close(), fmt.Errorf("probe %s: %d programs are probed already: detach those that no container runs any more", path, binariesMost))
	}
	if err := f.attachExits(); err != nil {
		return "", errors.Join(err, b.close())
	}
	executable, err := b.executable()
	if err != nil {
		return "", errors.Join(err, b.close())
	}
	f.cookie++
	for _, at := range []struct {
		attach  func(string, *ebpf.Program, *link.UprobeOptions) (link.Link, error)
		name    string
		program *ebpf.Program
		offset  uint64
	}{
		{executable.Uretprobe, "secure_read", f.kernel.SealedReadEnds, sites.Read},
		{executable.Uprobe, "secure_write", f.kernel.SealedWrite, sites.Write},
		{executable.Uprobe, "secure_read", f.kernel.SealedReadBegins, sites.Read},
	} {
		l, err := at.attach(at.name, at.program, &link.UprobeOptions{Address: at.offset, Cookie: uint64(f.cookie)})
		if err != nil {
			return "", errors.Join(fmt.Errorf("attach to %s of %s: %w", at.name, path, err), b.close())
		}
		b.links = append(b.links, l)
	}
	f.binaries[id] = b
	return id, nil
}

// DetachBinary leaves the servers that run a program alone. When it is attached again, their sealed connections are followed anew, from the end of
// their next answer on.
func (f *Family) DetachBinary(id string) error {
	b, ok := f.binaries[id]
	if !ok {
		return nil
	}
	delete(f.binaries, id)
	if err := b.close(); err != nil {
		return fmt.Errorf("detach from the program %s: %w", id, err)
	}
	return nil
}
