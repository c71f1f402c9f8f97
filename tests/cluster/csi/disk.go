package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// smallest is the size below which mkfs.xfs wants to be asked twice.
const smallest = 300 << 20

// makeImage makes an XFS file system in a sparse file. Not ext4: to grow that while it is mounted takes a right
// (CAP_SYS_RESOURCE) that virtual machines and containers often withhold even from root.
// The name appears when it is complete.
func makeImage(ctx context.Context, path string, size int64) error {
	tmp := path + ".new"
	file, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		return err
	}
	args := []string{"-q", "-f", tmp}
	if size < smallest {
		args = append([]string{"--unsupported"}, args...) // which means: too small to be worth a real disk
	}
	if err := command(ctx, "mkfs.xfs", args...); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// growImage makes a mounted volume larger, under the eyes of its users.
func growImage(ctx context.Context, image, device, target string, size int64) error {
	info, err := os.Stat(image)
	if err != nil {
		return err
	}
	if info.Size() < size { // another try after a failure finds the file grown already
		if err := os.Truncate(image, size); err != nil {
			return err
		}
	}
	if err := command(ctx, "losetup", "-c", device); err != nil {
		return err
	}
	return command(ctx, "xfs_growfs", target)
}

// mounted returns the device of a mount point, or "" when nothing is mounted there.
func mounted(target string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	device := ""
	for _, line := range strings.Split(string(mounts), "\n") {
		// ID PARENT MAJOR:MINOR ROOT TARGET OPTIONS [TAGS...] - TYPE DEVICE OPTIONS
		before, after, found := strings.Cut(line, " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if found && len(fields) > 4 && len(tail) > 1 && fields[4] == target {
			device = tail[1] // the last one is on top
		}
	}
	return device, nil
}

func unmount(ctx context.Context, target string) error {
	device, err := mounted(target)
	if err != nil || device == "" {
		return err
	}
	return command(ctx, "umount", target)
}

// command runs a short program. Everything here can hang on a frozen volume, so it has a limit.
func command(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
