package cluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pureFiles are those of a machine's root cgroup where version 2 has all controllers.
func pureFiles() map[string]string {
	return map[string]string{
		"cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n", "cgroup.subtree_control": "cpu memory pids\n", "cgroup.procs": "1\n2\n",
	}
}

func with(files map[string]string, more ...string) map[string]string {
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

// fakeTree is a directory with these files. What the kernel would put into new cgroups is not there.
func fakeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCgroupTreesAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string // where /x is
		words string   // of the error
	}{
		"version 2 alone": {files: pureFiles(), want: []string{"x"}},
		// A cgroup there has the same files as a hierarchy of version 1 has at its root.
		"version 2 alone with cgroups in it": {files: with(pureFiles(), "init.scope/cgroup.procs", "1\n"), want: []string{"x"}},
		"both versions": {
			files: map[string]string{"unified/cgroup.procs": "", "unified/cgroup.controllers": "", "cpu/cgroup.procs": "", "blkio/cgroup.procs": ""},
			want:  []string{"blkio/x", "cpu/x", "unified/x"},
		},
		"version 1 alone": {files: map[string]string{"cpu/cgroup.procs": ""}, words: "systemd.unified_cgroup_hierarchy=1"},
		"nothing":         {words: "--cgroupns=host"},
	} {
		t.Run(name, func(t *testing.T) {
			root := fakeTree(t, tc.files)
			trees, err := findCgroupTrees(root)
			if tc.words != "" {
				if err == nil || !strings.Contains(err.Error(), tc.words) {
					t.Fatalf("error %v, want one that says %q", err, tc.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, dir := range trees.dirs("/x") {
				got = append(got, strings.TrimPrefix(dir, root+"/"))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatCannotWorkIsSaidBefore(t *testing.T) {
	full := "cpuset cpu io memory hugetlb pids\n"
	for name, tc := range map[string]struct {
		files map[string]string
		words []string // none: it is usable
	}{
		"a machine":                               {files: pureFiles()},
		"a machine without large pages":           {files: with(pureFiles(), "cgroup.controllers", "cpuset cpu io memory pids\n")},
		"a machine without the memory controller": {files: with(pureFiles(), "cgroup.controllers", "cpuset cpu io pids\n", "cgroup.subtree_control", ""), words: []string{"no controllers memory", "cgroup_disable"}},
		"a container's own cgroup with processes": {files: with(pureFiles(), "cgroup.type", "domain\n"), words: []string{"has processes", "--cgroupns=host"}},
		"a container with an init that made room": {files: with(pureFiles(), "cgroup.type", "domain\n", "cgroup.procs", "")},
		"a container that has all already":        {files: with(pureFiles(), "cgroup.type", "domain\n", "cgroup.subtree_control", full)},
		"a container that was given two":          {files: with(pureFiles(), "cgroup.type", "domain\n", "cgroup.controllers", "memory pids\n", "cgroup.subtree_control", ""), words: []string{"no controllers cpu, cpuset, io", "--privileged"}},
		"both versions":                           {files: map[string]string{"unified/cgroup.procs": "", "cpu/cgroup.procs": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			root := fakeTree(t, tc.files)
			trees, err := findCgroupTrees(root)
			if err != nil {
				t.Fatal(err)
			}
			before := everything(t, root)
			err = trees.usable()
			if (err != nil) != (len(tc.words) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tc.words {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if diff := cmp.Diff(before, everything(t, root)); diff != "" {
				t.Errorf("to look changed something: %s", diff)
			}
		})
	}
}

func TestOnlyParentsHandControllersOn(t *testing.T) {
	files := pureFiles()
	for _, dir := range []string{"plimsoll", "plimsoll/node1", "plimsoll/node1/daemons"} {
		files[dir+"/cgroup.controllers"] = "cpuset cpu io memory hugetlb pids\n"
		files[dir+"/cgroup.subtree_control"] = ""
	}
	root := fakeTree(t, files)
	trees, err := findCgroupTrees(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := trees.make("/plimsoll/node1/daemons"); err != nil {
		t.Fatal(err)
	}
	all := everything(t, root)
	got := map[string]string{}
	for name, text := range all {
		if dir, ok := strings.CutSuffix(name, "cgroup.subtree_control"); ok {
			got[dir] = text
		}
	}
	// A real file would show what is enabled; this one shows what was asked for.
	want := map[string]string{
		"": "+cpuset +hugetlb +io", "plimsoll/": "+cpu +cpuset +hugetlb +io +memory +pids", "plimsoll/node1/": "+cpu +cpuset +hugetlb +io +memory +pids",
		"plimsoll/node1/daemons/": "", // it has processes
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProcessorsAreCopiedInVersion1(t *testing.T) {
	root := fakeTree(t, map[string]string{
		"unified/cgroup.procs": "", "cpuset/cgroup.procs": "", "cpuset/cpuset.cpus": "0-1\n", "cpuset/cpuset.mems": "0\n",
		"cpuset/plimsoll/cpuset.cpus": "", "cpuset/plimsoll/cpuset.mems": "",
	})
	trees, err := findCgroupTrees(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := trees.make("/plimsoll"); err != nil {
		t.Fatal(err)
	}
	all := everything(t, root)
	if got := all["cpuset/plimsoll/cpuset.cpus"] + all["cpuset/plimsoll/cpuset.mems"]; got != "0-1\n0\n" {
		t.Errorf("processors and memory %q", got)
	}
	if _, ok := all["unified/plimsoll/"]; !ok {
		t.Errorf("nothing in the unified tree: %v", all)
	}
}

func TestWriteLimitOfEachVersion(t *testing.T) {
	const device = 7<<8 | 12
	for name, tc := range map[string]struct {
		trees cgroupTrees
		bytes int64
		want  map[string]string
	}{
		"version 1, on pod and container": {
			cgroupTrees{unified: "/m/unified", v1: []string{"/m/blkio"}},
			100,
			map[string]string{"c/": "", "c/blkio.throttle.write_bps_device": "7:12 100", "blkio.throttle.write_bps_device": "7:12 100"},
		},
		"version 1, no limit": {
			cgroupTrees{unified: "/m/unified", v1: []string{"/m/blkio"}},
			0,
			map[string]string{"c/": "", "c/blkio.throttle.write_bps_device": "7:12 0", "blkio.throttle.write_bps_device": "7:12 0"},
		},
		"version 2, on the pod alone": {cgroupTrees{unified: "/m"}, 100, map[string]string{"c/": "", "io.max": "7:12 wbps=100"}},
		"version 2, no limit":         {cgroupTrees{unified: "/m"}, 0, map[string]string{"c/": "", "io.max": "7:12 wbps=max"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := t.TempDir()
			if err := os.Mkdir(pod+"/c", 0o755); err != nil {
				t.Fatal(err)
			}
			limit := tc.trees.writeLimit(device, tc.bytes)
			if err := limit.set(pod); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, everything(t, pod)); diff != "" {
				t.Error(diff)
			}
			if want := map[bool]string{true: "/m/blkio", false: "/m"}[len(tc.trees.v1) > 0]; limit.tree != want {
				t.Errorf("in %s, want %s", limit.tree, want)
			}
		})
	}
}

// everything lists directories, with a slash, and files with what they hold.
func everything(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if entry.IsDir() {
			found[name+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
