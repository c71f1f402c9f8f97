package lease

// Promises and the requests that wait for them.

func (m *Machine) park(in Received) {
	if len(m.voter.parked) >= maxParked {
		m.note(EventIgnored, in.Request.Epoch, "too many requests wait for the disk")
		m.answer(in, "busy")
		return
	}
	m.voter.parked = append(m.voter.parked, parked{in, m.now})
}

// reconsiderParked answers what can be answered now, and refuses what has
// waited too long or was overtaken.
func (m *Machine) reconsiderParked() {
	waiting := m.voter.parked
	m.voter.parked = nil
	for _, p := range waiting {
		r := p.in.Request
		if r.Kind == KindSupport && m.now.Sub(p.since) < m.cfg.Hold && m.promised(r.Epoch, r.From) == "" {
			if !m.keeps(r.Epoch, r.From) || !m.final() {
				m.voter.parked = append(m.voter.parked, p)
				continue
			}
			m.answerFinal(p.in)
			continue
		}
		if r.Kind == KindGrant && m.now.Sub(p.since) < m.cfg.Heartbeat && m.promised(r.Epoch, r.From) == "" {
			if m.voter.disk.Epoch < r.Epoch {
				m.voter.parked = append(m.voter.parked, p)
				continue
			}
			m.onGrant(p.in)
			continue
		}
		m.answer(p.in, "overtaken or too slow")
	}
}

func (m *Machine) persist(p Promise) {
	v := &m.voter
	v.lastID++
	v.promise = p
	o := Persist{v.lastID, p}
	if len(v.queue) == 0 {
		v.queuedAt = m.now
	}
	v.queue = append(v.queue, o)
	m.emit(o)
}

func (m *Machine) persisted(in Persisted) {
	v := &m.voter
	for i, q := range v.queue {
		if q.ID != in.ID {
			continue
		}
		if in.OK {
			v.disk, v.found = q.Promise, true
		} else if i == len(v.queue)-1 {
			v.persistRetry = m.now.Add(m.cfg.Heartbeat)
			m.noteOnce("the promise cannot be written")
		}
		v.queue = v.queue[i+1:]
		return
	}
}

// retryPersist keeps trying; until it works this voter neither grants at the
// new epoch nor supports.
func (m *Machine) retryPersist() {
	v := &m.voter
	if v.persistRetry != 0 && m.now >= v.persistRetry && len(v.queue) == 0 && v.disk != v.promise {
		v.persistRetry = 0
		m.persist(v.promise)
	}
}
