package lease

import "fmt"

// Machine is one member's part of the protocol. It is deterministic: all that
// it knows comes in through Step, all that it wants goes out as outputs.
type Machine struct {
	cfg Config
	now Time
	out []Output
}

// NewMachine returns the machine of a member that has just started, whose
// server is stopped, and whose promise file held p (or did not exist).
func NewMachine(cfg Config, now Time, p Promise, found bool) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("start member %s: %w", cfg.Self, err)
	}
	return &Machine{cfg: cfg, now: now}, nil
}

// Step tells the machine one thing and returns what is to be done, in order.
func (m *Machine) Step(now Time, in Input) []Output { return nil }

// Next returns when the machine wants a Tick at the latest.
func (m *Machine) Next() Time { return m.now.Add(m.cfg.Heartbeat) }
