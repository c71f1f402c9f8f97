package cluster

import (
	"context"
	"fmt"
	"time"
)

// The control plane runs in the control namespace and cgroup, with the machine's own mounts.

func (c *Cluster) controlDaemon(name string, args ...string) daemon {
	return daemon{name: name, cgroup: cgroupRoot + "/" + control, enter: inControl(), args: args}
}

// startStores starts etcd, the API server, which waits for etcd by itself, and both faces of the registry.
func (c *Cluster) startStores() error {
	for _, d := range []daemon{
		c.controlDaemon("etcd", c.etcdArgs()...),
		c.controlDaemon("kube-apiserver", c.apiServerArgs()...),
		c.controlDaemon("registry", "registry", "serve", c.path("conf", "registry.yaml")),
		c.controlDaemon("registry-tls", "registry", "serve", c.path("conf", "registry-tls.yaml")),
	} {
		if err := c.start(d); err != nil {
			return err
		}
	}
	return nil
}

// startControllers starts what needs a ready API server.
func (c *Cluster) startControllers() error {
	for _, d := range []daemon{
		c.controlDaemon("kube-controller-manager", c.controllerManagerArgs()...),
		c.controlDaemon("kube-scheduler", c.schedulerArgs()...),
		// It has no Node object, waits 30 s for one, then takes its bind address and works.
		c.controlDaemon("control-proxy", append(c.proxyArgs(control), "--bind-address="+controlIP)...),
	} {
		if err := c.start(d); err != nil {
			return err
		}
	}
	return nil
}

// startRelay lets programs outside the namespaces reach the API server and the registry by the machine's loopback.
// It is the only thing of the cluster that touches both worlds, and it dials nothing but these two.
func (c *Cluster) startRelay() error {
	return c.start(daemon{
		name: "relay", cgroup: cgroupRoot + "/" + control,
		args: []string{
			"cluster-relay", "/run/netns/" + prefix + control,
			fmt.Sprintf("127.0.0.1:%d=%s:6443", c.state.APIPort, controlIP),
			fmt.Sprintf("127.0.0.1:%d=%s:5000", c.state.RegPort, controlIP),
		},
	})
}

// waitAPI waits until the API server answers that it is ready.
func (c *Cluster) waitAPI(ctx context.Context) error {
	return wait(ctx, 60*time.Second, "the API server", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "", "get", "--raw", "/readyz")
		return err
	})
}

func (c *Cluster) etcdArgs() []string {
	p := c.pki()
	return []string{
		"etcd", "--name=plimsoll", "--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=https://127.0.0.1:2379", "--advertise-client-urls=https://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=plimsoll=http://127.0.0.1:2380",
		"--cert-file=" + p.crt("etcd-server"), "--key-file=" + p.key("etcd-server"),
		"--client-cert-auth", "--trusted-ca-file=" + p.crt("etcd-ca"),
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=30m",
	}
}

func (c *Cluster) apiServerArgs() []string {
	p := c.pki()
	return []string{
		"kube-apiserver", "--advertise-address=" + controlIP, "--bind-address=0.0.0.0", "--secure-port=6443",
		"--tls-cert-file=" + p.crt("apiserver"), "--tls-private-key-file=" + p.key("apiserver"), "--client-ca-file=" + p.crt("ca"),
		"--etcd-servers=https://127.0.0.1:2379", "--etcd-cafile=" + p.crt("etcd-ca"),
		"--etcd-certfile=" + p.crt("apiserver-etcd-client"), "--etcd-keyfile=" + p.key("apiserver-etcd-client"),
		"--service-cluster-ip-range=" + serviceNet, "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.path("pki", "sa.pub"), "--service-account-signing-key-file=" + p.key("sa"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--anonymous-auth=true",
		"--kubelet-client-certificate=" + p.crt("apiserver-kubelet-client"), "--kubelet-client-key=" + p.key("apiserver-kubelet-client"),
		"--kubelet-certificate-authority=" + p.crt("ca"), "--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file=" + p.crt("front-proxy-ca"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + p.crt("front-proxy-client"), "--proxy-client-key-file=" + p.key("front-proxy-client"),
		// Webhooks are called at the pods' own addresses, so the API server does not need kube-proxy.
		"--enable-aggregator-routing=true",
		"--default-not-ready-toleration-seconds=10", "--default-unreachable-toleration-seconds=10",
		"--allow-privileged=true", "--profiling=false", "--event-ttl=2h", "--shutdown-delay-duration=0s",
	}
}

func (c *Cluster) controllerManagerArgs() []string {
	p, config := c.pki(), c.path("conf", "controller-manager.kubeconfig")
	return []string{
		"kube-controller-manager", "--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--service-account-private-key-file=" + p.key("sa"), "--root-ca-file=" + p.crt("ca"),
		"--cluster-signing-cert-file=" + p.crt("ca"), "--cluster-signing-key-file=" + p.key("ca"),
		"--requestheader-client-ca-file=" + p.crt("front-proxy-ca"), "--use-service-account-credentials", "--leader-elect=false",
		"--allocate-node-cidrs", "--cluster-cidr=" + podNet, "--node-cidr-mask-size=24", "--service-cluster-ip-range=" + serviceNet,
		"--node-monitor-period=2s", "--node-monitor-grace-period=16s", "--profiling=false",
	}
}

func (c *Cluster) schedulerArgs() []string {
	config := c.path("conf", "scheduler.kubeconfig")
	return []string{
		"kube-scheduler", "--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
	}
}

func (c *Cluster) proxyArgs(host string) []string {
	return []string{
		"kube-proxy", "--kubeconfig=" + c.path("conf", "kube-proxy.kubeconfig"), "--hostname-override=" + host,
		"--proxy-mode=nftables", "--cluster-cidr=" + podNet, "--oom-score-adj=0",
		// The conntrack settings can be written in the machine's first namespace only.
		"--conntrack-max-per-core=0", "--conntrack-min=0",
	}
}
