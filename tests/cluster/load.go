package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// PushFiles makes an image of static binaries and other single files (path in the image: file on this machine) and
// gives it to the cluster's registry as NAME:TAG. It needs no image builder and takes about a second.
func (c *Cluster) PushFiles(ctx context.Context, ref string, files map[string]string, config Image) error {
	dir, err := os.MkdirTemp("", "plimsoll-push-")
	if err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	defer os.RemoveAll(dir)
	if err := makeImage(dir, files, func(string) error { return nil }, config); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	for _, name := range registryNames(ref) {
		if _, err := c.pusher().push(ctx, dir, name); err != nil {
			return err
		}
	}
	return nil
}

// Load gives an image to the cluster's registry as NAME:TAG. The source is an OCI or docker archive (a file) or the
// name of an image in buildah's storage.
func (c *Cluster) Load(ctx context.Context, source, ref string) error {
	if err := c.installPackages(ctx, map[string]string{"skopeo": "/usr/bin/skopeo"}); err != nil {
		return err
	}
	sources := []string{"containers-storage:" + source}
	if _, err := os.Stat(source); err == nil {
		sources = []string{"oci-archive:" + source, "docker-archive:" + source}
	}
	for _, name := range registryNames(ref) {
		if err := c.copyImage(ctx, sources, name); err != nil {
			return fmt.Errorf("load image %s: %w", source, err)
		}
	}
	return nil
}

// copyImage copies the first source that is an image of its kind; a file does not tell which of the two it is.
func (c *Cluster) copyImage(ctx context.Context, sources []string, name string) error {
	var err error
	for _, from := range sources {
		_, err = runFor(ctx, 10*time.Minute, "", "skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", from, "docker://"+c.RegistryAddress()+"/"+name)
		if err == nil {
			return nil
		}
	}
	return err
}

// registryNames returns the names under which pods look for an image: without a registry it is docker.io/library/NAME.
func registryNames(ref string) []string {
	if strings.Contains(ref, "/") {
		return []string{ref}
	}
	return []string{ref, "library/" + ref}
}
