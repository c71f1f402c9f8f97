package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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
// for the containers that run now: with cgroups of version 1 a container that restarts is fast again.
func (c *Cluster) SlowVolume(ctx context.Context, namespace, claim string, bytesPerSecond int64) error {
	v, err := c.volume(ctx, namespace, claim)
	if err != nil {
		return err
	}
	var info syscall.Stat_t
	if err := syscall.Stat(v.device, &info); err != nil {
		return fmt.Errorf("slow the volume of claim %s/%s: %w", namespace, claim, err)
	}
	trees, err := machineTrees()
	if err != nil {
		return err
	}
	limit := trees.writeLimit(info.Rdev, bytesPerSecond)
	var pods struct{ Items []podObject }
	if err := c.getJSON(ctx, &pods, "-n", namespace, "pods"); err != nil {
		return err
	}
	slowed := 0
	for _, pod := range pods.Items {
		if !pod.uses(claim) {
			continue
		}
		dir, err := pod.cgroup(limit.tree)
		if err != nil {
			return err
		}
		if err := limit.set(dir); err != nil {
			return fmt.Errorf("slow the volume of claim %s/%s: %w", namespace, claim, err)
		}
		slowed++
	}
	if slowed == 0 {
		return fmt.Errorf("slow the volume of claim %s/%s: no pod uses it", namespace, claim)
	}
	return nil
}

// writeLimit is what one file of a cgroup gets.
type writeLimit struct {
	tree, file, text string
	inherited        bool // by the cgroups below
}

func (t cgroupTrees) writeLimit(device uint64, bytesPerSecond int64) writeLimit {
	// A loop device has major number 7 and fewer than 256 minors here, so this is all of the number.
	number := fmt.Sprintf("%d:%d", device>>8&0xfff, device&0xff)
	if len(t.v1) > 0 {
		return writeLimit{
			tree: filepath.Join(filepath.Dir(t.unified), "blkio"), file: "blkio.throttle.write_bps_device",
			text: fmt.Sprintf("%s %d", number, bytesPerSecond),
		}
	}
	value := "max"
	if bytesPerSecond > 0 {
		value = strconv.FormatInt(bytesPerSecond, 10)
	}
	return writeLimit{tree: t.unified, file: "io.max", text: number + " wbps=" + value, inherited: true}
}

// set sets the limit in a pod's cgroup, and in each container's where those do not inherit it.
func (l writeLimit) set(dir string) error {
	if l.inherited {
		return os.WriteFile(filepath.Join(dir, l.file), []byte(l.text), 0o644)
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return os.WriteFile(filepath.Join(path, l.file), []byte(l.text), 0o644)
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
