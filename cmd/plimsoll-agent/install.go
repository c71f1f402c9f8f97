package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const binaryName = "plimsoll-agent"

// install copies the program and writes passwd and group for the user that the pod got: databases refuse to run as a user without a
// name, and OpenShift gives a pod any number.
func install(self, bin, etc string, uid, gid int) error {
	if err := copyVerified(self, filepath.Join(bin, binaryName)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd(uid, gid)), 0o644); err != nil {
		return fmt.Errorf("write the user's entry: %w", err)
	}
	if err := os.WriteFile(filepath.Join(etc, "group"), []byte(group(gid)), 0o644); err != nil {
		return fmt.Errorf("write the group's entry: %w", err)
	}
	return nil
}

// copyVerified copies a program beside its name, reads it back, and only then gives it the name: what runs is what was meant.
func copyVerified(from, to string) error {
	next := to + ".next"
	want, err := copyFile(from, next)
	if err != nil {
		return fmt.Errorf("copy the agent: %w", err)
	}
	got, err := digest(next)
	if err != nil {
		return fmt.Errorf("read the copy back: %w", err)
	}
	if got != want {
		return fmt.Errorf("the copy's digest is sha256:%x, the agent's sha256:%x: the volume %s does not keep what is written", got, want, filepath.Dir(to))
	}
	if err := os.Rename(next, to); err != nil {
		return fmt.Errorf("name the copy: %w", err)
	}
	return nil
}

type sum [sha256.Size]byte

func copyFile(from, to string) (sum, error) {
	in, err := os.Open(from)
	if err != nil {
		return sum{}, err
	}
	defer func() { _ = in.Close() }() // read only: nothing to lose
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return sum{}, err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), in)
	if err := errors.Join(err, out.Sync(), out.Chmod(0o755), out.Close()); err != nil {
		return sum{}, err
	}
	return sum(h.Sum(nil)), nil
}

func digest(path string) (sum, error) {
	f, err := os.Open(path)
	if err != nil {
		return sum{}, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum{}, err
	}
	return sum(h.Sum(nil)), nil
}

const userName = "database"

func passwd(uid, gid int) string {
	text := "root:x:0:0:root:/:/sbin/nologin\n"
	if uid != 0 {
		text += fmt.Sprintf("%s:x:%d:%d:Plimsoll database:%s:/sbin/nologin\n", userName, uid, gid, engine.RunDir)
	}
	return text + "nobody:x:65534:65534:nobody:/:/sbin/nologin\n"
}

func group(gid int) string {
	text := "root:x:0:\n"
	if gid != 0 {
		text += fmt.Sprintf("%s:x:%d:\n", userName, gid)
	}
	return text + "nogroup:x:65534:\n"
}
