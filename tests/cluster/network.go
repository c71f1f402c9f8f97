package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// Isolation comes from what is missing: the namespaces hang on one bridge in a namespace of its own, nothing links
// that bridge to the machine's network, and nobody has a default route.

// makeFabric makes the namespace with the bridge. A command run outside the namespaces by mistake must not
// send packets for our ranges to the world, so the machine gets unreachable routes for them.
func makeFabric(ctx context.Context) error {
	steps := []string{
		"netns add " + fabric,
		"-n " + fabric + " link set lo up",
		"-n " + fabric + " link add br0 type bridge",
		"-n " + fabric + " link set br0 up",
	}
	for _, net := range []string{fabricNet, podNet, serviceNet} {
		steps = append(steps, "route replace unreachable "+net)
	}
	return ipAll(ctx, steps)
}

// attachControl makes the control plane's namespace with a way to every node's pods.
func attachControl(ctx context.Context, nodes int) error {
	steps := append(attach(control, controlIP), "-n "+prefix+control+" route add local "+playedNet+" dev lo")
	for i := range nodes {
		steps = append(steps, routeToPods(control, i+1))
	}
	return makeNamespace(ctx, control, steps)
}

// attachNode makes a node's namespace. Static routes to the other nodes' pods keep source addresses as they are.
func attachNode(ctx context.Context, i, nodes int) error {
	steps := append(attach(nodeName(i), nodeIP(i)), "-n "+prefix+nodeName(i)+" route add "+playedNet+" via "+controlIP)
	for j := range nodes {
		if j+1 != i {
			steps = append(steps, routeToPods(nodeName(i), j+1))
		}
	}
	return makeNamespace(ctx, nodeName(i), steps)
}

func attach(name, ip string) []string {
	ns := prefix + name
	return []string{
		"netns add " + ns,
		"-n " + ns + " link set lo up",
		"-n " + fabric + " link add " + name + " type veth peer name eth0 netns " + ns,
		"-n " + fabric + " link set " + name + " master br0 up",
		"-n " + ns + " addr add " + ip + "/24 dev eth0",
		"-n " + ns + " link set eth0 up",
		// The kernel looks for a route before kube-proxy's rules rewrite the address of a Service.
		"-n " + ns + " route add " + serviceNet + " dev eth0",
	}
}

func routeToPods(from string, i int) string {
	return fmt.Sprintf("-n %s%s route add %s via %s", prefix, from, podCIDR(i), nodeIP(i))
}

// PlayedPod is the address of the n-th pod, from one, that a test plays. Every node and its pods reach it, and who listens inside the control
// plane's network on all addresses answers.
func PlayedPod(n int) (string, error) {
	net, err := netip.ParsePrefix(playedNet)
	if err != nil {
		return "", fmt.Errorf("address of played pod %d: %w", n, err)
	}
	raw := net.Addr().As4()
	address := netip.AddrFrom4([4]byte{raw[0], raw[1], raw[2] | byte(n>>8), byte(n)})
	if most := 1<<(32-net.Bits()) - 2; n < 1 || n > most {
		return "", fmt.Errorf("address of played pod %d: it must be 1 to %d", n, most)
	}
	return address.String(), nil
}

// unplug takes a node's cable away, if it has one. A connection that a test still holds inside the node keeps the namespace alive, and
// with it the cable that a node of the same name would need.
func unplug(ctx context.Context, name string) error {
	if _, err := run(ctx, "", "ip", "-n", fabric, "link", "show", name); err != nil {
		return nil //nolint:nilerr // there is none
	}
	return ipAll(ctx, []string{"-n " + fabric + " link del " + name})
}

func makeNamespace(ctx context.Context, name string, steps []string) error {
	if err := ipAll(ctx, steps); err != nil {
		return err
	}
	_, err := run(ctx, "", "nsenter", "--net=/run/netns/"+prefix+name, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.disable_ipv6=1")
	return err
}

func ipAll(ctx context.Context, steps []string) error {
	for _, step := range steps {
		if _, err := run(ctx, "", "ip", strings.Fields(step)...); err != nil {
			return err
		}
	}
	return nil
}

// namespaces lists our network namespaces.
func namespaces() ([]string, error) {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// removeNetwork undoes makeFabric and the attach calls.
func removeNetwork(ctx context.Context) error {
	names, err := namespaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ipAll(ctx, []string{"netns del " + name}); err != nil {
			return err
		}
	}
	routes, err := unreachableRoutes(ctx)
	if err != nil {
		return err
	}
	for _, route := range routes {
		if err := ipAll(ctx, []string{"route del unreachable " + route}); err != nil {
			return err
		}
	}
	return nil
}

// unreachableRoutes returns those of our ranges that still have a route on the machine.
func unreachableRoutes(ctx context.Context) ([]string, error) {
	out, err := run(ctx, "", "ip", "route", "show", "type", "unreachable")
	if err != nil {
		return nil, err
	}
	var ours []string
	for _, net := range []string{fabricNet, podNet, serviceNet} {
		if strings.Contains(out, "unreachable "+net) {
			ours = append(ours, net)
		}
	}
	return ours, nil
}
