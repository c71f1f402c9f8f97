package driver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// write replaces a file as a whole: readers see the old or the new one, also after a crash. What lies in memory need not reach a
// disk, and does not wait for one in the middle of a hand-over.
func (d *Driver) write(path string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && d.cfg.Credential != nil {
		err = f.Chown(int(d.cfg.Credential.Uid), int(d.cfg.Credential.Gid))
	}
	if err == nil && !strings.HasPrefix(path, d.cfg.RunDir+"/") {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// update writes a file if it differs, and says whether it did.
func (d *Driver) update(path string, content []byte) (bool, error) {
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
		return false, nil
	}
	return true, d.write(path, content, 0o600)
}

func (d *Driver) mkdir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	if d.cfg.Credential == nil {
		return nil
	}
	if err := os.Chown(path, int(d.cfg.Credential.Uid), int(d.cfg.Credential.Gid)); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	err = f.Sync()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
