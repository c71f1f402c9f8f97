package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// SaveEtcd copies all that the API server knows, as a backup of a real cluster does. The API server is away for a few seconds.
func (c *Cluster) SaveEtcd(ctx context.Context) error {
	return c.withoutEtcd(ctx, func() error { return copyTree(ctx, c.path("etcd"), c.path("etcd-saved")) })
}

// RestoreEtcd puts back what SaveEtcd copied: everything that happened since is forgotten, and versions of objects begin anew from there.
func (c *Cluster) RestoreEtcd(ctx context.Context) error {
	if _, err := os.Stat(c.path("etcd-saved")); err != nil {
		return fmt.Errorf("restore etcd: it was not saved: %w", err)
	}
	return c.withoutEtcd(ctx, func() error { return copyTree(ctx, c.path("etcd-saved"), c.path("etcd")) })
}

// withoutEtcd does something while neither etcd nor the API server runs, and starts both again whatever comes of it.
func (c *Cluster) withoutEtcd(ctx context.Context, do func() error) error {
	err := errors.Join(c.stop(ctx, "kube-apiserver"), c.stop(ctx, "etcd"))
	if err == nil {
		err = do()
	}
	if _, running := c.pid("etcd"); running != nil {
		err = errors.Join(err, c.start(c.controlDaemon("etcd", c.etcdArgs()...)))
	}
	return errors.Join(err, c.StartAPIServer(ctx))
}

func copyTree(ctx context.Context, from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	_, err := run(ctx, "", "cp", "-a", from, to)
	return err
}
