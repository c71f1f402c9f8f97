package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/site"
)

// Sites are where a libssl is probed, as offsets in its file.
type Sites struct {
	BuildID     string
	Inode       uint64 // of its file
	Read, Write uint64
}

func (s Sites) id() string { return site.ID(s.BuildID, s.Inode) }

// Library is the file of a libssl that was looked at, and is open: what is probed is that, whatever becomes of its name.
type Library struct {
	file  *os.File
	sites Sites
}

// Open looks at a library and chooses its sites. It reads a bounded part of the file, and takes as long as its file system does: that may be a user's own,
// and never answer.
func Open(path string) (*Library, error) {
	var sites Sites
	file, inode, err := site.Open(path, func(file io.ReaderAt, size int64) (err error) {
		sites, err = sitesOf(file, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	sites.Inode = inode
	return &Library{file: file, sites: sites}, nil
}

// Close leaves the library as it is.
func (l *Library) Close() error { return l.file.Close() }

// UnfitError says that a library cannot be probed, whenever it is tried again.
type UnfitError = site.UnfitError

// sitesOf finds the sites of a library of so many bytes. SSL_read and SSL_write of OpenSSL 3 begin with instructions that the kernel could only step
// over. They and their younger siblings SSL_read_ex and SSL_write_ex call one function each, which does the work and says how many bytes it took; which
// it is, is known for certain if both lead to the same.
func sitesOf(file io.ReaderAt, size int64) (sites Sites, err error) {
	i, err := site.Read(file, size)
	if err != nil {
		return Sites{}, err
	}
	if sites.BuildID, err = i.BuildID(); err != nil {
		return Sites{}, err
	}
	if sites.Read, err = behind(i, "SSL_read", "SSL_read_ex"); err != nil {
		return Sites{}, err
	}
	if sites.Write, err = behind(i, "SSL_write", "SSL_write_ex"); err != nil {
		return Sites{}, err
	}
	return sites, nil
}

// behind is the site of the function that two exported ones call first.
func behind(i *site.Image, one, other string) (uint64, error) {
	var callees [2]uint64
	for n, name := range []string{one, other} {
		var address uint64
		if err := i.Functions(map[string]*uint64{name: &address}); err != nil {
			return 0, err
		}
		if address == 0 {
			return 0, fmt.Errorf("function %s: it is not exported: this is no libssl that can be measured", name)
		}
		var err error
		if callees[n], err = i.Callee(address); err != nil {
			return 0, fmt.Errorf("function %s: %w", name, err)
		}
	}
	if callees[0] != callees[1] {
		return 0, fmt.Errorf("functions %s and %s: %w", one, other, errors.New("they call different functions first: this libssl is not known"))
	}
	at, err := i.Site(callees[0])
	if err != nil {
		return 0, fmt.Errorf("the function that %s calls: %w", one, err)
	}
	return at, nil
}

// ErrNoLibssl says that a process has no libssl mapped: such a server speaks no TLS, or holds the code for it in its own program.
var ErrNoLibssl = errors.New("find the libssl of a process: it has none mapped")

// mapsMost bounds what is read of a process' map of its memory: Redis has some hundred lines.
const mapsMost = 1 << 20

// Libssl is the path of the libssl that a process has mapped, below proc, its directory in /proc. It leads to the very file, whatever name that has now or
// in which mount namespace. It is ErrNoLibssl if there is none.
func Libssl(proc string) (string, error) {
	file, err := os.Open(proc + "/maps")
	if err != nil {
		return "", fmt.Errorf("find the libssl of a process: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(io.LimitReader(file, mapsMost)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 6 && strings.HasPrefix(filepath.Base(fields[5]), "libssl.so") {
			return proc + "/map_files/" + fields[0], nil
		}
	}
	return "", ErrNoLibssl
}
