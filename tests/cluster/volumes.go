package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Volumes come from our own CSI driver (tests/cluster/csi): XFS images on the node's disk behind loop devices.
const (
	csiDriver  = "local.plimsoll.test"
	csiPlugins = "/var/lib/kubelet/plugins"
)

const csiSocket = csiPlugins + "/" + csiDriver + "/csi.sock"

// startCSI starts a node's driver.
func (c *Cluster) startCSI(i int) error {
	n := nodeName(i)
	return c.startOnNode(i, "csi", nil, "plimsoll-csi", "--node="+n, "--disk="+c.path(n, "volumes"), "--endpoint="+csiSocket,
		"--register=/var/lib/kubelet/plugins_registry/"+csiDriver+"-reg.sock")
}

// startProvisioner starts the stock provisioner that makes volumes on this node only.
func (c *Cluster) startProvisioner(i int) error {
	n := nodeName(i)
	return c.startOnNode(i, "csi-provisioner", []string{"NODE_NAME=" + n},
		"csi-provisioner", "--kubeconfig="+c.path("conf", "csi.kubeconfig"), "--csi-address=unix://"+csiSocket,
		"--feature-gates=Topology=true", "--node-deployment", "--strict-topology", "--immediate-topology=false",
		"--node-deployment-immediate-binding=false", "--default-fstype=xfs",
		"--retry-interval-start=500ms", "--retry-interval-max=10s")
}

// startControlCSI starts the stock resizer with an instance of the driver that only tells what it can do: volumes
// grow on their nodes, so all the resizer does is to set things going.
func (c *Cluster) startControlCSI() error {
	return errors.Join(c.start(c.controlDaemon("csi", "plimsoll-csi", "--node="+control, "--endpoint="+c.path("run", "csi.sock"))), c.startResizer())
}

func (c *Cluster) startResizer() error {
	return c.start(c.controlDaemon("csi-resizer", "csi-resizer", "--kubeconfig="+c.path("conf", "csi.kubeconfig"), "--csi-address=unix://"+c.path("run", "csi.sock"),
		"--retry-interval-start=500ms", "--retry-interval-max=10s"))
}

// waitCSI waits until every kubelet knows the driver.
func (c *Cluster) waitCSI(ctx context.Context) error {
	return wait(ctx, 60*time.Second, "the volume driver of every node", func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     struct{ Drivers []struct{ Name string } }
			}
		}
		if err := c.getJSON(ctx, &list, "csinodes"); err != nil {
			return err
		}
		known := 0
		for _, node := range list.Items {
			for _, driver := range node.Spec.Drivers {
				if driver.Name == csiDriver {
					known++
				}
			}
		}
		if known < c.state.Nodes {
			return fmt.Errorf("%d of %d nodes have it", known, c.state.Nodes)
		}
		return nil
	})
}

// loopDevice is a block device of the machine that serves one of our disk images.
type loopDevice struct{ device, file string }

// loopDevices lists the loop devices of a node's volumes, or of all nodes'.
func (c *Cluster) loopDevices(node string) ([]loopDevice, error) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var ours []loopDevice
	for _, path := range backing {
		file, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // released just now
		}
		if err != nil {
			return nil, fmt.Errorf("list loop devices: %w", err)
		}
		if strings.HasPrefix(string(file), c.path(node)+"/") {
			ours = append(ours, loopDevice{"/dev/" + strings.Split(path, "/")[3], strings.TrimSpace(string(file))})
		}
	}
	return ours, nil
}

// volumeMounts returns, for a node with power, one mount point of each mounted volume image by its device.
func (c *Cluster) volumeMounts(i int) (map[string]string, error) {
	pid, err := c.pid(nodeName(i) + "-init")
	if errors.Is(err, errNotRunning) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	loops, err := c.loopDevices(nodeName(i))
	if err != nil {
		return nil, err
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, fmt.Errorf("read the mounts of %s: %w", nodeName(i), err)
	}
	mounts := map[string]string{}
	for _, line := range strings.Split(string(table), "\n") {
		before, after, _ := strings.Cut(line, " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(tail) < 2 {
			continue
		}
		for _, loop := range loops {
			if tail[1] == loop.device {
				mounts[loop.device] = fields[4]
			}
		}
	}
	return mounts, nil
}

// thawVolumes ends every freeze of a node's file systems: what waits for one cannot be killed, nor unmounted.
func (c *Cluster) thawVolumes(ctx context.Context, i int) error {
	mounts, err := c.volumeMounts(i)
	if err != nil || len(mounts) == 0 {
		return err
	}
	enter, err := c.inNode(i)
	if err != nil {
		return err
	}
	for _, target := range mounts {
		// It fails on those that are not frozen, and only then.
		_, _ = runFor(ctx, 5*time.Second, "", enter[0], append(enter[1:], "fsfreeze", "--unfreeze", target)...)
	}
	return nil
}

// releaseLoops waits for the loop devices to go with their last mounts, and detaches those that do not.
func (c *Cluster) releaseLoops(ctx context.Context, node string) error {
	gone := func(ctx context.Context) error {
		loops, err := c.loopDevices(node)
		if err == nil && len(loops) > 0 {
			err = fmt.Errorf("%s of %s is still there", loops[0].device, loops[0].file)
		}
		return err
	}
	if wait(ctx, 3*time.Second, "", gone) == nil {
		return nil
	}
	loops, err := c.loopDevices(node)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if _, err := run(ctx, "", "losetup", "--detach", loop.device); err != nil {
			return err
		}
	}
	return wait(ctx, 5*time.Second, "the release of loop devices", gone)
}
