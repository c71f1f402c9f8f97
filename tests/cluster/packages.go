package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// packages lists, for each Debian package that the cluster needs at run time, a file that proves it is installed.
func packages() map[string]string {
	return map[string]string{
		"runc": "/usr/sbin/runc", "containernetworking-plugins": "/usr/lib/cni/ptp", "iptables": "/usr/sbin/iptables", "nftables": "/usr/sbin/nft",
		"ipset": "/usr/sbin/ipset", "conntrack": "/usr/sbin/conntrack", "iproute2": "/bin/ip", "xfsprogs": "/usr/sbin/mkfs.xfs",
		"util-linux": "/usr/bin/nsenter", "busybox-static": "/bin/busybox", "socat": "/usr/bin/socat", "procps": "/sbin/sysctl",
	}
}

// installPackages installs what is missing, so that a fresh machine needs only Go.
func (c *Cluster) installPackages(ctx context.Context, want map[string]string) error {
	var missing []string
	for name, file := range want {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	c.say("installing packages: %s", strings.Join(missing, " "))
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	if err := aptGet(ctx, append([]string{"install", "-y", "--no-install-recommends"}, missing...)...); err != nil {
		return err
	}
	for _, name := range missing {
		if _, err := os.Stat(want[name]); err != nil {
			return fmt.Errorf("install %s: the package did not bring %s", name, want[name])
		}
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	// Another apt may be at work, on a machine that has just started for example.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}
