package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pulseName is a file of eight bytes on each volume that is written again and again.
const pulseName = ".plimsoll-pulse"

// pulse is a tiny durable write on a volume. It is written over in place, which takes no room on a volume that is full.
type pulse struct {
	dir  string
	file *os.File
	n    uint64
}

func (p *pulse) beat(context.Context) error {
	if p.file == nil {
		f, err := os.OpenFile(filepath.Join(p.dir, pulseName), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("write to volume %s: %w", p.dir, err)
		}
		p.file = f
	}
	p.n++
	_, err := p.file.WriteAt(binary.BigEndian.AppendUint64(nil, p.n), 0)
	if err == nil {
		err = unix.Fdatasync(int(p.file.Fd()))
	}
	if err != nil {
		_ = p.file.Close() // it is opened anew: the volume may be mounted again
		p.file = nil
		return fmt.Errorf("write to volume %s: %w", p.dir, err)
	}
	return nil
}

// broken says of the error of a durable write that the volume takes none any more. One that is full is not broken.
func broken(err error) bool {
	for _, e := range []error{unix.EIO, unix.EROFS, unix.ENODEV, unix.ENXIO, unix.ESTALE, unix.ESHUTDOWN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// device is the kernel's account of the device below a volume.
type device struct{ path string }

// deviceOf a directory. Volumes of a network file system have none.
func deviceOf(dir string) device {
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil {
		return device{}
	}
	return device{fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(s.Dev), unix.Minor(s.Dev))}
}

// writes that the device has completed, flushes among them. One that still completes some is slow, not dead.
func (d device) writes() (uint64, bool) {
	const completed, flushed = 4, 15
	raw, err := os.ReadFile(d.path)
	if err != nil {
		return 0, false
	}
	var sum uint64
	fields := strings.Fields(string(raw))
	for _, i := range []int{completed, flushed} {
		if i >= len(fields) {
			continue // of an older kernel
		}
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, len(fields) > completed
}

// computed is the processor time that a process has had, in nanoseconds; false if there is none or the kernel does not tell.
func computed(pid int) (uint64, bool) {
	if pid == 0 {
		return 0, false
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(raw), " ")
	n, err := strconv.ParseUint(first, 10, 64)
	return n, err == nil
}

const (
	// leastRoom is what a server needs at least to write its log on: PostgreSQL makes files of 16 MiB. enoughRoom is what one that had
	// none is started again with.
	leastRoom  = 17 << 20
	enoughRoom = 32 << 20
	// volumeFull is the reason of a server that has no room.
	volumeFull = "VolumeFull"
	// volumeHangs is the reason of a member whose volume takes no writes.
	volumeHangs = "VolumeHangs"
)

// lacks says that the volume of the log has less room than that.
func (k *keeper) lacks(bytes uint64) bool {
	left, known := room(k.cfg.logVolume())
	return known && left < bytes
}

// logVolume is where the log lies.
func (c Config) logVolume() string {
	if info, err := os.Stat(c.WALDir); err == nil && info.IsDir() {
		return c.WALDir
	}
	return c.DataDir
}

func (c Config) fullWords() string {
	if c.logVolume() == c.WALDir {
		return "the volume of the write-ahead log is full: raise spec.storage.wal.size; no other instance takes over, since what filled it fills the others"
	}
	return "the data volume is full: raise spec.storage.size; no other instance takes over, since what filled it fills the others"
}

// room that is left on a volume, in bytes; false if it cannot be known.
func room(dir string) (uint64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
