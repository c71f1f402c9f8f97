package query

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/arch/x86/x86asm"
)

// Sites are where a program of PostgreSQL is probed, as offsets in its file.
type Sites struct {
	BuildID     string
	Inode       uint64 // of its file
	Read, Write uint64
	Activity    uint64 // 0 if it cannot be probed: then texts of statements that were prepared before are not learned
}

// id tells files apart that must be probed one by one. The kernel probes a file, so the same program in a layer of another image is another
// one; all containers of one image share its file, though each sees it on a device of its own.
func (s Sites) id() string { return s.BuildID + "-" + strconv.FormatUint(s.Inode, 10) }

// siteMost is how far into a function a site may lie.
const siteMost = 48

// Bounds of what is read of a program. The image is its user's, so nothing that the file says of itself is believed; PostgreSQL 15 of Debian
// has 9 MB, 32 sections, 13 segments, 10,793 symbols and 196 KiB of names.
const (
	fileMost     = 1 << 30
	sectionsMost = 256
	segmentsMost = 64
	symbolsMost  = 1 << 18
	namesMost    = 16 << 20
	buildIDMost  = 64
)

// Program is a file of a server that was looked at, and is open: what is probed is that, whatever becomes of its name.
type Program struct {
	file  *os.File
	sites Sites
}

// Open looks at a program and chooses its sites. It refuses a function whose first instructions the kernel could only step over with a trap: each
// call would cost the server tens of microseconds. It reads at most 23 MB of the file, and takes as long as its file system does: that may be a
// user's own, and never answer.
func Open(path string) (*Program, error) {
	file, sites, err := inspect(path)
	if err != nil {
		return nil, err
	}
	return &Program{file: file, sites: sites}, nil
}

// Close leaves the program as it is.
func (p *Program) Close() error { return p.file.Close() }

// Inspect chooses the sites of a program as Open does.
func Inspect(path string) (Sites, error) {
	p, err := Open(path)
	if err != nil {
		return Sites{}, err
	}
	return p.sites, p.Close()
}

// UnfitError says that a program cannot be probed, whenever it is tried again. Any other error may pass.
type UnfitError struct{ Why error }

// Error implements error.
func (u *UnfitError) Error() string { return u.Why.Error() }

// Unwrap gives what errors.Is looks at.
func (u *UnfitError) Unwrap() error { return u.Why }

// inspect leaves the file open, so that what is probed is what was looked at, whatever becomes of its name.
func inspect(path string) (_ *os.File, _ Sites, err error) {
	// A name in a container may be that of a pipe, which must not be waited for.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Sites{}, fmt.Errorf("read the program %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, Sites{}, fmt.Errorf("read the program %s: %w", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil, Sites{}, fmt.Errorf("read the program %s: it is no file, but %s", path, info.Mode())
	}
	sites, err := sitesOf(file, info.Size())
	var unread *fs.PathError
	if err != nil && !errors.As(err, &unread) && !errors.Is(err, io.EOF) {
		err = &UnfitError{Why: err}
	}
	if err != nil {
		return nil, Sites{}, fmt.Errorf("%s: %w", path, err)
	}
	sites.Inode = stat.Ino
	return file, sites, nil
}

// image is the file of a program.
type image struct {
	file     io.ReaderAt
	size     uint64
	machine  elf.Machine
	sections []elf.Section64
	segments []elf.Prog64
}

// sitesOf finds the sites of a program of so many bytes.
func sitesOf(file io.ReaderAt, size int64) (sites Sites, err error) {
	i, err := open64(file, size)
	if err != nil {
		return Sites{}, err
	}
	if sites.BuildID, err = i.buildID(); err != nil {
		return Sites{}, err
	}
	found := map[string]*uint64{"secure_read": &sites.Read, "secure_write": &sites.Write, "pgstat_report_activity": &sites.Activity}
	if err := i.functions(found); err != nil {
		return Sites{}, err
	}
	for _, name := range []string{"secure_read", "secure_write"} {
		if *found[name], err = i.site(*found[name]); err != nil {
			return Sites{}, fmt.Errorf("function %s: %w", name, err)
		}
	}
	if sites.Activity, err = i.site(sites.Activity); err != nil {
		sites.Activity = 0
	}
	return sites, nil
}

