package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// database is an image with a database from Debian's packages.
type database struct {
	name, release string            // postgres, 15.20: the tag, and the start of the package version
	tags          []string          // further tags
	packages      []string          // at exactly that version
	user          string            // whose number the image runs as
	path          string            // in front of PATH
	dirs          map[string]string // directories to make for the user, with their modes
	cmd           []string
}

// databases lists the images. The two PostgreSQL releases really differ, for tests of updates.
func databases() []database {
	postgres := func(release string, tags ...string) database {
		return database{
			name: "postgres", release: release, tags: tags, packages: []string{"postgresql-15", "postgresql-client-15", "libpq5"},
			user: "postgres", path: "/usr/lib/postgresql/15/bin:", dirs: map[string]string{"/run/postgresql": "2775", "/var/lib/postgresql": "755"},
		}
	}
	return []database{
		postgres("15.20", "15"),
		postgres("15.18"),
		{
			name: "redis", release: "7.0", packages: []string{"redis-server", "redis-tools"}, user: "redis",
			dirs: map[string]string{"/run/redis": "755", "/var/lib/redis": "750"}, cmd: []string{"redis-server"},
		},
	}
}

// refs returns the names in the registry; docker.io/library/NAME arrives there as library/NAME.
func (d database) refs() []string {
	var refs []string
	for _, tag := range append([]string{d.release}, d.tags...) {
		refs = append(refs, d.name+":"+tag, "library/"+d.name+":"+tag)
	}
	return refs
}

func (c *Cluster) imagesDir() string { return filepath.Join(filepath.Dir(c.dir), "images") }

// cached returns the finished layout of a database image in the cache, or "".
func (c *Cluster) cached(d database) (string, error) {
	found, err := filepath.Glob(filepath.Join(c.imagesDir(), d.name+"-"+d.release+"*", "index.json"))
	if err != nil || len(found) == 0 {
		return "", err
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

func (c *Cluster) cachedDatabaseImages() ([]archive, error) {
	var archives []archive
	for _, d := range databases() {
		dir, err := c.cached(d)
		if err != nil {
			return nil, fmt.Errorf("look for image %s: %w", d.name, err)
		}
		if dir != "" {
			archives = append(archives, archive{dir: dir, refs: d.refs()})
		}
	}
	return archives, nil
}

// Images makes the database images that the cache lacks, and gives them to the cluster when one is up.
func Images(ctx context.Context, say func(string, ...any)) error {
	c, unlock, err := claim(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	start := time.Now()
	step := func(format string, args ...any) {
		c.say("%6.1fs  "+format, append([]any{time.Since(start).Seconds()}, args...)...)
	}
	if err := c.makeDatabaseImages(ctx, step); err != nil {
		return err
	}
	if !c.state.Up || !c.exists() {
		step("all images are in the cache; no cluster is up")
		return nil
	}
	return c.pushImages(ctx, step)
}

func (c *Cluster) makeDatabaseImages(ctx context.Context, step func(string, ...any)) error {
	var missing []database
	for _, d := range databases() {
		dir, err := c.cached(d)
		if err != nil {
			return err
		}
		if dir == "" {
			missing = append(missing, d)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := c.installPackages(ctx, map[string]string{"debootstrap": "/usr/sbin/debootstrap"}); err != nil {
		return err
	}
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	work, err := os.MkdirTemp(mustDir(c.imagesDir()), ".work-")
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	defer os.RemoveAll(work)
	base := filepath.Join(work, "base")
	if err := bootstrap(ctx, base); err != nil {
		return err
	}
	blobs := filepath.Join(work, "blobs", "sha256")
	ground, err := writeLayer(blobs, base, "")
	if err != nil {
		return err
	}
	step("base of all images made (%d MB)", ground.size>>20)
	for _, d := range missing {
		size, uid, err := c.makeDatabaseImage(ctx, d, work, base, ground)
		if err != nil {
			return fmt.Errorf("make image %s:%s: %w", d.name, d.release, err)
		}
		step("image %s:%s made (%d MB more, user %s = %s)", d.name, d.release, size>>20, d.user, uid)
	}
	return nil
}

func (c *Cluster) makeDatabaseImage(ctx context.Context, d database, work, base string, ground layer) (size int64, uid string, err error) {
	version, err := offered(ctx, d.packages[0], d.release)
	if err != nil {
		return 0, "", err
	}
	root := filepath.Join(work, "root")
	defer os.RemoveAll(root)
	if _, err := runFor(ctx, 2*time.Minute, "", "cp", "-a", base, root); err != nil {
		return 0, "", err
	}
	if err := installInto(ctx, root, d, version); err != nil {
		return 0, "", err
	}
	uid, err = userOf(root, d.user)
	if err != nil {
		return 0, "", err
	}
	dir := filepath.Join(c.imagesDir(), d.name+"-"+strings.TrimPrefix(version, "5:")) // the colon of an epoch means something in paths
	blobs := filepath.Join(dir, "blobs", "sha256")
	top, err := writeLayer(blobs, root, base)
	if err != nil {
		return 0, "", err
	}
	if err := os.Link(blobPath(work, ground.digest), blobPath(dir, ground.digest)); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, "", err
	}
	config := Image{
		User: strings.Split(uid, ":")[0], Cmd: d.cmd,
		Env: []string{"PATH=" + d.path + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"},
	}
	return top.size, uid, writeImage(dir, config, []layer{ground, top})
}
