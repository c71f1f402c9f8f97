package cluster

import (
	"net/netip"
	"testing"
)

func TestPlayedPodsAreInTheirHalfOfThePodNetwork(t *testing.T) {
	played, pods := netip.MustParsePrefix(playedNet), netip.MustParsePrefix(podNet)
	for i := range maxNodes {
		if played.Overlaps(netip.MustParsePrefix(podCIDR(i + 1))) {
			t.Errorf("node %d has a part of %s", i+1, playedNet)
		}
	}
	seen := map[string]bool{}
	const most = 1<<15 - 2
	for n := 1; n <= most; n++ {
		address, err := PlayedPod(n)
		if err != nil {
			t.Fatal(err)
		}
		if ip := netip.MustParseAddr(address); !played.Contains(ip) || !pods.Contains(ip) || seen[address] {
			t.Fatalf("pod %d has %s, which is not in %s, or another's", n, address, playedNet)
		}
		seen[address] = true
	}
	for _, n := range []int{0, -1, most + 1} {
		if address, err := PlayedPod(n); err == nil {
			t.Errorf("pod %d has %s", n, address)
		}
	}
}
