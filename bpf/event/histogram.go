package event

import (
	"math"
	"time"
)

// perOctave and lowest are the schema of the histograms: eight buckets an octave, beginning above 2^-20 s.
const (
	perOctave = 8
	lowest    = -20
)

// Bound is the upper bound of a slot; the last slot has none.
func Bound(slot int) time.Duration {
	if slot >= Buckets-1 {
		return math.MaxInt64
	}
	return time.Duration(math.Exp2(lowest+float64(slot+1)/perOctave) * float64(time.Second))
}

// Quantile estimates a quantile (0 to 1) of latencies, as Prometheus does for such histograms: between a slot's bounds on a logarithmic
// scale. It is 0 without calls.
func (c Counts) Quantile(q float64) time.Duration {
	var total uint64
	for _, n := range c.Slots {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank, seen := q*float64(total), 0.0
	for slot, n := range c.Slots {
		if n == 0 || seen+float64(n) < rank {
			seen += float64(n)
			continue
		}
		within := (rank - seen) / float64(n)
		return time.Duration(math.Exp2(lowest+(float64(slot)+within)/perOctave) * float64(time.Second))
	}
	return Bound(Buckets - 2)
}
