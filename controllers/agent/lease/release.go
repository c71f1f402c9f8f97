package lease

import (
	"maps"
	"slices"
)

// release is repeated to each voter until it answers, or until its grant has
// run out anyway.
type release struct {
	request Request
	to      map[string]bool
	until   Time
	next    Time
}

func (m *Machine) startRelease(voters []string, r Request) {
	m.outbox = release{request: r, to: map[string]bool{}, until: m.now.Add(m.cfg.Grant), next: m.now}
	for _, v := range voters {
		if v != m.cfg.Self {
			m.outbox.to[v] = true
		}
	}
	m.resendRelease()
}

func (m *Machine) resendRelease() {
	o := &m.outbox
	if m.now >= o.until {
		o.to = nil
	}
	if len(o.to) == 0 || m.now < o.next {
		return
	}
	o.next = m.now.Add(m.cfg.Heartbeat / 2)
	for _, v := range slices.Sorted(maps.Keys(o.to)) {
		m.send(v, o.request)
	}
}
