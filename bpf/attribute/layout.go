// Package attribute tells whose a cgroup is: the pod and the container for which a kubelet and its runtime made it.
package attribute

import (
	"regexp"
	"strings"
)

// Container is whose a cgroup is.
type Container struct {
	Pod string // UID, as the API server writes it
	ID  string // without the runtime's name before it
}

// The kubelet names a pod's directory after its UID. With its cgroupfs driver that is all; with systemd's, whose names say the whole path, a
// dash stands between levels and so the UID's own are underscores. The UID of a static pod is a hash.
var (
	podOfCgroupfs = regexp.MustCompile(`^pod([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})$`)
	podOfSystemd  = regexp.MustCompile(`^(?:[^/]+-)?kubepods(?:-burstable|-besteffort)?-pod([0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}|[0-9a-f]{32})\.slice$`)
	// A runtime names a container's directory after its ID: containerd (cri-containerd-), CRI-O (crio-), cri-dockerd (docker-).
	container = regexp.MustCompile(`^(?:([a-z][a-z-]*)-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// monitor is CRI-O's process beside each container, which may have a cgroup in the pod's.
const monitor = "crio-conmon"

// Of tells whose the cgroup at a path is: the container's own, or one that its runtime or it itself made below. The path may be below any
// directory, or begin as those of another cgroup namespace do ("/../..").
func Of(path string) (Container, bool) {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		// containerd with its own driver under a kubelet with systemd's: slice, prefix and ID in one directory.
		slice, rest, joined := strings.Cut(part, ":")
		pod := podOf(slice)
		if pod == "" {
			continue
		}
		if joined {
			_, id, _ := strings.Cut(rest, ":")
			return inPod(pod, id)
		}
		if i+1 < len(parts) {
			return inPod(pod, parts[i+1])
		}
	}
	return Container{}, false
}

func podOf(name string) string {
	for _, form := range []*regexp.Regexp{podOfSystemd, podOfCgroupfs} {
		if found := form.FindStringSubmatch(name); found != nil {
			return strings.ReplaceAll(found[1], "_", "-")
		}
	}
	return ""
}

func inPod(pod, name string) (Container, bool) {
	found := container.FindStringSubmatch(name)
	if found == nil || found[1] == monitor {
		return Container{}, false
	}
	return Container{Pod: pod, ID: found[2]}, true
}
