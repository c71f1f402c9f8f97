package event

import (
	"net/netip"
	"time"
)

// RoundTrips is the number of buckets of a histogram of round trips: four an octave, the first from 2^-17 s, and the last one also what is longer.
const RoundTrips = 80

// Connections of one client to one container, since they have their place.
type Connections struct {
	// Place is never given to another client, nor to the same again, as that of Counts.
	Place  uint64
	Cgroup uint64     // of the container
	Client netip.Addr // the zero Addr is the rest: those that found no place of their own
	// Found were open when they were first looked for. Closed ended after a FIN, Reset without, and TimedOut because nothing was heard any more.
	Found, Opened, Closed, Reset, TimedOut uint64
	// Refused found nobody who listened.
	Refused uint64
	// BytesIn were received and BytesOut sent once or more; Retransmits are segments. They are those of connections that are over, and of open
	// ones what they were at the last look.
	BytesIn, BytesOut, Retransmits uint64
	// RoundTrip is the sum of smoothed round trips, one for each connection and look between which something was said, and Slots are how many.
	RoundTrip time.Duration
	Slots     [RoundTrips]uint64
}

// Open are the connections that are open now.
func (c *Connections) Open() uint64 {
	if begun, over := c.Found+c.Opened, c.Closed+c.Reset+c.TimedOut; begun > over {
		return begun - over
	}
	return 0 // one was read a moment after the other
}
