package certificate

import (
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Wanted is what Plan works towards.
type Wanted struct {
	UID, Namespace, Database string
	// Instances that exist or are to be made.
	Instances []string
	// Foreign is the user's own server certificate (spec.tls), that CheckServer found good; nil for one of ours.
	Foreign *Foreign
	// Rotation asks for a new authority now, once per new value; empty asks for nothing.
	Rotation string
	// Reported is the SecretsHash by the newest report of each instance that has a pod, and empty while that is silent. An
	// instance without a pod is absent and not waited for: it will mount what the Secrets hold when it starts.
	Reported map[string]string
}

// Plan is the next step from the material that there is. A new authority is trusted everywhere first, then it signs and every
// leaf is issued anew, then the old one is trusted no longer; each step waits until every instance has said that it uses the
// step before. So at any instant any two peers accept each other, whichever step each of them has seen.
//
// Apply the Secrets of the next material always (what is so already is not written), and look again at nextLook at the latest,
// or when a report changes.
func Plan(random io.Reader, now time.Time, p Policy, current Material, w Wanted) (next Material, changed bool, nextLook time.Time, err error) {
	step := step{random: random, now: now, policy: p, current: current, wanted: w, next: current}
	if err := step.authority(); err != nil {
		return Material{}, false, time.Time{}, fmt.Errorf("plan the authority of Database %s/%s: %w", w.Namespace, w.Database, err)
	}
	if err := step.trust(); err != nil {
		return Material{}, false, time.Time{}, fmt.Errorf("plan the trust of Database %s/%s: %w", w.Namespace, w.Database, err)
	}
	if err := step.leaves(); err != nil {
		return Material{}, false, time.Time{}, fmt.Errorf("plan the certificates of Database %s/%s: %w", w.Namespace, w.Database, err)
	}
	return step.next, !reflect.DeepEqual(current, step.next), step.look(), nil
}

// step is one call of Plan: what is, what is wanted, and what comes next so far.
type step struct {
	random        io.Reader
	now           time.Time
	policy        Policy
	wanted        Wanted
	current, next Material
}

// settled says whether every instance uses the current material.
func (s *step) settled() bool { return len(s.wanted.Behind(s.current)) == 0 }

// authority decides who signs and who will.
func (s *step) authority() error {
	requested := s.wanted.Rotation != "" && s.wanted.Rotation != s.current.Rotation
	s.next.Rotation = s.wanted.Rotation
	if s.wanted.Rotation == "" {
		s.next.Rotation = s.current.Rotation
	}
	if s.next.Signer.Empty() && s.next.Next.Empty() {
		return s.first()
	}
	if s.next.Next.Empty() {
		signer, err := ParseAuthority(s.next.Signer)
		if err != nil {
			return err
		}
		if !requested && !due(s.now, signer.certificate) {
			return nil
		}
		return s.prepare(requested)
	}
	if quick := s.now.Add(s.policy.QuickOverlap); requested && quick.Before(s.next.NextSigns) {
		s.next.NextSigns = quick.UTC().Truncate(time.Second)
	}
	if !s.mayHandOver() {
		return nil
	}
	s.next.Signer, s.next.Next, s.next.NextSigns = s.next.Next, Pair{}, time.Time{}
	return nil
}

// first makes an authority where there is none: for a new Database one that signs at once, and for one that has lost its
// authority one that must be trusted first.
func (s *step) first() error {
	if len(s.current.Trusted) > 0 {
		return s.prepare(false)
	}
	made, err := NewAuthority(s.random, s.now, s.policy.Authority, s.wanted.UID, s.wanted.Database)
	if err != nil {
		return err
	}
	s.next.Signer = made.Pair()
	return nil
}

func (s *step) prepare(quick bool) error {
	made, err := NewAuthority(s.random, s.now, s.policy.Authority, s.wanted.UID, s.wanted.Database)
	if err != nil {
		return err
	}
	overlap := s.policy.Overlap
	if quick {
		overlap = s.policy.QuickOverlap
	}
	// Whole seconds, as the Secret keeps them: what is read back must equal what was written.
	s.next.Next, s.next.NextSigns = made.Pair(), s.now.Add(overlap).UTC().Truncate(time.Second)
	return nil
}

// mayHandOver says whether the next authority may begin to sign.
func (s *step) mayHandOver() bool {
	if last, known := s.lastCall(); known && !s.now.Before(last) {
		return true
	}
	return !s.now.Before(s.next.NextSigns) && s.settled()
}

func (s *step) lastCall() (time.Time, bool) {
	signer, err := parseCertificate(s.next.Signer.Certificate)
	if err != nil {
		return time.Time{}, false
	}
	return lastCall(signer), true
}

// trust decides which authorities are trusted. An old one goes when no leaf of it is left and every instance uses its new leaf.
func (s *step) trust() error {
	keep, err := s.signing()
	if err != nil {
		return err
	}
	old, err := parseBundle(s.current.Trusted)
	if err != nil {
		old = nil // Nothing to keep: a new Database, or a bundle that was damaged.
	}
	settled := s.settled()
	for _, authority := range old {
		over := s.now.After(authority.NotAfter)
		if !over && (!settled || s.leafBy(authority)) {
			keep = append(keep, authority)
		}
	}
	s.next.Trusted = encodeBundle(distinct(keep...))
	return nil
}

// signing are the certificates of the authorities that sign or will.
func (s *step) signing() ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for _, pair := range []Pair{s.next.Signer, s.next.Next} {
		if pair.Empty() {
			continue
		}
		c, err := parseCertificate(pair.Certificate)
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// leafBy says whether a leaf of the current material is by the authority.
func (s *step) leafBy(authority *x509.Certificate) bool {
	pairs := append(slices.Collect(maps.Values(s.current.Members)), s.current.Server)
	return slices.ContainsFunc(pairs, func(p Pair) bool {
		c, err := parseCertificate(p.Certificate)
		return err == nil && issued(authority, c)
	})
}

// leaves issues what is missing, old, by another authority or for other names.
func (s *step) leaves() error {
	issuer, err := s.next.issuer()
	if err != nil {
		return err
	}
	s.next.Members = map[string]Pair{}
	for _, instance := range s.wanted.Instances {
		request := MemberLeaf(s.wanted.UID, s.wanted.Namespace, s.wanted.Database, instance)
		pair, err := s.leaf(issuer, s.current.Members[instance], request)
		if err != nil {
			return err
		}
		s.next.Members[instance] = pair
	}
	if f := s.wanted.Foreign; f != nil {
		s.next.Server, s.next.ServerTrusted = f.Pair, f.Trusted
		return nil
	}
	s.next.ServerTrusted = s.next.Trusted
	s.next.Server, err = s.leaf(issuer, s.current.Server, ServerLeaf(s.wanted.UID, s.wanted.Namespace, s.wanted.Database))
	return err
}

func (s *step) leaf(issuer Authority, have Pair, request Leaf) (Pair, error) {
	if c, err := readLeaf(have); err == nil && request.describes(c) && !s.next.Stale(s.now, have) {
		return have, nil
	}
	return issuer.Issue(s.random, s.now, s.policy.Leaf, request)
}

// look is when time alone next asks for something.
func (s *step) look() time.Time {
	var times []time.Time
	add := func(t time.Time) {
		if t.After(s.now) {
			times = append(times, t)
		}
	}
	for _, pair := range append(slices.Collect(maps.Values(s.next.Members)), s.next.Server) {
		if c, err := parseCertificate(pair.Certificate); err == nil {
			add(renewAt(c))
		}
	}
	if signer, err := parseCertificate(s.next.Signer.Certificate); err == nil {
		add(renewAt(signer))
		add(lastCall(signer))
	}
	add(s.next.NextSigns)
	if len(times) == 0 {
		return s.now.Add(s.policy.Manager)
	}
	return slices.MinFunc(times, time.Time.Compare)
}
