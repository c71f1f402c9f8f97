package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// UpOptions says what Up makes.
type UpOptions struct {
	Nodes int                  // 0: three
	Say   func(string, ...any) // progress, one line a call; nil: silent
}

// Up starts the cluster and returns when DNS, volumes and NetworkPolicy work. When it is up already, it says so;
// what is half up is taken down and started again. Disks and etcd are those of the last run unless Down removed them.
func Up(ctx context.Context, o UpOptions) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return nil, fmt.Errorf("start %d nodes: it must be 1 to %d", o.Nodes, maxNodes)
	}
	if err := Fits(); err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	c, unlock, err := claim(ctx, o.Say)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.state.Up && c.exists() && c.answers(ctx) {
		c.say("already up since %s with %d nodes", c.state.StartedAt.Format(time.TimeOnly), c.state.Nodes)
		return c, nil
	}
	if c.exists() {
		c.say("an incomplete cluster is there: taking it down first")
		if err := c.down(ctx); err != nil {
			return nil, err
		}
	}
	if err := missingBinaries(); err != nil {
		return nil, err
	}
	if err := c.up(ctx, o.Nodes); err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	return c, nil
}

// answers tells whether the API server is ready, or nearly so.
func (c *Cluster) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.waitAPI(ctx) == nil
}

// claim opens the cluster's state for a change; only one process at a time may have it.
func claim(ctx context.Context, say func(string, ...any)) (*Cluster, func(), error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	unlock, err := lockFile(ctx, filepath.Join(cache, "cluster.lock"))
	if err != nil {
		return nil, nil, err
	}
	c, err := at(say) // only now: the one before may have changed it
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return c, unlock, nil
}

