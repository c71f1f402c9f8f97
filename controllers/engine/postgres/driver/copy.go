package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// walPrefix begins the names of log directories on the log's own volume. Each data directory has one of its own name, to which its
// pg_wal points, so that the rename of the data directory is the only step that counts.
const walPrefix = "pg_wal-"

func (d *Driver) newWALDir() string {
	return filepath.Join(d.cfg.WALDir, walPrefix+strings.ToLower(rand.Text()[:8]))
}

// copy clones the upstream.
func (d *Driver) copy(ctx context.Context, r engine.Role) error {
	d.setPhase("cloning")
	if r.Upstream == "" {
		return &Problem{Reason: "NoPrimary", Message: "this instance has no usable data and there is no primary to copy"}
	}
	slot := postgres.SlotName(r.Member)
	if err := d.makeRoom(ctx, r, slot); err != nil {
		return fmt.Errorf("copy %s: %w", r.Upstream, err)
	}
	fresh := filepath.Join(d.cfg.DataDir, newName)
	args := []string{
		// The name is one that no list of synchronous standbys holds: what is being copied has nothing durable yet.
		"-d", d.conninfo(r, "plimsoll_copy", ""), "-D", fresh,
		"--wal-method=stream", "--slot=" + slot, "--checkpoint=fast", "--progress", "--no-password", "--label=plimsoll", "--manifest-checksums=CRC32C",
	}
	if d.hasWALDir() {
		args = append(args, "--waldir="+d.newWALDir())
	}
	d.log.Info("copying the primary's data", "upstream", r.Upstream)
	tell := func(line string) { d.log.Info("copying the primary's data", "upstream", r.Upstream, "progress", line) }
	if _, err := d.run(ctx, tell, "pg_basebackup", args...); err != nil {
		return fmt.Errorf("copy %s: %w", r.Upstream, err)
	}
	if err := d.neutral(ctx, fresh); err != nil {
		return err
	}
	if _, err := d.update(filepath.Join(fresh, standbySignal), nil); err != nil {
		return err
	}
	if err := syncDir(fresh); err != nil {
		return err
	}
	if err := d.adopt(); err != nil {
		return err
	}
	d.log.Info("copied the primary's data", "upstream", r.Upstream)
	return d.forgetRewind()
}

// makeRoom ensures the slot and that the copy fits. The old data is kept until the new is whole, if there is room for both.
func (d *Driver) makeRoom(ctx context.Context, r engine.Role, slot string) error {
	up, err := d.dial(ctx, r)
	if err != nil {
		return err
	}
	defer up.close()
	if err := up.ensureSlot(ctx, slot); err != nil {
		return err
	}
	need, err := up.size(ctx)
	if err != nil {
		return err
	}
	need += need/20 + 96<<20 // the log that is written meanwhile
	if free(d.cfg.DataDir) >= need {
		return nil
	}
	if d.hasData() {
		d.log.Warn("no room for two copies: the old data goes first", "need", need, "free", free(d.cfg.DataDir))
		if err := d.discard(); err != nil {
			return err
		}
	}
	if have := free(d.cfg.DataDir); have < need {
		return &Problem{Reason: "VolumeTooSmall", Message: fmt.Sprintf("the volume has %d MB free and a copy of the primary needs %d MB; raise spec.storage.size", have>>20, need>>20)}
	}
	return nil
}

func (d *Driver) discard() error {
	old := filepath.Join(d.cfg.DataDir, oldName)
	// Away from its name first: half of it must never be taken for a data directory.
	if err := os.WriteFile(d.rewind(), nil, 0o600); err != nil {
		return fmt.Errorf("discard old data: %w", err)
	}
	if err := os.Rename(d.data(), old); err != nil {
		return fmt.Errorf("discard old data: %w", err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("discard old data: %w", err)
	}
	return d.sweepWAL()
}

// free bytes on the volume; the most there is if the question fails: then the copy finds out.
func free(path string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 1<<63 - 1
	}
	return int64(s.Bavail) * s.Bsize
}

// adopt lets the new directory take the data directory's place in one step.
func (d *Driver) adopt() error {
	fresh := filepath.Join(d.cfg.DataDir, newName)
	old := filepath.Join(d.cfg.DataDir, oldName)
	if err := d.swapIn(fresh, old); err != nil {
		return fmt.Errorf("put the new data directory in place: %w", err)
	}
	if err := syncDir(d.cfg.DataDir); err != nil {
		return err
	}
	for _, path := range []string{fresh, old} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the old data directory: %w", err)
		}
	}
	return d.sweepWAL()
}

func (d *Driver) swapIn(fresh, old string) error {
	if !exists(d.data()) {
		return os.Rename(fresh, d.data())
	}
	err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, d.data(), unix.RENAME_EXCHANGE)
	if err == nil || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// A file system without exchange: sweep puts the old one back if we end in between.
	if err := os.Rename(d.data(), old); err != nil {
		return err
	}
	return os.Rename(fresh, d.data())
}

// rewindOrCopy undoes what this member wrote after the fork, and copies everything anew if that fails.
func (d *Driver) rewindOrCopy(ctx context.Context, r engine.Role, from source) error {
	d.setPhase("rewinding")
	err := d.pgRewind(ctx, r, from)
	if err == nil {
		return nil
	}
	var p *passing
	if ctx.Err() != nil || errors.As(err, &p) {
		return err
	}
	d.log.Warn("rewind failed; copying the primary's data instead", "upstream", r.Upstream, "error", err.Error())
	return d.copy(ctx, r)
}

func (d *Driver) pgRewind(ctx context.Context, r engine.Role, from source) error {
	if err := d.rewindable(ctx, r, from); err != nil {
		return &passing{fmt.Errorf("rewind to %s: %w", r.Upstream, err)}
	}
	return d.rewindNow(ctx, r)
}

func (d *Driver) rewindNow(ctx context.Context, r engine.Role) error {
	if err := d.neutral(ctx, d.data()); err != nil {
		return err
	}
	standby := exists(filepath.Join(d.data(), standbySignal))
	if err := os.WriteFile(d.rewind(), nil, 0o600); err != nil {
		return fmt.Errorf("rewind to %s: %w", r.Upstream, err)
	}
	if err := syncDir(d.cfg.DataDir); err != nil {
		return err
	}
	// pg_rewind ends the crash recovery of an old server by one of its own, which refuses to be a standby.
	if err := os.Remove(filepath.Join(d.data(), standbySignal)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("rewind to %s: %w", r.Upstream, err)
	}
	d.log.Info("rewinding", "upstream", r.Upstream)
	tell := func(line string) { d.log.Info("rewinding", "upstream", r.Upstream, "progress", line) }
	if _, err := d.run(ctx, tell, "pg_rewind", "-D", d.data(), "--source-server="+d.conninfo(r, "plimsoll_rewind", postgres.SystemDatabase), "--progress"); err != nil {
		err = fmt.Errorf("rewind to %s: %w", r.Upstream, err)
		if !notConnected(err) {
			return err
		}
		return errors.Join(&passing{err}, d.untouched(standby))
	}
	if _, err := d.update(filepath.Join(d.data(), standbySignal), nil); err != nil {
		return err
	}
	if err := d.neutral(ctx, d.data()); err != nil {
		return err
	}
	if err := syncDir(d.data()); err != nil {
		return err
	}
	d.log.Info("rewound", "upstream", r.Upstream)
	return d.forgetRewind()
}

func (d *Driver) forgetRewind() error {
	if err := os.Remove(d.rewind()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("note that the data is whole: %w", err)
	}
	return syncDir(d.cfg.DataDir)
}
