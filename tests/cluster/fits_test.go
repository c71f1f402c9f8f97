package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A kubelet refuses to start where its machine has less than it is told to reserve, and pods cannot use what is not there.
func TestNodesTogetherFitTheMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		memory uint64 // MiB
		nodes  int
		share  uint64 // MiB, of each node
	}{
		"a machine of 6 GiB whose kernel keeps some": {memory: 5930, nodes: 3, share: 1317},
		"a machine of 8 GiB":                         {memory: 8 << 10, nodes: 3, share: 2048},
		"a machine of 16 GiB":                        {memory: 16 << 10, nodes: 3, share: 4778},
		"a machine of 24 GiB":                        {memory: 24 << 10, nodes: 3, share: 7509},
		"one node":                                   {memory: 6 << 10, nodes: 1, share: 4096},
		"nine nodes":                                 {memory: 6 << 10, nodes: 9, share: 455},
		"less than anybody should try":               {memory: 1 << 10, nodes: 3, share: 227},
	} {
		t.Run(name, func(t *testing.T) {
			reserved := kubeletValues(1, "", tc.memory*mib, tc.nodes)["Reserved"]
			got, err := strconv.ParseUint(strings.TrimSuffix(reserved, "Mi"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got >= tc.memory {
				t.Fatalf("%s reserved of %d MiB: the kubelet would not start", reserved, tc.memory)
			}
			share := tc.memory - got
			if share < tc.share || share > tc.share+1 {
				t.Errorf("%d MiB for the pods of a node, want %d", share, tc.share)
			}
			if all := share * uint64(tc.nodes); all > tc.memory*2/3+uint64(tc.nodes) && all > tc.memory-2048+uint64(tc.nodes) {
				t.Errorf("%d MiB for all pods of a machine with %d", all, tc.memory)
			}
		})
	}
}

func TestLayersNeedARealFileSystem(t *testing.T) {
	const in = "PLIMSOLL_STACKS"
	if dir := os.Getenv(in); dir != "" { // in a mount namespace of its own
		if err := stacks(filepath.Join(dir, "not", "there")); err == nil || !strings.Contains(err.Error(), "PLIMSOLL_CACHE") {
			t.Fatalf("error %v on an overlay", err)
		}
		return
	}
	if err := stacks("/proc/not/there"); err != nil {
		t.Fatal(err)
	}
	if exec.CommandContext(t.Context(), "unshare", "--mount", "true").Run() != nil {
		t.Skip("no right to mount an overlay")
	}
	const mount = `mount -t tmpfs tmpfs "$1" && mkdir "$1/lower" "$1/upper" "$1/work" "$1/merged" &&
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged" && ` + in + `="$1/merged" exec "$2" -test.run=^TestLayersNeedARealFileSystem$`
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", mount, "sh", t.TempDir(), os.Args[0]).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
