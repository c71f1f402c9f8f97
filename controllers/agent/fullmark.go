package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// fullMark keeps on a volume without room that this member leads without a server until there is some, over a restart of its container.
// It is a file that is there from the start and changes its name, which takes no room. It is taken back before anything is released: a
// member that finds it knows that no release of the run before is on its way, and may claim its epoch again.
type fullMark struct{ dir string }

const (
	markSpare = "full.spare"
	markSet   = "full"
)

// take says whether the mark was set, and unsets it: a claim that fails is released, too. Without one it makes the file while there is room.
func (m fullMark) take() (bool, error) {
	if _, err := os.Stat(filepath.Join(m.dir, markSet)); err == nil {
		// Its room is for the promise, which must count this run before the claim.
		err := errors.Join(os.Truncate(filepath.Join(m.dir, markSet), 0), m.unset())
		return err == nil, err
	}
	return false, m.fill()
}

// spareRoom is what the file keeps free for a promise and its successor. A file system sets aside far more for a new file than that takes:
// 16 KiB were not enough on XFS.
const spareRoom = 1 << 20

// fill the file with what takes room, where there is some.
func (m fullMark) fill() error {
	f, err := os.OpenFile(filepath.Join(m.dir, markSpare), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", markSpare, err)
	}
	defer func() { _ = f.Close() }() // synced below
	if _, err := f.Write(bytes.Repeat([]byte{'.'}, spareRoom)); err != nil {
		return nil //nolint:nilerr // there is no room to keep
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("make %s: %w", markSpare, err)
	}
	return nil
}

func (m fullMark) set() error   { return m.rename(markSpare, markSet) }
func (m fullMark) unset() error { return m.rename(markSet, markSpare) }

func (m fullMark) rename(from, to string) error {
	err := os.Rename(filepath.Join(m.dir, from), filepath.Join(m.dir, to))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark that the volume is full: %w", err)
	}
	dir, err := os.Open(m.dir)
	if err != nil {
		return fmt.Errorf("mark that the volume is full: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}