// open64 reads the tables of a file.
func open64(file io.ReaderAt, size int64) (*image, error) {
	if size < 0 || size > fileMost {
		return nil, fmt.Errorf("it has %d bytes; programs of more than %d are not probed", size, fileMost)
	}
	i := &image{file: file, size: uint64(size)}
	var h elf.Header64
	if err := i.decode(0, uint64(binary.Size(h)), &h); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	if string(h.Ident[:elf.EI_CLASS]) != elf.ELFMAG || elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errors.New("it is no program of 64 bits, little end first")
	}
	i.machine = elf.Machine(h.Machine)
	if h.Shnum > sectionsMost || h.Phnum > segmentsMost {
		return nil, fmt.Errorf("it has %d sections and %d segments; more than %d and %d are not read", h.Shnum, h.Phnum, sectionsMost, segmentsMost)
	}
	i.sections, i.segments = make([]elf.Section64, h.Shnum), make([]elf.Prog64, h.Phnum)
	if err := i.decode(h.Shoff, uint64(binary.Size(i.sections)), i.sections); err != nil {
		return nil, fmt.Errorf("read its sections: %w", err)
	}
	if err := i.decode(h.Phoff, uint64(binary.Size(i.segments)), i.segments); err != nil {
		return nil, fmt.Errorf("read its segments: %w", err)
	}
	return i, nil
}

// bytes of the file. Its caller has bounded the size.
func (i *image) bytes(at, size uint64) ([]byte, error) {
	if at > i.size || size > i.size-at {
		return nil, fmt.Errorf("%d bytes at %d are not in a file of %d", size, at, i.size)
	}
	b := make([]byte, size)
	if _, err := i.file.ReadAt(b, int64(at)); err != nil {
		return nil, fmt.Errorf("read %d bytes at %d: %w", size, at, err)
	}
	return b, nil
}

func (i *image) decode(at, size uint64, to any) error {
	b, err := i.bytes(at, size)
	if err != nil {
		return err
	}
	_, err = binary.Decode(b, binary.LittleEndian, to)
	return err
}

// buildID is the note of the linker: the same program in many containers is probed once.
func (i *image) buildID() (string, error) {
	const header, gnu = 16, 3 // sizes of name and value, type, "GNU\0"
	for _, s := range i.sections {
		if elf.SectionType(s.Type) != elf.SHT_NOTE || s.Size <= header || s.Size > header+buildIDMost {
			continue
		}
		note, err := i.bytes(s.Off, s.Size)
		if err != nil {
			return "", fmt.Errorf("read its notes: %w", err)
		}
		if binary.LittleEndian.Uint32(note[4:]) == uint32(len(note)-header) && binary.LittleEndian.Uint32(note[8:]) == gnu && string(note[12:header]) == "GNU\x00" {
			return hex.EncodeToString(note[header:]), nil
		}
	}
	return "", errors.New("it has no build-id")
}

// functions finds the addresses of functions that the program exports.
func (i *image) functions(wanted map[string]*uint64) error {
	for _, s := range i.sections {
		if elf.SectionType(s.Type) != elf.SHT_DYNSYM {
			continue
		}
		if s.Size/elf.Sym64Size > symbolsMost || int(s.Link) >= len(i.sections) || i.sections[s.Link].Size > namesMost {
			return fmt.Errorf("its symbols have %d bytes and their names are in section %d: more than %d symbols, or %d bytes of names, are not read",
				s.Size, s.Link, symbolsMost, namesMost)
		}
		symbols, err := i.bytes(s.Off, s.Size)
		if err != nil {
			return fmt.Errorf("read its symbols: %w", err)
		}
		names, err := i.bytes(i.sections[s.Link].Off, i.sections[s.Link].Size)
		if err != nil {
			return fmt.Errorf("read the names of its symbols: %w", err)
		}
		find(symbols, names, wanted)
	}
	for _, name := range []string{"secure_read", "secure_write"} {
		if *wanted[name] == 0 {
			return fmt.Errorf("function %s: it is not exported: this is no PostgreSQL that can be measured behind TLS", name)
		}
	}
	return nil
}

