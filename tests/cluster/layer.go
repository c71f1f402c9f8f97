package cluster

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// layer is one written layer of an image.
type layer struct {
	digest, diffID string // of the compressed and the plain bytes
	size           int64
}

// writeLayer packs a directory as a layer into blobs/. With a base directory it packs only what differs from
// it, so that two images on one base share that base's layer. Times are dropped: equal files give equal digests.
func writeLayer(blobs, root, base string) (layer, error) {
	tmp, err := os.CreateTemp(mustDir(blobs), ".layer-")
	if err != nil {
		return layer{}, fmt.Errorf("write a layer of %s: %w", root, err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	packed, plain := sha256.New(), sha256.New()
	zip, err := gzip.NewWriterLevel(io.MultiWriter(tmp, packed), gzip.BestSpeed)
	if err != nil {
		return layer{}, fmt.Errorf("write a layer of %s: %w", root, err)
	}
	p := packer{tar: tar.NewWriter(io.MultiWriter(zip, plain)), root: root, base: base, links: map[uint64]string{}}
	if err := p.pack(); err != nil {
		return layer{}, fmt.Errorf("write a layer of %s: %w", root, err)
	}
	if err := zip.Close(); err != nil {
		return layer{}, fmt.Errorf("write a layer of %s: %w", root, err)
	}
	size, err := tmp.Seek(0, io.SeekCurrent)
	if err != nil {
		return layer{}, fmt.Errorf("write a layer of %s: %w", root, err)
	}
	l := layer{digest: sum(packed), diffID: sum(plain), size: size}
	if err := os.Rename(tmp.Name(), filepath.Join(blobs, strings.TrimPrefix(l.digest, "sha256:"))); err != nil {
		return layer{}, fmt.Errorf("write a layer of %s: %w", root, err)
	}
	return l, nil
}

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

type packer struct {
	tar        *tar.Writer
	root, base string
	links      map[uint64]string // inode to the first name of a file with several
}

func (p *packer) pack() error {
	if err := filepath.WalkDir(p.root, p.add); err != nil {
		return err
	}
	if p.base != "" {
		if err := p.whiteouts(); err != nil {
			return err
		}
	}
	return p.tar.Close()
}

func (p *packer) add(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name, err := filepath.Rel(p.root, path)
	if err != nil || name == "." {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 || p.inBase(name, info) {
		return nil
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	header.Name = name
	header.Uname, header.Gname = "", "" // names are those of this machine, not of the image
	header.ModTime, header.AccessTime, header.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
	header.Format = tar.FormatPAX
	if info.IsDir() {
		header.Name += "/"
	}
	if info.Mode().IsRegular() && stat.Nlink > 1 {
		if first, ok := p.links[stat.Ino]; ok {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
			return p.tar.WriteHeader(header)
		}
		p.links[stat.Ino] = name
	}
	if err := p.tar.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(p.tar, file)
	return err
}

// inBase tells whether the base has the same file. The copy was made with its times, so those decide.
func (p *packer) inBase(name string, info fs.FileInfo) bool {
	if p.base == "" {
		return false
	}
	old, err := os.Lstat(filepath.Join(p.base, name))
	if err != nil || old.Mode() != info.Mode() {
		return false
	}
	a, b := old.Sys().(*syscall.Stat_t), info.Sys().(*syscall.Stat_t)
	if a.Uid != b.Uid || a.Gid != b.Gid {
		return false
	}
	return info.IsDir() || (old.Size() == info.Size() && old.ModTime().Equal(info.ModTime()))
}

// whiteouts records the files of the base that are gone.
func (p *packer) whiteouts() error {
	return filepath.WalkDir(p.base, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(p.base, path)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(p.root, name)); err == nil {
			return nil
		}
		mark := filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name))
		if err := p.tar.WriteHeader(&tar.Header{Name: mark, Mode: 0o644, Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if entry.IsDir() {
			return filepath.SkipDir
		}
		return nil
	})
}
