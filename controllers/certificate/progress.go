package certificate

import (
	"maps"
	"slices"
	"time"
)

// Phase is how far a change of the authority has come.
type Phase int

const (
	// Settled has one authority, which signs and is trusted, and nothing else.
	Settled Phase = iota
	// Trusting has a next authority that is trusted and does not sign yet.
	Trusting
	// Replacing has a new authority that signs, and goes on trusting the old one until nobody uses its leaves.
	Replacing
)

// Phase of the change of the authority that is under way, and from when on the next one may sign while it is Trusting.
func (m Material) Phase() (Phase, time.Time) {
	if !m.Next.Empty() {
		return Trusting, m.NextSigns
	}
	if trusted, err := parseBundle(m.Trusted); err == nil && len(distinct(trusted...)) > 1 {
		return Replacing, time.Time{}
	}
	return Settled, time.Time{}
}

// Behind are the instances, by name, that have not said yet that they use this material.
func (w Wanted) Behind(m Material) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.Reported)) {
		if w.Reported[name] != m.SecretsHash(name) {
			names = append(names, name)
		}
	}
	return names
}