// exists tells whether anything of a cluster is on the machine.
func (c *Cluster) exists() bool {
	paths := []string{"/run/netns/" + fabric}
	if t, err := machineTrees(); err == nil {
		paths = append(paths, t.unified+cgroupRoot)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// missingBinaries returns an ErrNotBuilt for each binary that the cache lacks.
func missingBinaries() error {
	var missing error
	for _, name := range allBinaries() {
		_, err := Binary(name)
		missing = errors.Join(missing, err)
	}
	return missing
}

func (c *Cluster) up(ctx context.Context, nodes int) error {
	start := time.Now()
	step := func(format string, args ...any) {
		c.say("%6.1fs  "+format, append([]any{time.Since(start).Seconds()}, args...)...)
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	c.state = state{Nodes: nodes, APIPort: ports[0], RegPort: ports[1], StartedAt: start}
	if err := c.save(); err != nil {
		return err
	}
	if err := c.installPackages(ctx, packages()); err != nil {
		return err
	}
	if err := c.prepareMachine(ctx); err != nil {
		return err
	}
	step("network of %d nodes", nodes)
	if err := errors.Join(c.writeCertificates(), c.writeKubeconfigs(), c.writeSharedConfig()); err != nil {
		return err
	}
	if err := errors.Join(c.startStores(), c.startRelay()); err != nil {
		return err
	}
	err = each(nodes, func(i int) error {
		if err := c.writeNodeConfig(i); err != nil {
			return err
		}
		return c.boot(ctx, i)
	})
	if err != nil {
		return err
	}
	step("nodes powered on")
	if err := c.waitAPI(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(c.path("log", "kube-apiserver.log"), 1500))
	}
	step("API server ready")
	if err := c.startControllers(); err != nil {
		return err
	}
	if err := c.registerNodes(ctx); err != nil {
		return err
	}
	if err := each(nodes, c.startServices); err != nil {
		return err
	}
	if err := c.pushImages(ctx, step); err != nil {
		return err
	}
	if err := each(nodes, func(i int) error {
		return c.waitNode(ctx, nodeName(i), true, start.Truncate(time.Second), 90*time.Second)
	}); err != nil {
		return err
	}
	step("%d nodes ready", nodes)
	if err := c.addOns(ctx, step); err != nil {
		return err
	}
	c.state.Up = true
	return c.save()
}

// prepareMachine makes what lies outside the state directory: cgroups, settings, namespaces, mount points.
func (c *Cluster) prepareMachine(ctx context.Context) error {
	if err := os.MkdirAll(c.path("etcd"), 0o700); err != nil {
		return fmt.Errorf("make etcd's directory: %w", err)
	}
	if err := errors.Join(c.changeSysctls(), c.makeMountPoints()); err != nil {
		return err
	}
	for _, name := range []string{control, "guests"} {
		if err := makeCgroup(cgroupRoot + "/" + name); err != nil {
			return err
		}
	}
	if err := makeFabric(ctx); err != nil {
		return err
	}
	return attachControl(ctx, c.state.Nodes)
}

// registerNodes makes the Node objects before their kubelets do, so that node N has the pod range N of the static routes.
func (c *Cluster) registerNodes(ctx context.Context) error {
	type node struct{ Name, Zone, PodCIDR string }
	var nodes []node
	for i := range c.state.Nodes {
		nodes = append(nodes, node{nodeName(i + 1), zone(i + 1), podCIDR(i + 1)})
	}
	text, err := render("nodes.yaml", nodes)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, string(text)); err != nil {
		return err
	}
	args := []string{"delete", "node", "--ignore-not-found", "--wait=false"} // those of an earlier, larger cluster
	for i := c.state.Nodes + 1; i <= maxNodes; i++ {
		args = append(args, nodeName(i))
	}
	if c.state.Nodes == maxNodes {
		return nil
	}
	_, err = c.Kubectl(ctx, "", args...)
	return err
}

// addOns starts what runs as pods and waits for all that pods need.
func (c *Cluster) addOns(ctx context.Context, step func(string, ...any)) error {
	for name, data := range map[string]any{"coredns.yaml": map[string]string{"Version": coreDNSVersion[1:]}, "kube-router.yaml": nil, "csi.yaml": nil} {
		text, err := render(name, data)
		if err != nil {
			return err
		}
		if err := c.Apply(ctx, string(text)); err != nil {
			return err
		}
	}
	if err := c.startControlCSI(); err != nil {
		return err
	}
	if err := c.waitCSI(ctx); err != nil {
		return err
	}
	step("volumes ready")
	if err := c.Rollout(ctx, "kube-system", "deployment/coredns", 2*time.Minute); err != nil {
		return err
	}
	// The rollout may be the state of an earlier run, so ask for a name.
	if err := c.waitDNS(ctx); err != nil {
		return err
	}
	step("DNS ready")
	err := each(c.state.Nodes, func(i int) error { return c.waitPolicyAgent(ctx, i) })
	if err != nil {
		return err
	}
	step("NetworkPolicy ready")
	return nil
}

// waitDNS waits until DNS answers on every node, by way of its Service.
func (c *Cluster) waitDNS(ctx context.Context) error {
	return each(c.state.Nodes, func(i int) error {
		enter, err := c.inNode(i)
		if err != nil {
			return err
		}
		return wait(ctx, 60*time.Second, "DNS on "+nodeName(i), func(ctx context.Context) error {
			_, err := runFor(ctx, 5*time.Second, "", enter[0], append(enter[1:], "busybox", "nslookup", "kubernetes.default.svc.cluster.local", dnsIP)...)
			return err
		})
	})
}

// waitPolicyAgent waits for the chain that kube-router hangs into the node's firewall at its first complete pass.
func (c *Cluster) waitPolicyAgent(ctx context.Context, i int) error {
	enter, err := c.inNode(i)
	if err != nil {
		return err
	}
	return wait(ctx, 60*time.Second, "the NetworkPolicy agent of "+nodeName(i), func(ctx context.Context) error {
		_, err := run(ctx, "", enter[0], append(enter[1:], "iptables", "-S", "KUBE-ROUTER-FORWARD")...)
		return err
	})
}
