package cluster

import "strings"

// Versions that also appear in manifests and image names.
const (
	kubernetesVersion = "v1.37.2"
	etcdVersion       = "v3.7.3"
	containerdVersion = "v2.4.2"
	coreDNSVersion    = "v1.14.7"
	// CertManagerVersion is also what the documentation says was run.
	CertManagerVersion = "v1.21.2"
)

// pin is one binary of the cluster with everything that decides its content.
type pin struct {
	Name    string // file name in the cache
	Module  string
	Version string
	Package string
	In      string // directory below tests/cluster whose go.mod pins it; empty: go install Package@Version
	Tags    string
	LDFlags string
	API     bool   // enough for tests with StartAPI
	Tests   bool   // tests alone want it: a cluster runs without
	Beside  string // directory of the module whose YAML files are kept beside the binary, as Name.yaml
	Own     bool   // the program is ours, in the directory In: its content is part of the key
}

// pins lists what "cluster build" builds, in this order: API tests can start while the rest is still building.
func pins() []pin {
	kubernetes := func(name string, api bool) pin {
		const stamp = "k8s.io/component-base/version."
		return pin{
			Name: name, Module: "k8s.io/kubernetes", Version: kubernetesVersion, Package: "k8s.io/kubernetes/cmd/" + name,
			In: "binaries/kubernetes", API: api,
			// Without these the server calls itself v0.0.0, and clients that compare versions misbehave.
			LDFlags: "-s -w -X " + stamp + "gitVersion=" + kubernetesVersion + " -X " + stamp + "gitMajor=1 -X " + stamp + "gitMinor=37",
		}
	}
	containerd := func(name string) pin {
		const module = "github.com/containerd/containerd/v2"
		return pin{
			Name: name, Module: module, Version: containerdVersion, Package: module + "/cmd/" + name,
			In: "binaries/containerd", Tags: "no_btrfs,no_devmapper,no_zfs", LDFlags: "-s -w",
		}
	}
	etcdTool := func(name string) pin {
		module := "go.etcd.io/etcd/" + name + "/v3"
		return pin{Name: name, Module: module, Version: etcdVersion, Package: module, In: "binaries/etcd", LDFlags: "-s -w", API: true, Tests: true}
	}
	install := func(name, module, version, dir string) pin {
		return pin{Name: name, Module: module, Version: version, Package: strings.TrimSuffix(module+"/"+dir, "/"), LDFlags: "-s -w"}
	}
	return []pin{
		kubernetes("kube-apiserver", true),
		kubernetes("kubectl", true),
		{
			Name: "etcd", Module: "go.etcd.io/etcd/server/v3", Version: etcdVersion, Package: "go.etcd.io/etcd/server/v3",
			In: "binaries/etcd", LDFlags: "-s -w", API: true,
		},
		{ // its commands are modules of their own, with replace lines, that no proxy serves
			Name: "cert-manager", Module: certManagerModule, Version: CertManagerVersion, Package: ".", In: "binaries/certmanager", Own: true, Beside: "deploy/crds",
			LDFlags: "-s -w -X " + certManagerModule + "/pkg/util.AppVersion=" + CertManagerVersion, API: true, Tests: true,
		},
		etcdTool("etcdctl"), etcdTool("etcdutl"),
		kubernetes("kube-controller-manager", false),
		kubernetes("kube-scheduler", false),
		kubernetes("kubelet", false),
		kubernetes("kube-proxy", false),
		containerd("containerd"),
		containerd("containerd-shim-runc-v2"),
		containerd("ctr"),
		install("registry", "github.com/distribution/distribution/v3", "v3.1.2", "cmd/registry"),
		install("coredns", "github.com/coredns/coredns", coreDNSVersion, ""),
		install("kube-router", "github.com/cloudnativelabs/kube-router/v2", "v2.1.0", "cmd/kube-router"),
		{ // its go.mod has replace lines, which "go install" refuses
			Name: "csi-provisioner", Module: "github.com/kubernetes-csi/external-provisioner/v6", Version: "v6.4.0",
			Package: "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", In: "binaries/csi", LDFlags: "-s -w",
		},
		install("csi-resizer", "github.com/kubernetes-csi/external-resizer/v2", "v2.3.0", "cmd/csi-resizer"),
	}
}

// key is the content of the stamp beside a binary; another key means the binary is out of date.
func (p pin) key(goVersion string) string {
	return strings.Join([]string{p.Package, p.Version, "tags=" + p.Tags, "ldflags=" + p.LDFlags, goVersion}, "\n") + "\n"
}

// command returns the arguments of go that put the binary at out, for a call in the directory of the pin's module.
// An installed binary gets its name from go, so out decides only its directory (by GOBIN).
func (p pin) command(out string) []string {
	args := []string{"build"}
	if p.In == "" {
		args = []string{"install"}
	}
	if p.Tags != "" {
		args = append(args, "-tags", p.Tags)
	}
	args = append(args, "-ldflags", p.LDFlags)
	if p.In == "" {
		return append(args, p.Package+"@"+p.Version)
	}
	return append(args, "-o", out, p.Package)
}

// allBinaries names everything that a cluster needs in the cache.
func allBinaries() []string {
	names := []string{"cluster-relay", "cluster-pause", "plimsoll-csi"}
	for _, p := range pins() {
		if !p.Tests {
			names = append(names, p.Name)
		}
	}
	return names
}
