package query

import (
	"fmt"
	"io"
	"os"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/site"
)

// Sites are where a program of PostgreSQL is probed, as offsets in its file.
type Sites struct {
	BuildID     string
	Inode       uint64 // of its file
	Read, Write uint64
	Activity    uint64 // 0 if it cannot be probed: then texts of statements that were prepared before are not learned
}

func (s Sites) id() string { return site.ID(s.BuildID, s.Inode) }

// Program is a file of a server that was looked at, and is open: what is probed is that, whatever becomes of its name.
type Program struct {
	file  *os.File
	sites Sites
}

// Open looks at a program and chooses its sites. It refuses a function whose first instructions the kernel could only step over with a trap: each
// call would cost the server tens of microseconds. It reads at most 23 MB of the file, and takes as long as its file system does: that may be a
// user's own, and never answer.
func Open(path string) (*Program, error) {
	var sites Sites
	file, inode, err := site.Open(path, func(file io.ReaderAt, size int64) (err error) {
		sites, err = sitesOf(file, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	sites.Inode = inode
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

// UnfitError says that a program cannot be probed, whenever it is tried again.
type UnfitError = site.UnfitError

// sitesOf finds the sites of a program of so many bytes.
func sitesOf(file io.ReaderAt, size int64) (sites Sites, err error) {
	i, err := site.Read(file, size)
	if err != nil {
		return Sites{}, err
	}
	if sites.BuildID, err = i.BuildID(); err != nil {
		return Sites{}, err
	}
	found := map[string]*uint64{"secure_read": &sites.Read, "secure_write": &sites.Write, "pgstat_report_activity": &sites.Activity}
	if err := i.Functions(found); err != nil {
		return Sites{}, err
	}
	for _, name := range []string{"secure_read", "secure_write"} {
		if *found[name] == 0 {
			return Sites{}, fmt.Errorf("function %s: it is not exported: this is no PostgreSQL that can be measured behind TLS", name)
		}
	}
	for _, name := range []string{"secure_read", "secure_write"} {
		if *found[name], err = i.Site(*found[name]); err != nil {
			return Sites{}, fmt.Errorf("function %s: %w", name, err)
		}
	}
	if sites.Activity, err = i.Site(sites.Activity); err != nil {
		sites.Activity = 0
	}
	return sites, nil
}
