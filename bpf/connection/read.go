package connection

import (
	"fmt"
	"iter"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// Look takes over what the sockets of open connections have counted. Those that end meanwhile are taken over when they do.
func (f *Family) Look() error {
	_, err := f.tend(tendLook)
	return err
}

// Counts are all that was counted so far, in no order. They are read while the kernel goes on counting: each number is right at its own moment.
// A pass is one use of what it returns.
func (f *Family) Counts() iter.Seq[event.Connections] {
	return func(yield func(event.Connections) bool) {
		f.tended.pass++
		for i := range f.counted.values {
			from, p := &f.counted.values[i], &f.tended.places[i]
			// The kernel's side sets live after the key.
			life := f.life(i)
			if life == vacant {
				continue
			}
			to := event.Connections{
				Place: uint64(p.generation)<<32 | uint64(i), Cgroup: from.Key.Cgroup, Client: client(from.Key.Client.Bytes),
				// Ends first: a connection that begins and ends meanwhile is open and not over before it began.
				Closed: atomic.LoadUint64(&from.Closed), Reset: atomic.LoadUint64(&from.Reset), TimedOut: atomic.LoadUint64(&from.TimedOut),
			}
			to.Found, to.Opened = atomic.LoadUint64(&from.Found), atomic.LoadUint64(&from.Opened)
			to.Refused = atomic.LoadUint64(&from.Refused)
			to.BytesIn, to.BytesOut = atomic.LoadUint64(&from.BytesIn), atomic.LoadUint64(&from.BytesOut)
			to.Retransmits, to.RoundTrip = atomic.LoadUint64(&from.Retransmits), time.Duration(atomic.LoadUint64(&from.RoundTripNs))
			for slot := range from.Slots {
				to.Slots[slot] = atomic.LoadUint64(&from.Slots[slot])
			}
			if sum := to.Opened + to.Found + to.Closed + to.Reset + to.TimedOut + to.Refused + to.BytesIn + to.BytesOut; p.changed == 0 || sum != p.sum {
				p.sum, p.changed = sum, f.tended.pass
			}
			p.open = to.Open() > 0
			p.told = life == leaving
			if !yield(to) {
				return
			}
		}
	}
}

// client is an address as people write it.
func client(bytes [16]byte) netip.Addr {
	if bytes == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(bytes).Unmap()
}

// reasons are enum lost of types.h, as labels of a metric that other families have reasons in, too.
func reasons() []string {
	return []string{"tcp_connections", "tcp_clients", "tcp_uncounted", "tcp_begins", "tcp_ends", "tcp_listeners"}
}

// Lost counts what was lost, by reason. "tcp_missed" are calls of a program that the kernel left out because it was at work on its CPU.
func (f *Family) Lost() (map[string]uint64, error) {
	lost := map[string]uint64{}
	for i, reason := range reasons() {
		lost[reason] = atomic.LoadUint64(&f.losses.values[i])
	}
	for name, p := range map[string]*ebpf.Program{"state changes": f.kernel.StateChanges, "socket goes": f.kernel.SocketGoes, "resets": f.kernel.Resets} {
		stats, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("ask how often %s was missed: %w", name, err)
		}
		lost["tcp_missed"] += stats.RecursionMisses
	}
	return lost, nil
}
