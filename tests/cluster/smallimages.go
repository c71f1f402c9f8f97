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

// archive is an image in the cache: a layout directory and the names it gets in the registry.
type archive struct {
	dir  string
	refs []string
}

// smallImages makes the images of single static binaries; they are made anew when a binary has changed.
func (c *Cluster) smallImages(ctx context.Context) ([]archive, error) {
	applets, err := run(ctx, "", "/bin/busybox", "--list")
	if err != nil {
		return nil, err
	}
	const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
	recipes := []struct {
		name, tag, binary, at string
		links                 []string
		config                image
	}{
		{name: "pause", tag: "1", binary: filepath.Join(c.bin, "cluster-pause"), at: "pause", config: image{Entrypoint: []string{"/pause"}}},
		{
			name: "coredns", tag: strings.TrimPrefix(coreDNSVersion, "v"), binary: filepath.Join(c.bin, "coredns"), at: "coredns",
			config: image{Entrypoint: []string{"/coredns"}, Env: []string{path}},
		},
		{
			name: "busybox", tag: "1", binary: "/bin/busybox", at: "bin/busybox", links: strings.Fields(applets),
			config: image{Cmd: []string{"/bin/sh"}, Env: []string{"PATH=/bin"}},
		},
	}
	var made []archive
	for _, r := range recipes {
		key, err := fileKey(r.binary)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", r.name, err)
		}
		a := archive{dir: filepath.Join(filepath.Dir(c.dir), "images", r.name+"-"+r.tag+"-"+key), refs: []string{r.name + ":" + r.tag, "library/" + r.name + ":" + r.tag}}
		if err := makeSmallImage(a.dir, r.binary, r.at, r.links, r.config); err != nil {
			return nil, fmt.Errorf("make image %s: %w", r.name, err)
		}
		made = append(made, a)
	}
	return made, nil
}

// fileKey tells one state of a file from another.
func fileKey(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%d", info.Size(), info.ModTime().Unix()), nil
}

func makeSmallImage(dir, binary, at string, links []string, config image) error {
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return nil
	}
	root, err := os.MkdirTemp("", "plimsoll-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	err = errors.Join(
		os.MkdirAll(filepath.Join(root, filepath.Dir(at)), 0o755),
		os.MkdirAll(filepath.Join(root, "etc"), 0o755),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"), 0o644),
		os.WriteFile(filepath.Join(root, at), data, 0o755),
	)
	for _, link := range links {
		if link != filepath.Base(at) {
			err = errors.Join(err, os.Symlink(filepath.Base(at), filepath.Join(root, filepath.Dir(at), link)))
		}
	}
	if err != nil {
		return err
	}
	l, err := writeLayer(filepath.Join(dir, "blobs", "sha256"), root, "")
	if err != nil {
		return err
	}
	return writeImage(dir, config, []layer{l})
}

// pushImages gives the registry every image that the cache has.
func (c *Cluster) pushImages(ctx context.Context, step func(string, ...any)) error {
	archives, err := c.smallImages(ctx)
	if err != nil {
		return err
	}
	databases, err := c.cachedDatabaseImages()
	if err != nil {
		return err
	}
	p := c.pusher()
	if err := wait(ctx, 30*time.Second, "the registry", func(ctx context.Context) error { return get(ctx, p.client, p.base+"/v2/") }); err != nil {
		return err
	}
	pushed := 0
	for _, a := range append(archives, databases...) {
		for _, ref := range a.refs {
			did, err := p.push(ctx, a.dir, ref)
			if err != nil {
				return err
			}
			if did {
				pushed++
			}
		}
	}
	step("images in the registry (%d pushed)", pushed)
	return nil
}
