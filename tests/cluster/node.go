package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// A node is a network namespace, a cgroup in all hierarchies, and mount and UTS namespaces that its first process
// holds. There is no PID namespace on purpose: agents in pods then see the process numbers they would see on a real node.

func nodeCgroup(i int) string { return cgroupRoot + "/" + nodeName(i) }

// boot gives a node its namespaces and starts containerd. It is what a machine does between power-on and its services.
func (c *Cluster) boot(ctx context.Context, i int) error {
	n := nodeName(i)
	if err := makeCgroup(nodeCgroup(i) + "/daemons"); err != nil {
		return err
	}
	if _, err := os.Stat("/run/netns/" + prefix + n); err != nil {
		if err := attachNode(ctx, i, c.state.Nodes); err != nil {
			return err
		}
	}
	err := c.start(daemon{
		name: n + "-init", cgroup: nodeCgroup(i) + "/daemons", enter: []string{"nsenter", "--net=/run/netns/" + prefix + n},
		args: []string{"unshare", "--mount", "--uts", "--propagation=private", "sh", c.path("conf", "node-init.sh"), n, c.path(n)},
	})
	if err != nil {
		return err
	}
	err = wait(ctx, 20*time.Second, "the mounts of "+n, func(context.Context) error {
		pid, err := c.pid(n + "-init")
		if err != nil {
			return err
		}
		_, err = os.Stat(fmt.Sprintf("/proc/%d/root/run/node-ready", pid))
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, tail(c.path("log", n+"-init.log"), 500))
	}
	return c.startContainerd(ctx, i)
}

func (c *Cluster) startContainerd(ctx context.Context, i int) error {
	// A killed containerd leaves its socket, and the kubelet would take that for a running one and give up.
	socket, err := c.containerdSocket(i)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(socket); err != nil {
		return fmt.Errorf("remove the old socket of containerd: %w", err)
	}
	err = c.startOnNode(i, "containerd", nil, "containerd", "--config", c.path("conf", "containerd.toml"), "--log-level", "warn")
	if err != nil {
		return err
	}
	return c.waitContainerd(ctx, i)
}

func (c *Cluster) waitContainerd(ctx context.Context, i int) error {
	socket, err := c.containerdSocket(i)
	if err != nil {
		return err
	}
	return wait(ctx, 60*time.Second, "containerd of "+nodeName(i), func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
}

func (c *Cluster) containerdSocket(i int) (string, error) {
	pid, err := c.pid(nodeName(i) + "-init")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", pid), nil
}

func (c *Cluster) startOnNode(i int, name string, env []string, args ...string) error {
	enter, err := c.inNode(i)
	if err != nil {
		return err
	}
	return c.start(daemon{name: nodeName(i) + "-" + name, cgroup: nodeCgroup(i) + "/daemons", enter: enter, env: env, args: args})
}

// startServices starts everything of a booted node that the API server has to do with.
func (c *Cluster) startServices(i int) error {
	return errors.Join(c.startCSI(i), c.startWatchers(i))
}

// startWatchers starts what keeps what it heard from the API server.
func (c *Cluster) startWatchers(i int) error {
	n := nodeName(i)
	if err := c.startKubelet(i); err != nil {
		return err
	}
	if err := c.startOnNode(i, "proxy", nil, c.proxyArgs(n)...); err != nil {
		return err
	}
	if err := c.startPolicyAgent(i); err != nil {
		return err
	}
	return c.startProvisioner(i)
}

func (c *Cluster) startKubelet(i int) error {
	n := nodeName(i)
	// These drop a dead connection after 9 s; by default a healed partition would go unnoticed for 45 s.
	env := []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=6", "HTTP2_PING_TIMEOUT_SECONDS=3"}
	return c.startOnNode(i, "kubelet", env,
		"kubelet", "--config="+c.path("conf", "kubelet-"+n+".yaml"), "--kubeconfig="+c.path("conf", n+".kubeconfig"),
		"--hostname-override="+n, "--node-ip="+nodeIP(i), "--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki",
		"--runtime-cgroups="+nodeCgroup(i)+"/daemons", "--v=1")
}

// cutPower ends a node at one instant. What a reboot would clear goes too: its network namespace, and its cgroups,
// since left-over ones of pods would cost the next kubelet three seconds each.
func (c *Cluster) cutPower(ctx context.Context, i int) error {
	if err := c.thawVolumes(ctx, i); err != nil {
		return err
	}
	if err := killCgroup(ctx, nodeCgroup(i)); err != nil {
		return err
	}
	if err := c.releaseLoops(ctx, nodeName(i)); err != nil {
		return err
	}
	if err := unplug(ctx, nodeName(i)); err != nil {
		return err
	}
	if _, err := os.Stat("/run/netns/" + prefix + nodeName(i)); err == nil {
		if err := ipAll(ctx, []string{"netns del " + prefix + nodeName(i)}); err != nil {
			return err
		}
	}
	return removeCgroup(ctx, nodeCgroup(i))
}
