package cluster

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
)

//go:embed files
var files embed.FS

// render fills in one of the embedded files.
func render(name string, data any) ([]byte, error) {
	text, err := files.ReadFile("files/" + name)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}

func (c *Cluster) pki() pki { return pki{dir: c.path("pki")} }

// writeCertificates makes what is missing; all of it is kept between runs.
func (c *Cluster) writeCertificates() error {
	p := c.pki()
	err := errors.Join(
		p.authority("ca"), p.authority("etcd-ca"), p.authority("front-proxy-ca"), p.signingKey("sa"),
		p.server("ca", "apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost", "10.96.0.1", controlIP, "127.0.0.1"),
		p.client("ca", "apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
		p.client("front-proxy-ca", "front-proxy-client", "front-proxy-client", ""),
		p.server("etcd-ca", "etcd-server", "localhost", "127.0.0.1"),
		p.client("etcd-ca", "apiserver-etcd-client", "kube-apiserver-etcd-client", ""),
		p.server("ca", "registry", registry, "localhost", controlIP, "127.0.0.1"),
	)
	for name, user := range componentUsers() {
		group := ""
		if name == "admin" {
			group = "system:masters"
		}
		err = errors.Join(err, p.client("ca", name, user, group))
	}
	for i := range c.state.Nodes {
		n := nodeName(i + 1)
		err = errors.Join(err,
			p.client("ca", n, "system:node:"+n, "system:nodes"),
			p.server("ca", n+"-serving", n, nodeIP(i+1)))
	}
	return err
}

// componentUsers maps the certificate of each client of the API server, nodes aside, to its user.
func componentUsers() map[string]string {
	return map[string]string{
		"admin": "kubernetes-admin", "controller-manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler",
		"kube-proxy": "system:kube-proxy", "kube-router": "kube-router", "csi": "plimsoll-csi",
	}
}

// writeKubeconfigs writes conf/NAME.kubeconfig for everyone inside, and the one for users on the machine's loopback.
func (c *Cluster) writeKubeconfigs() error {
	names := c.Nodes()
	for name := range componentUsers() {
		names = append(names, name)
	}
	for _, name := range names {
		config, err := c.pki().kubeconfig(serverURL, "ca", name)
		if err != nil {
			return err
		}
		if err := replaceFile(c.path("conf", name+".kubeconfig"), config, 0o600); err != nil {
			return err
		}
	}
	config, err := c.pki().kubeconfig(fmt.Sprintf("https://127.0.0.1:%d", c.state.APIPort), "ca", "admin")
	if err != nil {
		return err
	}
	return replaceFile(c.Kubeconfig(), config, 0o600)
}

// writeSharedConfig writes what is the same for all nodes: containerd and where it finds images.
func (c *Cluster) writeSharedConfig() error {
	plain, secure := "http://"+registry+":5000", "https://"+registry+":5443"
	type hosts struct{ URL, CA string }
	// _default serves every other registry's name from ours, so that nothing is ever looked up outside.
	for dir, data := range map[string]hosts{
		registry + ":5000": {URL: plain},
		registry + ":5443": {URL: secure, CA: c.pki().crt("ca")},
		"_default":         {URL: plain},
	} {
		if err := c.renderTo(c.path("conf", "hosts", dir, "hosts.toml"), "hosts.toml", data); err != nil {
			return err
		}
	}
	type reg struct {
		Root, PKI string
		Port      int
		TLS       bool
	}
	return errors.Join(
		c.renderTo(c.path("conf", "containerd.toml"), "containerd.toml", map[string]string{"Registry": registry, "Hosts": c.path("conf", "hosts")}),
		c.renderTo(c.path("conf", "registry.yaml"), "registry.yaml", reg{Root: c.path("registry"), Port: 5000}),
		c.renderTo(c.path("conf", "registry-tls.yaml"), "registry.yaml", reg{Root: c.path("registry"), PKI: c.path("pki"), Port: 5443, TLS: true}),
		c.renderTo(c.path("conf", "node-init.sh"), "node-init.sh", nil),
	)
}

// writeNodeConfig writes the files of one node and makes the directories that are its disk.
func (c *Cluster) writeNodeConfig(i int) error {
	n := nodeName(i)
	for _, dir := range []string{"kubelet", "containerd", "cni", "log", "opt", "etc", "etc-cni", "volumes"} {
		if err := os.MkdirAll(c.path(n, dir), 0o755); err != nil {
			return fmt.Errorf("make the disk of %s: %w", n, err)
		}
	}
	hosts := "127.0.0.1 localhost\n" + controlIP + " " + control + " " + registry + "\n"
	for j := range c.state.Nodes {
		hosts += nodeIP(j+1) + " " + nodeName(j+1) + "\n"
	}
	memory, err := machineMemory()
	if err != nil {
		return err
	}
	kubelet := kubeletValues(i, c.path("pki"), memory, c.state.Nodes)
	return errors.Join(
		writeInPlace(c.path(n, "etc", "hosts"), hosts),
		writeInPlace(c.path(n, "etc", "resolv.conf"), "options ndots:0\n"),
		writeInPlace(c.path(n, "etc", "hostname"), n+"\n"),
		c.renderTo(c.path("conf", "kubelet-"+n+".yaml"), "kubelet.yaml", kubelet),
		c.renderTo(c.path(n, "etc-cni", "10-pods.conflist"), "pods.conflist", map[string]string{"PodCIDR": podCIDR(i)}),
	)
}

// kubeletValues are those of node i of so many, on a machine with that memory.
func kubeletValues(i int, pki string, memory uint64, nodes int) map[string]string {
	return map[string]string{
		"IP": nodeIP(i), "Node": nodeName(i), "PKI": pki, "DNS": dnsIP, "Cgroup": cgroupRoot + "/" + nodeName(i),
		"Reserved": strconv.FormatUint((memory-nodeMemory(memory, nodes))/mib, 10) + "Mi",
	}
}

func (c *Cluster) renderTo(path, name string, data any) error {
	text, err := render(name, data)
	if err != nil {
		return err
	}
	return replaceFile(path, text, 0o644)
}

// writeInPlace keeps the file's inode, for files that are bind mounts in a running node.
func writeInPlace(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
