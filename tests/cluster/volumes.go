package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func (c *Cluster) startCSI(int) error            { return nil }
func (c *Cluster) waitCSI(context.Context) error { return nil }

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
			device := "/dev/" + strings.Split(path, "/")[3]
			ours = append(ours, loopDevice{device, strings.TrimSpace(string(file))})
		}
	}
	return ours, nil
}

// thawVolumes ends every freeze of a node's file systems.
func (c *Cluster) thawVolumes(context.Context, int) error { return nil }

// releaseLoops detaches loop devices that outlived their mounts.
func (c *Cluster) releaseLoops(ctx context.Context, node string) error { return nil }
