package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kubectl runs kubectl as administrator inside the control namespace and returns what it prints.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	argv := slices.Concat(inControl()[1:], []string{c.bin + "/kubectl", "--kubeconfig", c.InsideKubeconfig(), "--cache-dir", c.path("kubectl-cache"), "--request-timeout=20s"}, args)
	return run(ctx, input, inControl()[0], argv...)
}

// Apply applies manifests.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.Kubectl(ctx, manifests, "apply", "-f", "-")
	return err
}

// getJSON reads one object of the API into out.
func (c *Cluster) getJSON(ctx context.Context, out any, args ...string) error {
	text, err := c.Kubectl(ctx, "", append(append([]string{"get"}, args...), "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return fmt.Errorf("read %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// nodeList is what the tool needs to know of Node objects.
type nodeList struct {
	Items []struct {
		Metadata struct{ Name string }
		Status   struct {
			Conditions []struct {
				Type, Status      string
				LastHeartbeatTime time.Time
			}
		}
	}
}

// ready returns the nodes that have said since a point in time that they are ready.
func (l nodeList) ready(since time.Time) map[string]bool {
	ready := map[string]bool{}
	for _, n := range l.Items {
		for _, condition := range n.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" && !condition.LastHeartbeatTime.Before(since) {
				ready[n.Metadata.Name] = true
			}
		}
	}
	return ready
}

// WaitNode waits until a node's Ready condition is true, or is anything else (false, unknown).
func (c *Cluster) WaitNode(ctx context.Context, node string, ready bool, limit time.Duration) error {
	return c.waitNode(ctx, node, ready, time.Time{}, limit)
}

// waitNode can ask for news: with the etcd of an earlier run, a node looks ready before its kubelet has started.
func (c *Cluster) waitNode(ctx context.Context, node string, ready bool, since time.Time, limit time.Duration) error {
	i, err := c.index(node)
	if err != nil {
		return err
	}
	want := map[bool]string{true: "Ready", false: "not Ready"}[ready]
	return wait(ctx, limit, nodeName(i)+" to be "+want, func(ctx context.Context) error {
		var nodes nodeList
		if err := c.getJSON(ctx, &nodes, "nodes"); err != nil {
			return err
		}
		if nodes.ready(since)[nodeName(i)] != ready {
			return fmt.Errorf("it is not %s", want)
		}
		return nil
	})
}

// Rollout waits until a workload such as "deployment/coredns" has all its pods ready.
func (c *Cluster) Rollout(ctx context.Context, namespace, workload string, limit time.Duration) error {
	return wait(ctx, limit, "the rollout of "+workload, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "", "-n", namespace, "rollout", "status", workload, "--timeout=5s")
		return err
	})
}
