package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// SaveEtcd takes a snapshot of all that the API server knows, while it runs.
func (c *Cluster) SaveEtcd(ctx context.Context) error {
	p := c.pki()
	return c.etcdTool(ctx, "etcdctl", "--endpoints=https://127.0.0.1:2379", "--cacert="+p.crt("etcd-ca"),
		"--cert="+p.crt("apiserver-etcd-client"), "--key="+p.key("apiserver-etcd-client"), "snapshot", "save", c.path("etcd-saved.db"))
}

// RestoreEtcd puts back what SaveEtcd took: everything that happened since is forgotten. It is done as Kubernetes' documentation asks: all
// API servers stop first, and everything of the cluster that watches them starts anew afterwards; pods go on. Versions of objects begin
// anew from the snapshot, or, with ahead, as etcd's documentation asks, by so many further on, which no watch mistakes for what it knows.
func (c *Cluster) RestoreEtcd(ctx context.Context, ahead uint64) error {
	if _, err := os.Stat(c.path("etcd-saved.db")); err != nil {
		return fmt.Errorf("restore etcd: it was not saved: %w", err)
	}
	err := errors.Join(c.stop(ctx, "kube-apiserver"), c.stop(ctx, "etcd"))
	if err == nil {
		err = c.replaceEtcd(ctx, ahead)
	}
	if _, running := c.pid("etcd"); running != nil { // whatever came of it
		err = errors.Join(err, c.start(c.controlDaemon("etcd", c.etcdArgs()...)))
	}
	return errors.Join(err, c.StartAPIServer(ctx), c.restartWatchers(ctx))
}

func (c *Cluster) replaceEtcd(ctx context.Context, ahead uint64) error {
	fresh := c.path("etcd-restored")
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	args := []string{
		"snapshot", "restore", c.path("etcd-saved.db"), "--data-dir=" + fresh, "--name=plimsoll",
		"--initial-cluster=plimsoll=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
	}
	if ahead > 0 {
		args = append(args, "--bump-revision="+strconv.FormatUint(ahead, 10), "--mark-compacted")
	}
	if err := c.etcdTool(ctx, "etcdutl", args...); err != nil {
		return err
	}
	if err := os.RemoveAll(c.path("etcd")); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	if err := os.Rename(fresh, c.path("etcd")); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	return nil
}

func (c *Cluster) etcdTool(ctx context.Context, name string, args ...string) error {
	path, err := Binary(name)
	if err != nil {
		return err
	}
	enter := inControl()
	_, err = run(ctx, "", enter[0], append(append(enter[1:], path), args...)...)
	return err
}

// restartWatchers starts the programs of the cluster anew that keep what they heard from the API server: versions that went back would
// leave them with it. Those of a node without power start with it.
func (c *Cluster) restartWatchers(ctx context.Context) error {
	var err error
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "control-proxy", "csi-resizer"} {
		err = errors.Join(err, c.stop(ctx, name))
	}
	if err = errors.Join(err, c.startControllers(), c.startResizer()); err != nil {
		return fmt.Errorf("restart what watches the API server: %w", err)
	}
	err = each(c.state.Nodes, func(i int) error {
		n := nodeName(i)
		var err error
		if _, off := c.pid(n + "-init"); off != nil {
			return nil //nolint:nilerr // that is how a node without power is told
		}
		for _, name := range []string{"kubelet", "proxy", "kube-router", "csi-provisioner"} {
			err = errors.Join(err, c.stop(ctx, n+"-"+name))
		}
		return errors.Join(err, c.startWatchers(i))
	})
	if err != nil {
		return fmt.Errorf("restart what watches the API server: %w", err)
	}
	return nil
}
