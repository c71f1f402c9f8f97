// Package certificate is the public-key infrastructure of a Database, purely: its authority, the leaves and when to renew them.
package certificate

import (
	"crypto/x509"
	"time"
)

// Policy is how long certificates live.
type Policy struct {
	// Authority and Leaf are the lives of an authority and of a leaf on a volume.
	Authority, Leaf time.Duration
	// Manager is the life of the manager's leaf, which is in its memory alone.
	Manager time.Duration
	// Overlap is how long a new authority is trusted before it signs: the time for clients to fetch it. QuickOverlap takes its
	// place when a person asks for the rotation.
	Overlap, QuickOverlap time.Duration
}

// DefaultPolicy is used where nothing else is asked for.
//
// An authority lives for a year, and its successor comes after two thirds: short enough that rotation is routine and not an
// event that happens for the first time in ten years with nobody left who knows it; long enough that the last third, four
// months, leaves thirty days for clients that hold a copy of the old one (a rolled deployment picks up the new), and outlives
// every leaf, which lives for ninety days. A requested rotation waits ten minutes, several times what a kubelet takes to
// refresh a mounted Secret.
func DefaultPolicy() Policy {
	const day = 24 * time.Hour
	return Policy{
		Authority: 365 * day, Leaf: 90 * day, Manager: day,
		Overlap: 30 * day, QuickOverlap: 10 * time.Minute,
	}
}

// skew is how far before now a certificate begins, for peers whose clocks are behind.
const skew = 5 * time.Minute

// renewAt is two thirds into a certificate's life.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(life(c) * 2 / 3)
}

// lastCall is eleven twelfths into the life of an authority: from then on its successor signs even if an instance has not said
// that it trusts it, since waiting longer would end in certificates that nobody accepts.
func lastCall(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(life(c) * 11 / 12)
}

func life(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(c.NotBefore) }

// due says whether a certificate should be replaced: late in its life, or from the future because some clock was wrong.
func due(now time.Time, c *x509.Certificate) bool {
	return now.Before(c.NotBefore) || !now.Before(renewAt(c))
}
