package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const suite = "bookworm"

// bootstrap makes the root of a minimal Debian that can install packages from where this machine gets its own.
func bootstrap(ctx context.Context, root string) error {
	mirror, err := mirrorOf(ctx, suite)
	if err != nil {
		return err
	}
	if _, err := runFor(ctx, 10*time.Minute, "", "debootstrap", "--variant=minbase", suite, root, mirror); err != nil {
		return err
	}
	// What nobody reads in a container is left out, of this and of all that is installed later.
	const exclude = "path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/info/*\n" +
		"path-exclude=/usr/share/locale/*\npath-exclude=/usr/share/lintian/*\n"
	if err := writeInPlace(filepath.Join(root, "etc/dpkg/dpkg.cfg.d/small"), exclude); err != nil {
		return err
	}
	return clean(ctx, root)
}

// mirrorOf returns the source of a suite in this machine's apt configuration. No mirror is named in this project.
func mirrorOf(ctx context.Context, suite string) (string, error) {
	out, err := run(ctx, "", "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(out, "\n") {
		if release, uri, _ := strings.Cut(line, " "); release == suite {
			return uri, nil
		}
	}
	return "", fmt.Errorf("this machine's apt has no source for Debian %s", suite)
}

// offered returns the version of a package that apt can install now and that belongs to a release, such as 15.20.
func offered(ctx context.Context, name, release string) (string, error) {
	out, err := run(ctx, "", "apt-cache", "madison", name)
	if err != nil {
		return "", err
	}
	var versions []string
	for _, line := range strings.Split(out, "\n") {
		fields := strings.Split(line, "|")
		if len(fields) < 3 {
			continue
		}
		version := strings.TrimSpace(fields[1])
		versions = append(versions, version)
		_, upstream, epoch := strings.Cut(version, ":")
		if !epoch {
			upstream = version
		}
		if rest, ok := strings.CutPrefix(upstream, release); ok && strings.IndexAny(rest, "-.") == 0 {
			return version, nil
		}
	}
	return "", fmt.Errorf("apt offers no %s of release %s, only %s", name, release, strings.Join(versions, ", "))
}

// installInto installs a database into a root and removes what only the installation needed.
func installInto(ctx context.Context, root string, d database, version string) error {
	for _, path := range []string{"etc/apt", "usr/share/keyrings", "etc/resolv.conf", "etc/ssl/certs"} { // this machine's way to its packages
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			return err
		}
		if _, err := run(ctx, "", "cp", "-aLT", "/"+path, filepath.Join(root, path)); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{
		"usr/sbin/policy-rc.d":                     "#!/bin/sh\nexit 101\n", // start no services
		"etc/postgresql-common/createcluster.conf": "create_main_cluster = false\n",
	} {
		if err := writeInPlace(filepath.Join(root, path), text); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "usr/sbin/policy-rc.d"), 0o755); err != nil {
		return err
	}
	script := "set -e\napt-get -q update\napt-get -q install -y --no-install-recommends openssl locales"
	for _, p := range d.packages {
		script += " " + p + "=" + version
	}
	script += "\nlocaledef -i en_US -f UTF-8 en_US.UTF-8\n"
	for dir, mode := range d.dirs {
		script += fmt.Sprintf("mkdir -p %[1]s && chown %[2]s:%[2]s %[1]s && chmod %[3]s %[1]s\n", dir, d.user, mode)
	}
	if err := inRoot(ctx, root, script); err != nil {
		return err
	}
	return clean(ctx, root)
}

func inRoot(ctx context.Context, root, script string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chroot", root, "sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LANG=C.UTF-8", "HOME=/root"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install packages: %w: %s", err, out[max(0, len(out)-2000):])
	}
	return nil
}

// clean removes what an image does not need: traces of the installation, documentation, and PostgreSQL's
// just-in-time compiler, which is larger than all the rest (without it PostgreSQL interprets, as with jit=off).
func clean(ctx context.Context, root string) error {
	const script = `cd "$1" && rm -rf etc/apt/sources.list* etc/apt/apt.conf.d/* etc/apt/auth.conf* etc/resolv.conf etc/ssl/certs/* usr/sbin/policy-rc.d \
var/lib/apt/lists/* var/cache/apt/* var/cache/debconf/*-old var/log/*.log var/log/apt/* \
var/cache/ldconfig/* usr/share/doc/* usr/share/man/* usr/share/info/* usr/share/locale/* usr/share/lintian/* usr/share/i18n \
usr/lib/*/libLLVM* usr/lib/*/libz3* usr/lib/llvm-* usr/lib/postgresql/*/lib/llvmjit* usr/lib/postgresql/*/lib/bitcode &&
find usr/share/keyrings -type f ! -name 'debian-archive-*' -delete`
	_, err := run(ctx, "", "sh", "-c", script, "clean", root)
	return err
}

// userOf returns the number and group of a user of a root as UID:GID.
func userOf(root, name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		return "", fmt.Errorf("find user %s: %w", name, err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		fields := strings.Split(line, ":")
		if fields[0] == name && len(fields) > 3 {
			return fields[2] + ":" + fields[3], nil
		}
	}
	return "", fmt.Errorf("find user %s: the packages did not make it", name)
}
