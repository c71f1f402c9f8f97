package query

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/site"
)

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestInspectRefusesWhatIsNoPostgreSQL(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "text"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, final := range map[string]bool{"/proc/self/exe": true, file: true, filepath.Join(dir, "missing"): false, dir: false, pipe: false, "/dev/zero": false} {
		_, err := Inspect(path)
		if err == nil {
			t.Errorf("%s was taken for a PostgreSQL server", path)
		}
		var unfit *UnfitError
		if errors.As(err, &unfit) != final {
			t.Errorf("%s: %v: whether it may pass is told wrongly", path, err)
		}
	}
}

// program is the smallest that is taken for PostgreSQL's: two functions, their names, and a build-id.
type elfProgram struct {
	header   elf.Header64
	segment  elf.Prog64
	sections [3]elf.Section64 // symbols, their names, the note
	symbols  [2]elf.Sym64
	names    [32]byte
	note     [20]byte
	code     [16]byte
}

func newProgram() *elfProgram {
	p := &elfProgram{}
	copy(p.header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	p.header.Machine = uint16(elf.EM_X86_64)
	copy(p.names[1:], "secure_read\x00secure_write\x00")
	copy(p.note[:], "\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00abcd")
	copy(p.code[:], "\x55\xc3\xf3\x0f\x1e\xfa\x41\x57")
	at := uint64(0)
	place := func(v any) (uint64, uint64) {
		begin := at
		at += uint64(binary.Size(v))
		return begin, uint64(binary.Size(v))
	}
	place(p.header)
	p.header.Phoff, _ = place(p.segment)
	p.header.Shoff, _ = place(p.sections)
	p.header.Phnum, p.header.Shnum = 1, 3
	for i, v := range []any{p.symbols, p.names, p.note} {
		p.sections[i].Type = uint32([]elf.SectionType{elf.SHT_DYNSYM, elf.SHT_STRTAB, elf.SHT_NOTE}[i])
		p.sections[i].Off, p.sections[i].Size = place(v)
	}
	p.sections[0].Link = 1
	p.segment = elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000}
	p.segment.Off, p.segment.Filesz = place(p.code)
	p.symbols = [2]elf.Sym64{
		{Name: 1, Info: uint8(elf.STT_FUNC), Shndx: 1, Value: 0x1000}, {Name: 13, Info: uint8(elf.STT_FUNC), Shndx: 1, Value: 0x1002},
	}
	return p
}

func (p *elfProgram) encode(t testing.TB) []byte {
	t.Helper()
	var b []byte
	for _, v := range []any{p.header, p.segment, p.sections, p.symbols, p.names, p.note, p.code} {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestNothingThatAFileSaysOfItselfIsBelieved(t *testing.T) {
	const exported = ": it is not exported: this is no PostgreSQL that can be measured behind TLS"
	for sentence, row := range map[string]struct {
		change func(*elfProgram)
		want   string
	}{
		"as it is":                             {change: func(*elfProgram) {}},
		"32 bits":                              {change: func(p *elfProgram) { p.header.Ident[elf.EI_CLASS] = 1 }, want: "it is no program of 64 bits, little end first"},
		"more sections than are read":          {change: func(p *elfProgram) { p.header.Shnum = 257 }, want: "it has 257 sections and 1 segments; more than 256 and 64 are not read"},
		"more segments than are read":          {change: func(p *elfProgram) { p.header.Phnum = 65 }, want: "it has 3 sections and 65 segments; more than 256 and 64 are not read"},
		"sections behind its end":              {change: func(p *elfProgram) { p.header.Shoff = math.MaxUint64 - 8 }, want: "read its sections: 192 bytes at 18446744073709551607 are not in a file of 428"},
		"symbols behind its end":               {change: func(p *elfProgram) { p.sections[0].Off = 400 }, want: "read its symbols: 48 bytes at 400 are not in a file of 428"},
		"symbols without end":                  {change: func(p *elfProgram) { p.sections[0].Size = math.MaxUint64 }, want: "its symbols have 18446744073709551615 bytes and their names are in section 1: more than 262144 symbols, or 16777216 bytes of names, are not read"},
		"names in a section that is not there": {change: func(p *elfProgram) { p.sections[0].Link = 3 }, want: "its symbols have 48 bytes and their names are in section 3: more than 262144 symbols, or 16777216 bytes of names, are not read"},
		"names without end":                    {change: func(p *elfProgram) { p.sections[1].Size = site.NamesMost + 1 }, want: "its symbols have 48 bytes and their names are in section 1: more than 262144 symbols, or 16777216 bytes of names, are not read"},
		"a name behind the names":              {change: func(p *elfProgram) { p.symbols[0].Name = 1 << 31 }, want: "function secure_read" + exported},
		"a name that does not end":             {change: func(p *elfProgram) { p.sections[1].Size = 13 + 12 }, want: "function secure_write" + exported},
		"a function of another program":        {change: func(p *elfProgram) { p.symbols[1].Shndx = 0 }, want: "function secure_write" + exported},
		"a function outside of all segments":   {change: func(p *elfProgram) { p.symbols[1].Value = 0x2000 }, want: "function secure_write: its code is not in the file"},
		"a segment behind its end":             {change: func(p *elfProgram) { p.segment.Off = math.MaxUint64 }, want: "function secure_read: its code is not in the file"},
		"a segment longer than the file":       {change: func(p *elfProgram) { p.segment.Filesz = math.MaxUint64 }},
		"code at the very begin of the file":   {change: func(p *elfProgram) { p.segment.Off = 0 }, want: `function secure_read: its instruction "JG .+69" at +0 can only be probed by single steps`},
		"no note":                              {change: func(p *elfProgram) { p.sections[2].Type = 0 }, want: "it has no build-id"},
		"a note that is longer than it may be": {change: func(p *elfProgram) { p.sections[2].Size = 81 }, want: "it has no build-id"},
		"a note that says another size":        {change: func(p *elfProgram) { p.note[4] = 200 }, want: "it has no build-id"},
		"a note behind its end":                {change: func(p *elfProgram) { p.sections[2].Off = 420 }, want: "read its notes: 20 bytes at 420 are not in a file of 428"},
		"a machine that cannot be probed":      {change: func(p *elfProgram) { p.header.Machine = uint16(elf.EM_S390) }, want: "function secure_read: programs for EM_S390 cannot be probed"},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := newProgram()
			row.change(p)
			b := p.encode(t)
			got, err := sitesOf(bytes.NewReader(b), int64(len(b)))
			if message(err) != row.want {
				t.Fatalf("%v, want %q", err, row.want)
			}
			if want := (Sites{BuildID: "61626364", Read: 412, Write: 418}); err == nil && got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	if _, err := sitesOf(bytes.NewReader(nil), site.FileMost+1); message(err) != "it has 1073741825 bytes; programs of more than 1073741824 are not probed" {
		t.Errorf("%v", err)
	}
}

func FuzzInspect(f *testing.F) {
	whole := newProgram()
	f.Add(whole.encode(f))
	whole.header.Machine = uint16(elf.EM_AARCH64)
	f.Add(whole.encode(f))
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, b []byte) {
		sites, err := sitesOf(bytes.NewReader(b), int64(len(b)))
		if err == nil && (sites.Read == 0 || sites.Write == 0 || sites.Read >= uint64(len(b)) || sites.Write >= uint64(len(b)) || len(sites.BuildID) > 2*site.BuildIDMost) {
			t.Errorf("%x was taken for %+v", b, sites)
		}
	})
}
