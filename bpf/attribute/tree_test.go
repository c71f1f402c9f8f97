package attribute

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAWalkFindsEveryCgroupOfAContainer(t *testing.T) {
	root, id := t.TempDir(), strings.Repeat("0123456789abcdef", 4)
	own := make(map[string]uint64)
	for _, dir := range []string{
		"system.slice/kubelet.service", "kubepods/pod" + uid + "/" + id, "kubepods/pod" + uid + "/" + id + "/below",
	} {
		path := filepath.Join(root, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		own[dir] = info.Sys().(*syscall.Stat_t).Ino
	}
	got, err := Walk(root)
	if err != nil {
		t.Fatal(err)
	}
	want := Tree{Cgroups: map[Container][]uint64{
		{Pod: uid, ID: id}: {own["kubepods/pod"+uid+"/"+id], own["kubepods/pod"+uid+"/"+id+"/below"]},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAContainerThatMakesManyCgroupsIsBounded(t *testing.T) {
	root, id := t.TempDir(), strings.Repeat("0123456789abcdef", 4)
	for i := range mostCgroups + 1 {
		if err := os.MkdirAll(filepath.Join(root, "kubepods/pod"+uid, id, string(rune('a'+i))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Walk(root)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Cgroups[Container{Pod: uid, ID: id}]); n != mostCgroups || got.Skipped != 2 {
		t.Errorf("%d cgroups are known and %d left out, want %d and 2", n, got.Skipped, mostCgroups)
	}
}

func TestAMachineWithoutVersion2IsToldSo(t *testing.T) {
	if _, err := Hierarchy(t.TempDir()); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheProgramOfAContainersProcess(t *testing.T) {
	proc, id := t.TempDir(), strings.Repeat("0123456789abcdef", 4)
	ours := Container{Pod: uid, ID: id}
	for pid, row := range map[string]struct{ cgroup, exe string }{
		"1":    {"0::/", "/sbin/init"},
		"70":   {"0::/kubepods/pod" + uid + "/" + id, "/opt/plimsoll/bin/plimsoll-agent"},
		"71":   {"5:memory:/else\n0::/kubepods/pod" + uid + "/" + id, "/usr/lib/postgresql/17/bin/postgres (deleted)"},
		"72":   {"0::/kubepods/pod" + uid + "/" + strings.Repeat("f", 64), "/usr/lib/postgresql/17/bin/postgres"},
		"self": {"0::/kubepods/pod" + uid + "/" + id, "/usr/lib/postgresql/17/bin/postgres"},
	} {
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(row.cgroup+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(row.exe, filepath.Join(dir, "exe")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Programs(proc, []string{"postgres"}, map[Container]bool{ours: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[Container]string{ours: filepath.Join(proc, "71", "exe")}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAProcessThatMayNotBeLookedAtHidesNoOther(t *testing.T) {
	proc, id := t.TempDir(), strings.Repeat("0123456789abcdef", 4)
	ours, theirs := Container{Pod: uid, ID: id}, Container{Pod: uid, ID: strings.Repeat("f", 64)}
	for pid, c := range map[string]Container{"70": theirs, "71": ours, "72": theirs} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte("0::/kubepods/pod"+c.Pod+"/"+c.ID+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	readlink := func(path string) (string, error) {
		if path == filepath.Join(proc, "71", "exe") {
			return "/usr/lib/postgresql/17/bin/postgres", nil
		}
		return "", &os.PathError{Op: "readlink", Path: path, Err: syscall.EACCES}
	}
	got, err := programs(proc, []string{"postgres"}, map[Container]bool{ours: true, theirs: true}, readlink)
	if diff := cmp.Diff(map[Container]string{ours: filepath.Join(proc, "71", "exe")}, got); diff != "" || !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v; -want +got\n%s", err, diff)
	}
}

func TestTheRootOfAProcessIsOpenedWhileItIsOneOfTheContainer(t *testing.T) {
	process := t.TempDir()
	ours := Container{Pod: uid, ID: strings.Repeat("0123456789abcdef", 4)}
	if err := os.MkdirAll(filepath.Join(process, "root", "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	for sentence, row := range map[string]struct {
		cgroup string
		opens  bool
	}{
		"it is":                   {"0::/kubepods/pod" + ours.Pod + "/" + ours.ID, true},
		"it is another's by now":  {"0::/kubepods/pod" + ours.Pod + "/" + strings.Repeat("f", 64), false},
		"it is none of a pod":     {"0::/", false},
		"nobody says whose it is": {"", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(process, "cgroup"), []byte(row.cgroup+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := Root(process, ours)
			if !row.opens {
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/run", root.Fd())); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := Root(filepath.Join(process, "gone"), ours); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that has ended: %v", err)
	}
}