// find looks for functions in a table of symbols.
func find(symbols, names []byte, wanted map[string]*uint64) {
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		at, kind, section := binary.LittleEndian.Uint32(symbols), elf.ST_TYPE(symbols[4]), elf.SectionIndex(binary.LittleEndian.Uint16(symbols[6:]))
		if kind != elf.STT_FUNC || section == elf.SHN_UNDEF || uint64(at) >= uint64(len(names)) {
			continue
		}
		for name, address := range wanted {
			if rest := names[at:]; len(rest) > len(name) && string(rest[:len(name)]) == name && rest[len(name)] == 0 {
				*address = binary.LittleEndian.Uint64(symbols[8:])
			}
		}
	}
}

// site is the offset in the file of the first instruction from an address on that can be probed.
func (i *image) site(address uint64) (uint64, error) {
	for _, p := range i.segments {
		if elf.ProgType(p.Type) != elf.PT_LOAD || elf.ProgFlag(p.Flags)&elf.PF_X == 0 || address < p.Vaddr || address-p.Vaddr >= p.Filesz {
			continue
		}
		into := address - p.Vaddr
		if p.Off > i.size || into >= i.size-p.Off {
			break
		}
		code, err := i.bytes(p.Off+into, min(siteMost, p.Filesz-into, i.size-p.Off-into))
		if err != nil {
			return 0, fmt.Errorf("read its code: %w", err)
		}
		choose := chooseAMD64
		switch i.machine {
		case elf.EM_X86_64:
		case elf.EM_AARCH64:
			choose = chooseARM64
		default:
			return 0, fmt.Errorf("programs for %s cannot be probed", i.machine)
		}
		at, err := choose(code)
		if err != nil {
			return 0, err
		}
		return p.Off + into + uint64(at), nil // never 0: there the file has its magic number, which cannot be probed
	}
	return 0, errors.New("its code is not in the file")
}

// chooseAMD64 finds an instruction that the kernel emulates: a push, a no-op, a relative call or jump. Arguments and stack pointer must be as
// the caller left them, so only what leaves them alone is passed over: an indirect branch's landing pad, and copies into other registers.
func chooseAMD64(code []byte) (int, error) {
	landing := [4]byte{0xf3, 0x0f, 0x1e, 0xfa} // endbr64
	for at := 0; at < len(code); {
		if len(code)-at >= len(landing) && [4]byte(code[at:]) == landing {
			at += len(landing)
			continue
		}
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return 0, fmt.Errorf("decode its code at +%d: %w", at, err)
		}
		switch in.Op {
		case x86asm.PUSH:
			if _, ok := in.Args[0].(x86asm.Reg); ok {
				return at, nil
			}
		case x86asm.NOP:
			return at, nil
		case x86asm.CALL, x86asm.JMP:
			if _, ok := in.Args[0].(x86asm.Rel); ok {
				return at, nil
			}
		case x86asm.MOV:
			if keeps(in) {
				at += in.Len
				continue
			}
		default:
		}
		return 0, fmt.Errorf("its instruction %q at +%d can only be probed by single steps", in, at)
	}
	return 0, fmt.Errorf("no instruction of its first %d bytes can be probed", len(code))
}

// keeps says that a copy between registers leaves arguments and stack pointer as they were.
func keeps(in x86asm.Inst) bool {
	to, ok := in.Args[0].(x86asm.Reg)
	if !ok {
		return false
	}
	if _, ok := in.Args[1].(x86asm.Reg); !ok {
		return false
	}
	switch to {
	case x86asm.RBX, x86asm.RBP, x86asm.R10, x86asm.R11, x86asm.R12, x86asm.R13, x86asm.R14, x86asm.R15:
		return true
	default:
		return false
	}
}

// chooseARM64 takes the first instruction if it is one with which compilers begin functions: the kernel simulates these, or steps over them
// without the trap that virtual machines of the other architecture make dear.
func chooseARM64(code []byte) (int, error) {
	if len(code) < 4 {
		return 0, errors.New("it is too short")
	}
	in := binary.LittleEndian.Uint32(code)
	switch {
	case in&0xffc07fff == 0xa9807bfd, // stp x29, x30, [sp, #-n]!
		in&0xff0003ff == 0xd10003ff, // sub sp, sp, #n
		in == 0xd503233f,            // paciasp
		in == 0xd503245f,            // bti c
		in == 0xd503201f:            // nop
		return 0, nil
	}
	return 0, fmt.Errorf("its first instruction %08x is not one that is known to be probed cheaply", in)
}
