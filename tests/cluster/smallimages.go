package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
		config                Image
	}{
		{name: "pause", tag: "1", binary: filepath.Join(c.bin, "cluster-pause"), at: "pause", config: Image{Entrypoint: []string{"/pause"}}},
		{
			name: "coredns", tag: strings.TrimPrefix(coreDNSVersion, "v"), binary: filepath.Join(c.bin, "coredns"), at: "coredns",
			config: Image{Entrypoint: []string{"/coredns"}, Env: []string{path}},
		},
		{
			name: "busybox", tag: "1", binary: "/bin/busybox", at: "bin/busybox", links: strings.Fields(applets),
			config: Image{Cmd: []string{"/bin/sh"}, Env: []string{"PATH=/bin"}},
		},
	}
	var made []archive
	for _, r := range recipes {
		key, err := fileKey(r.binary)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", r.name, err)
		}
		a := archive{dir: filepath.Join(c.imagesDir(), r.name+"-"+r.tag+"-"+key), refs: []string{r.name + ":" + r.tag, "library/" + r.name + ":" + r.tag}}
		if err := makeSmallImage(a.dir, r.binary, r.at, r.links, r.config); err != nil {
			return nil, fmt.Errorf("make image %s: %w", r.name, err)
		}
		made = append(made, a)
	}
	return made, nil
}

// fileKey tells one content of a file from another.
func fileKey(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func makeSmallImage(dir, binary, at string, links []string, config Image) error {
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return nil
	}
	return makeImage(dir, map[string]string{at: binary}, func(root string) error {
		var err error
		for _, link := range links {
			if link != filepath.Base(at) {
				err = errors.Join(err, os.Symlink(filepath.Base(at), filepath.Join(root, filepath.Dir(at), link)))
			}
		}
		return err
	}, config)
}

// makeImage makes an image of single files, each path in the image with the file it is copied from.
func makeImage(dir string, files map[string]string, more func(root string) error, config Image) error {
	root, err := os.MkdirTemp("", "plimsoll-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	err = errors.Join(
		os.Chmod(root, 0o755),
		writeInPlace(filepath.Join(root, "etc/passwd"), "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
	)
	for at, from := range files {
		data, readErr := os.ReadFile(from)
		err = errors.Join(err, readErr, writeInPlace(filepath.Join(root, at), string(data)), os.Chmod(filepath.Join(root, at), 0o755))
	}
	if err == nil {
		err = more(root)
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
