package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// filler is the file that takes up the room of a filled volume.
const filler = ".plimsoll-filler"

// volume is a mounted volume of a claim.
type volume struct {
	node   int
	device string // /dev/loopN
	target string // a mount point inside the node
}

// HangVolume makes every write to a claim's volume wait, like a storage system that stopped answering.
func (c *Cluster) HangVolume(ctx context.Context, namespace, claim string) error {
	return c.onVolume(ctx, namespace, claim, "fsfreeze", "--freeze")
}

// ThawVolume ends HangVolume.
func (c *Cluster) ThawVolume(ctx context.Context, namespace, claim string) error {
	return c.onVolume(ctx, namespace, claim, "fsfreeze", "--unfreeze")
}

// FillVolume takes all room that a claim's volume has left.
func (c *Cluster) FillVolume(ctx context.Context, namespace, claim string) error {
	// Reserving is quick, but leaves fragments smaller than it asks for; writing takes those too and ends with an error.
	const script = `cd "$1" && free=$(($(stat -f -c '%a * %S' .))) &&
{ fallocate -l "$free" ` + filler + ` || true; } && dd if=/dev/zero of=` + filler + ` bs=4k oflag=append conv=notrunc 2>/dev/null; sync -f .
test "$(stat -f -c %a .)" -lt 64`
	return c.onVolume(ctx, namespace, claim, "sh", "-c", script, "fill")
}

// EmptyVolume ends FillVolume.
func (c *Cluster) EmptyVolume(ctx context.Context, namespace, claim string) error {
	return c.onVolume(ctx, namespace, claim, "sh", "-c", `rm -f "$1/`+filler+`"`, "empty")
}

// onVolume runs a command as a process of the volume's node, with the volume's mount point as its last argument.
func (c *Cluster) onVolume(ctx context.Context, namespace, claim string, args ...string) error {
	v, err := c.volume(ctx, namespace, claim)
	if err != nil {
		return err
	}
	enter, err := c.inNode(v.node)
	if err != nil {
		return err
	}
	argv := append(append(enter[1:], args...), v.target)
	if _, err := runFor(ctx, 30*time.Second, "", enter[0], argv...); err != nil {
		return fmt.Errorf("volume of claim %s/%s: %w", namespace, claim, err)
	}
	return nil
}

// SlowVolume limits what the pods that use a claim write to its volume, in bytes per second; 0 ends that. It holds
// for the containers that run now: a container that restarts is fast again.
func (c *Cluster) SlowVolume(ctx context.Context, namespace, claim string, bytesPerSecond int64) error {
	v, err := c.volume(ctx, namespace, claim)
	if err != nil {
		return err
	}
	var info syscall.Stat_t
	if err := syscall.Stat(v.device, &info); err != nil {
		return fmt.Errorf("slow the volume of claim %s/%s: %w", namespace, claim, err)
	}
	// A loop device has major number 7 and fewer than 256 minors here, so this is all of the number.
	limit := fmt.Sprintf("%d:%d %d", info.Rdev>>8&0xfff, info.Rdev&0xff, bytesPerSecond)
	var pods struct{ Items []podObject }
	if err := c.getJSON(ctx, &pods, "-n", namespace, "pods"); err != nil {
		return err
	}
	slowed := 0
	for _, pod := range pods.Items {
		if !pod.uses(claim) {
			continue
		}
		dir, err := pod.cgroup(filepath.Join(cgroupMount, "blkio"))
		if err != nil {
			return err
		}
		if err := limitWrites(dir, limit); err != nil {
			return fmt.Errorf("slow the volume of claim %s/%s: %w", namespace, claim, err)
		}
		slowed++
	}
	if slowed == 0 {
		return fmt.Errorf("slow the volume of claim %s/%s: no pod uses it", namespace, claim)
	}
	return nil
}

// limitWrites sets the limit in a pod's cgroup and each container's: version 1 limits are not inherited.
func limitWrites(dir, limit string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return os.WriteFile(filepath.Join(path, "blkio.throttle.write_bps_device"), []byte(limit), 0o644)
	})
}

func (p podObject) uses(claim string) bool {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

// GrowVolume asks for a larger volume (such as "2Gi") and returns when the claim has it, up to a minute later.
func (c *Cluster) GrowVolume(ctx context.Context, namespace, claim, size string) error {
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	if _, err := c.Kubectl(ctx, "", "-n", namespace, "patch", "pvc", claim, "-p", patch); err != nil {
		return err
	}
	return wait(ctx, 2*time.Minute, "claim "+claim+" to grow to "+size, func(ctx context.Context) error {
		have, err := c.Kubectl(ctx, "", "-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.status.capacity.storage}")
		if err == nil && have != size {
			err = fmt.Errorf("it has %s", have)
		}
		return err
	})
}

// volume finds the mounted volume of a claim.
func (c *Cluster) volume(ctx context.Context, namespace, claim string) (volume, error) {
	name, err := c.Kubectl(ctx, "", "-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return volume{}, err
	}
	if name == "" {
		return volume{}, fmt.Errorf("claim %s/%s: it is not bound", namespace, claim)
	}
	loops, err := c.loopDevices("")
	if err != nil {
		return volume{}, err
	}
	for _, loop := range loops {
		if filepath.Base(loop.file) != name+".img" {
			continue
		}
		i, err := c.index(strings.Split(strings.TrimPrefix(loop.file, c.dir+"/"), "/")[0])
		if err != nil {
			return volume{}, err
		}
		mounts, err := c.volumeMounts(i)
		if err != nil {
			return volume{}, err
		}
		if target := mounts[loop.device]; target != "" {
			return volume{node: i, device: loop.device, target: target}, nil
		}
	}
	return volume{}, errors.New("claim " + namespace + "/" + claim + ": no node has its volume mounted")
}
