package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const productModule = "github.com/plimsoll-dev/plimsoll-operator"

// BuildOptions says what Build builds.
type BuildOptions struct {
	API bool      // what StartAPI and the tests beside it need, in place of what a cluster needs
	Out io.Writer // progress lines
}

// Build builds the pinned binaries that the cache lacks, one after the other. Concurrent calls wait for each other.
// Everything comes from Go modules, so a machine with Go and a module proxy is enough.
func Build(ctx context.Context, o BuildOptions) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	root, err := checkout()
	if err != nil {
		return err
	}
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("ask go for its version: %w", err)
	}
	b := builder{bin: filepath.Join(cache, "bin"), room: filepath.Join(root, "tests", "cluster"), goVersion: strings.TrimSpace(string(goVersion)), out: o.Out}
	unlock, err := lockFile(ctx, filepath.Join(cache, "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, p := range pins() {
		if o.API && !p.API || !o.API && p.Tests {
			continue
		}
		if err := b.build(ctx, p); err != nil {
			return err
		}
	}
	if o.API {
		return nil
	}
	return b.buildOwn(ctx)
}

type builder struct {
	bin, room, goVersion string
	out                  io.Writer
}

func (b builder) build(ctx context.Context, p pin) error {
	target, stamp := filepath.Join(b.bin, p.Name), filepath.Join(b.bin, ".stamps", p.Name)
	key, err := b.key(p)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(stamp); err == nil && string(have) == key {
		if _, err := os.Stat(target); err == nil {
			return nil
		}
	}
	start := time.Now()
	fmt.Fprintf(b.out, "building %s %s\n", p.Name, p.Version)
	// Beside the target, so that the rename is atomic and a user of the old binary is not disturbed.
	tmp, err := os.MkdirTemp(mustDir(b.bin), ".build-")
	if err != nil {
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	defer os.RemoveAll(tmp)
	if err := b.run(ctx, filepath.Join(b.room, p.In), tmp, p.command(filepath.Join(tmp, p.Name))); err != nil {
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	if err := os.Rename(filepath.Join(tmp, p.Name), target); err != nil {
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	if p.Beside != "" {
		if err := b.keepBeside(ctx, p); err != nil {
			return err
		}
	}
	if err := replaceFile(stamp, []byte(key), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "built    %s %s in %s\n", p.Name, p.Version, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// keepBeside copies files of the pin's module: the cache may outlive the modules, and a cluster has no way to a proxy.
func (b builder) keepBeside(ctx context.Context, p pin) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", p.Module)
	cmd.Dir, cmd.Env = filepath.Join(b.room, p.In), append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	dir, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the files of %s: %w", p.Module, err)
	}
	from := filepath.Join(strings.TrimSpace(string(dir)), filepath.FromSlash(p.Beside))
	names, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("find the files of %s: %s has %d", p.Module, from, len(names))
	}
	var all []byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("keep the files of %s: %w", p.Module, err)
		}
		all = append(append(all, "---\n"...), text...)
	}
	return replaceFile(filepath.Join(b.bin, p.Name+".yaml"), all, 0o644)
}

// key of a pin, with the source of a program of ours.
func (b builder) key(p pin) (string, error) {
	key := p.key(b.goVersion)
	if !p.Own {
		return key, nil
	}
	sum := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(b.room, p.In, name))
		if err != nil {
			return "", fmt.Errorf("build %s: %w", p.Name, err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
	}
	return fmt.Sprintf("%ssource=%x\n", key, sum.Sum(nil)), nil
}

// run calls go with the flags that all binaries share. They are part of Go's build cache keys: with others,
// every package would be compiled once more.
func (b builder) run(ctx context.Context, dir, bin string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOBIN="+bin, "GOWORK=off")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}

func mustDir(dir string) string {
	_ = os.MkdirAll(dir, 0o755) // the next use of the directory reports the failure
	return dir
}

// checkout returns the directory of the product's module that the caller works in.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+productModule+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the checkout: no directory above the current one has the module %s", productModule)
		}
	}
}

// lockFile takes an exclusive lock that ends with the process, waiting until ctx ends.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(mustDir(filepath.Dir(path)), filepath.Base(path)), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: another call holds it: %w", path, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// buildOwn builds the project's own small programs. Their source changes without a version, so go decides.
func (b builder) buildOwn(ctx context.Context) error {
	own := []struct{ name, dir, pkg string }{
		{"cluster-relay", ".", "./cmd/cluster-relay"},
		{"cluster-pause", ".", "./cmd/cluster-pause"},
		{"plimsoll-csi", "csi", "."},
	}
	for _, o := range own {
		// Aside and renamed: the old one may be running.
		out := filepath.Join(b.bin, "."+o.name+".new")
		if err := b.run(ctx, filepath.Join(b.room, o.dir), b.bin, []string{"build", "-ldflags", "-s -w", "-o", out, o.pkg}); err != nil {
			return fmt.Errorf("build %s: %w", o.name, err)
		}
		if err := os.Rename(out, filepath.Join(b.bin, o.name)); err != nil {
			return fmt.Errorf("build %s: %w", o.name, err)
		}
	}
	return nil
}
