// Package site reads the files of servers and their libraries, and finds where functions of theirs can be probed.
package site

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

// siteMost is how far into a function a site may lie.
const siteMost = 48

// Bounds of what is read of a program. The image is its user's, so nothing that the file says of itself is believed; PostgreSQL 15 of Debian
// has 9 MB, 32 sections, 13 segments, 10,793 symbols and 196 KiB of names.
const (
	FileMost     = 1 << 30
	sectionsMost = 256
	segmentsMost = 64
	symbolsMost  = 1 << 18
	NamesMost    = 16 << 20
	BuildIDMost  = 64
)

// UnfitError says that a program cannot be probed, whenever it is tried again. Any other error may pass.
type UnfitError struct{ Why error }

// Error implements error.
func (u *UnfitError) Error() string { return u.Why.Error() }

// Unwrap gives what errors.Is looks at.
func (u *UnfitError) Unwrap() error { return u.Why }

// ID tells files apart that must be probed one by one. The kernel probes a file, so the same program in a layer of another image is another
// one; all containers of one image share its file, though each sees it on a device of its own.
func ID(buildID string, inode uint64) string { return buildID + "-" + strconv.FormatUint(inode, 10) }

// Open opens a file, lets look read it, and gives back the file and its inode: what is probed is what was looked at, whatever becomes of its name. What look
// finds wrong is an UnfitError, unless the file could not be read.
func Open(path string, look func(file io.ReaderAt, size int64) error) (_ *os.File, inode uint64, err error) {
	// A name in a container may be that of a pipe, which must not be waited for.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("read the program %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("read the program %s: %w", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("read the program %s: it is no file, but %s", path, info.Mode())
	}
	err = look(file, info.Size())
	var unread *fs.PathError
	if err != nil && !errors.As(err, &unread) && !errors.Is(err, io.EOF) {
		err = &UnfitError{Why: err}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return file, stat.Ino, nil
}

// Image is the file of a program, of which nothing is believed.
type Image struct {
	file     io.ReaderAt
	size     uint64
	machine  elf.Machine
	sections []elf.Section64
	segments []elf.Prog64
}

// Read reads the tables of a file of so many bytes.
func Read(file io.ReaderAt, size int64) (*Image, error) {
	if size < 0 || size > FileMost {
		return nil, fmt.Errorf("it has %d bytes; programs of more than %d are not probed", size, FileMost)
	}
	i := &Image{file: file, size: uint64(size)}
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
func (i *Image) bytes(at, size uint64) ([]byte, error) {
	if at > i.size || size > i.size-at {
		return nil, fmt.Errorf("%d bytes at %d are not in a file of %d", size, at, i.size)
	}
	b := make([]byte, size)
	if _, err := i.file.ReadAt(b, int64(at)); err != nil {
		return nil, fmt.Errorf("read %d bytes at %d: %w", size, at, err)
	}
	return b, nil
}

func (i *Image) decode(at, size uint64, to any) error {
	b, err := i.bytes(at, size)
	if err != nil {
		return err
	}
	_, err = binary.Decode(b, binary.LittleEndian, to)
	return err
}

// BuildID is the note of the linker: the same program in many containers is probed once.
func (i *Image) BuildID() (string, error) {
	const header, gnu = 16, 3 // sizes of name and value, type, "GNU\0"
	for _, s := range i.sections {
		if elf.SectionType(s.Type) != elf.SHT_NOTE || s.Size <= header || s.Size > header+BuildIDMost {
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

// Functions finds the addresses of functions that the program exports; those that it does not export are left as they are.
func (i *Image) Functions(wanted map[string]*uint64) error {
	for _, s := range i.sections {
		if elf.SectionType(s.Type) != elf.SHT_DYNSYM {
			continue
		}
		if s.Size/elf.Sym64Size > symbolsMost || int(s.Link) >= len(i.sections) || i.sections[s.Link].Size > NamesMost {
			return fmt.Errorf("its symbols have %d bytes and their names are in section %d: more than %d symbols, or %d bytes of names, are not read",
				s.Size, s.Link, symbolsMost, NamesMost)
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

// Site is the offset in the file of the first instruction from an address on that can be probed.
func (i *Image) Site(address uint64) (uint64, error) {
	offset, code, err := i.code(address, siteMost)
	if err != nil {
		return 0, err
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
	return offset + uint64(at), nil // never 0: there the file has its magic number, which cannot be probed
}

// code gives the offset in the file of what lies at an address, and so much of it as there is and is asked for.
func (i *Image) code(address, most uint64) (uint64, []byte, error) {
	for _, p := range i.segments {
		if elf.ProgType(p.Type) != elf.PT_LOAD || elf.ProgFlag(p.Flags)&elf.PF_X == 0 || address < p.Vaddr || address-p.Vaddr >= p.Filesz {
			continue
		}
		into := address - p.Vaddr
		if p.Off > i.size || into >= i.size-p.Off {
			break
		}
		code, err := i.bytes(p.Off+into, min(most, p.Filesz-into, i.size-p.Off-into))
		if err != nil {
			return 0, nil, fmt.Errorf("read its code: %w", err)
		}
		return p.Off + into, code, nil
	}
	return 0, nil, errors.New("its code is not in the file")
}

// calleeMost is how far into a function its first call may lie.
const calleeMost = 128

// Callee is the address of the function that the one at an address calls first, in the order of its code.
func (i *Image) Callee(address uint64) (uint64, error) {
	_, code, err := i.code(address, calleeMost)
	if err != nil {
		return 0, err
	}
	callee := calleeAMD64
	switch i.machine {
	case elf.EM_X86_64:
	case elf.EM_AARCH64:
		callee = calleeARM64
	default:
		return 0, fmt.Errorf("programs for %s cannot be probed", i.machine)
	}
	distance, ok := callee(code)
	if !ok {
		return 0, fmt.Errorf("it calls nothing in its first %d bytes", len(code))
	}
	return address + uint64(distance), nil
}

// calleeAMD64 gives the distance from the begin of the code to where it first calls.
func calleeAMD64(code []byte) (int64, bool) {
	for at := 0; at < len(code); {
		if landing(code[at:]) {
			at += landingSize
			continue
		}
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil || in.Op == x86asm.RET {
			return 0, false
		}
		at += in.Len
		if in.Op == x86asm.CALL {
			to, ok := in.Args[0].(x86asm.Rel)
			return int64(at) + int64(to), ok
		}
	}
	return 0, false
}

// landing says whether code begins with an indirect branch's landing pad (endbr64), which the decoder does not know.
func landing(code []byte) bool {
	return len(code) >= landingSize && [landingSize]byte(code) == [landingSize]byte{0xf3, 0x0f, 0x1e, 0xfa}
}

const landingSize = 4

// calleeARM64 is the same of the other architecture: bl.
func calleeARM64(code []byte) (int64, bool) {
	for at := 0; at+4 <= len(code); at += 4 {
		in := binary.LittleEndian.Uint32(code[at:])
		if in == 0xd65f03c0 { // ret
			return 0, false
		}
		if in&0xfc000000 == 0x94000000 {
			return int64(at) + int64(int32(in<<6)>>6)*4, true
		}
	}
	return 0, false
}

// chooseAMD64 finds an instruction that the kernel emulates: a push, a no-op, a relative call or jump. Arguments and stack pointer must be as
// the caller left them, so only what leaves them alone is passed over: an indirect branch's landing pad, and copies into other registers.
func chooseAMD64(code []byte) (int, error) {
	for at := 0; at < len(code); {
		if landing(code[at:]) {
			at += landingSize
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
