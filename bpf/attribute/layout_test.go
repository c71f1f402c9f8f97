package attribute

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	uid    = "0f3a9d1e-77aa-4c0e-9b3f-5d6c2f10ab34"
	scored = "0f3a9d1e_77aa_4c0e_9b3f_5d6c2f10ab34" // as systemd's names have it
	static = "6c9f3a5be09f8a5f2d1f4b3c2a190807"
)

func TestWhoseACgroupIs(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	ours := Container{Pod: uid, ID: id}
	for name, row := range map[string]struct {
		path string
		want Container
	}{
		"containerd, systemd, burstable":                {path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + scored + ".slice/cri-containerd-" + id + ".scope", want: ours},
		"containerd, systemd, best effort":              {path: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + scored + ".slice/cri-containerd-" + id + ".scope", want: ours},
		"containerd, systemd, guaranteed":               {path: "/kubepods.slice/kubepods-pod" + scored + ".slice/cri-containerd-" + id + ".scope", want: ours},
		"containerd, cgroupfs, burstable":               {path: "/kubepods/burstable/pod" + uid + "/" + id, want: ours},
		"containerd, cgroupfs, guaranteed":              {path: "/kubepods/pod" + uid + "/" + id, want: ours},
		"containerd, cgroupfs, below a root of its own": {path: "/plimsoll/node1/kubepods/burstable/pod" + uid + "/" + id, want: ours},
		"containerd without systemd's driver, a kubelet with it": {
			path: "/system.slice/containerd.service/kubepods-burstable-pod" + scored + ".slice:cri-containerd:" + id, want: ours,
		},
		"CRI-O, systemd":        {path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + scored + ".slice/crio-" + id + ".scope", want: ours},
		"CRI-O, cgroupfs":       {path: "/kubepods/burstable/pod" + uid + "/crio-" + id, want: ours},
		"cri-dockerd, systemd":  {path: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + scored + ".slice/docker-" + id + ".scope", want: ours},
		"cri-dockerd, cgroupfs": {path: "/kubepods/besteffort/pod" + uid + "/" + id, want: ours},
		"a node in a container, systemd": {
			path: "/docker/" + strings.Repeat("9", 64) + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + scored + ".slice/cri-containerd-" + id + ".scope", want: ours,
		},
		"a node in a container, cgroupfs": {path: "/docker/" + strings.Repeat("9", 64) + "/kubelet/kubepods/besteffort/pod" + uid + "/" + id, want: ours},
		"a static pod, cgroupfs":          {path: "/kubepods/burstable/pod" + static + "/" + id, want: Container{Pod: static, ID: id}},
		"a static pod, systemd":           {path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static + ".slice/crio-" + id + ".scope", want: Container{Pod: static, ID: id}},
		"seen from another pod's cgroup namespace": {
			path: "/../../kubepods-burstable-pod" + scored + ".slice/cri-containerd-" + id + ".scope", want: ours,
		},
		"crun's cgroup in that of CRI-O": {
			path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + scored + ".slice/crio-" + id + ".scope/container", want: ours,
		},
		"a cgroup that the container made": {path: "/kubepods/pod" + uid + "/" + id + "/a/b", want: ours},

		"the root":                    {path: "/"},
		"nothing":                     {},
		"a pod":                       {path: "/kubepods/burstable/pod" + uid},
		"a pod of systemd's driver":   {path: "/kubepods.slice/kubepods-pod" + scored + ".slice"},
		"CRI-O's monitor":             {path: "/kubepods/burstable/pod" + uid + "/crio-conmon-" + id},
		"CRI-O's monitor, systemd":    {path: "/kubepods.slice/kubepods-pod" + scored + ".slice/crio-conmon-" + id + ".scope"},
		"a container without a pod":   {path: "/docker/" + id},
		"a service of the node":       {path: "/system.slice/kubelet.service"},
		"a UID that is none":          {path: "/kubepods/burstable/pod0f3a9d1e/" + id},
		"an ID that is cut":           {path: "/kubepods/burstable/pod" + uid + "/" + id[1:]},
		"a slice that looks like one": {path: "/user.slice/user-pod" + scored + ".slice/" + id},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Of(row.path)
			if diff := cmp.Diff(row.want, got); diff != "" || ok != (row.want != Container{}) {
				t.Errorf("%s: %v (-want +got)\n%s", row.path, ok, diff)
			}
		})
	}
}
