package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Keep says what Down leaves in the state directory.
type Keep int

const (
	// KeepAll keeps everything: the next Up continues with the same etcd and the same disks.
	KeepAll Keep = iota
	// KeepImages forgets etcd and the disks of the nodes.
	KeepImages
	// KeepNothing removes the state directory. Built binaries and images are elsewhere and stay.
	KeepNothing
)

// Down ends the cluster, or what there is of one, and fails when anything is left on the machine.
func Down(ctx context.Context, keep Keep, say func(string, ...any)) error {
	c, unlock, err := claim(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	start := time.Now()
	if err := c.down(ctx); err != nil {
		return err
	}
	if err := c.forget(keep); err != nil {
		return err
	}
	c.say("down in %.1fs, nothing left", time.Since(start).Seconds())
	return nil
}

// down goes on after a failure: every step removes something, and the check at the end says what is left.
func (c *Cluster) down(ctx context.Context) error {
	c.state.Up = false
	if _, err := os.Stat(c.dir); err == nil {
		if err := c.save(); err != nil {
			return err
		}
	}
	var failed error
	try := func(err error) { failed = errors.Join(failed, err) }
	for i := range maxNodes { // not by the state, which may be of half a start
		try(c.thawVolumes(ctx, i+1)) // a process that waits for a frozen file system cannot be killed
	}
	try(killCgroup(ctx, cgroupRoot))
	try(removeNetwork(ctx))
	removeNamespaceMount()
	try(removeCgroup(ctx, cgroupRoot))
	try(c.releaseLoops(ctx, ""))
	try(c.restoreSysctls())
	try(c.removeMountPoints())
	try(os.RemoveAll(c.path("pid")))
	left, err := c.leftovers(ctx)
	try(err)
	if len(left) > 0 {
		try(fmt.Errorf("left on the machine:\n  %s", strings.Join(left, "\n  ")))
	}
	return failed
}

// removeNamespaceMount undoes what the first "ip netns add" did: it makes /run/netns a mount point.
func removeNamespaceMount() {
	entries, err := os.ReadDir("/run/netns")
	if err != nil || len(entries) > 0 {
		return // not there, or somebody else uses it
	}
	_, _ = run(context.Background(), "", "umount", "/run/netns") // not a mount point if nobody ever added one
}

func (c *Cluster) forget(keep Keep) error {
	var paths []string
	switch keep {
	case KeepAll:
		return nil
	case KeepImages:
		paths = []string{c.path("etcd"), c.path("etcd-saved.db"), c.path("etcd-restored"), c.path("log")}
		for i := range maxNodes {
			paths = append(paths, c.path(nodeName(i+1)))
		}
	case KeepNothing:
		paths = []string{c.dir}
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("forget the cluster's state: %w", err)
		}
	}
	return nil
}
