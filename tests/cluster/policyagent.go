package cluster

import (
	"context"
	"errors"
	"fmt"
)

// The agents that keep NetworkPolicy are kube-router's, one on each node. Each of them goes through every policy of the cluster, wherever
// its pods are, at every change of any pod: beside thousands of policies that takes both cores of a small machine for seconds.

func policyAgent(i int) string { return nodeName(i) + "-kube-router" }

// startPolicyAgent starts only its firewall, for NetworkPolicy. A node process, so that it works before any image is there.
func (c *Cluster) startPolicyAgent(i int) error {
	n := nodeName(i)
	return c.startOnNode(i, "kube-router", []string{"NODE_NAME=" + n},
		"kube-router", "--kubeconfig="+c.path("conf", "kube-router.kubeconfig"), "--master="+serverURL, "--hostname-override="+n,
		"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--enable-cni=false",
		"--service-cluster-ip-range="+serviceNet)
}

// StopPolicyAgents ends those of all nodes and opens what they had closed: no NetworkPolicy holds until StartPolicyAgents.
func (c *Cluster) StopPolicyAgents(ctx context.Context) error {
	return each(c.state.Nodes, func(i int) error {
		if err := c.stop(ctx, policyAgent(i)); err != nil {
			return err
		}
		enter, err := c.inNode(i)
		if err != nil {
			return err
		}
		for _, chain := range []string{"KUBE-ROUTER-INPUT", "KUBE-ROUTER-FORWARD", "KUBE-ROUTER-OUTPUT"} {
			if _, err := run(ctx, "", enter[0], append(enter[1:], "iptables", "-w", "10", "-F", chain)...); err != nil {
				return fmt.Errorf("open the firewall of %s: %w", nodeName(i), err)
			}
		}
		return nil
	})
}

// StartPolicyAgents starts those that do not run, on all nodes with power.
func (c *Cluster) StartPolicyAgents(context.Context) error {
	return each(c.state.Nodes, func(i int) error {
		if _, err := c.pid(policyAgent(i)); !errors.Is(err, errNotRunning) {
			return err
		}
		if _, err := c.pid(nodeName(i) + "-init"); errors.Is(err, errNotRunning) {
			return nil // it starts with the power
		}
		return c.startPolicyAgent(i)
	})
}
