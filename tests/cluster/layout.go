package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// Everything of the cluster that is visible outside its state directory carries this name.
const (
	prefix     = "plimsoll-"       // network namespaces
	cgroupRoot = "/plimsoll"       // in every hierarchy
	fabric     = prefix + "fabric" // the namespace that holds only the bridge
	control    = "control"         // the control plane's port, host name and, with the prefix, namespace
	registry   = "registry.plimsoll.test"
	maxNodes   = 9 // the last digit of a node's address
)

// Addresses. No namespace has a default route and none is linked to the machine's own, so they cannot clash.
const (
	fabricNet  = "10.89.0.0/24"
	podNet     = "10.244.0.0/16"
	serviceNet = "10.96.0.0/16"
	controlIP  = "10.89.0.2"
	dnsIP      = "10.96.0.10"
	// playedNet is the half of podNet that no node gets a part of: see PlayedPod.
	playedNet = "10.244.128.0/17"
	serverURL = "https://" + controlIP + ":6443"
)

func nodeName(i int) string { return "node" + strconv.Itoa(i) }
func nodeIP(i int) string   { return "10.89.0.1" + strconv.Itoa(i) }
func podCIDR(i int) string  { return fmt.Sprintf("10.244.%d.0/24", i) }

// zone spreads the nodes over three zones.
func zone(i int) string { return "zone-" + string(rune('a'+(i-1)%3)) }

// index returns the number of a node, so that "node2" and "2" both name it.
func (c *Cluster) index(node string) (int, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(node, "node"))
	if err != nil || i < 1 || i > c.state.Nodes {
		return 0, fmt.Errorf("no node %q: the cluster has node1 to node%d", node, c.state.Nodes)
	}
	return i, nil
}
