package agent

import (
	"context"
	"fmt"
	"sync"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/names"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// peers carries the leadership's messages to the other members, by the addresses of the aim.
type peers struct {
	client *client.Client
	names  *names.Book

	mu      sync.Mutex
	address map[string]string
}

func (p *peers) want(a engine.Aim) {
	address := make(map[string]string, len(a.Members)+1)
	for _, m := range a.Members {
		address[m.Name] = m.Address
	}
	if a.Witness != nil {
		address[a.Witness.Name] = a.Witness.Address
	}
	p.mu.Lock()
	p.address = address
	p.mu.Unlock()
}

// others are all members but one, and where they are.
func (p *peers) others(self string) []engine.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []engine.Peer
	for name, at := range p.address {
		if name != self {
			out = append(out, engine.Peer{Name: name, Address: at})
		}
	}
	return out
}

// hear takes a leader's word for where the members are.
func (p *peers) hear(r lease.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, at := range r.Members {
		if host := p.address[name]; host != "" {
			p.names.Learn(host, at)
		}
	}
	if host := p.address[r.From]; host != "" && r.Address != "" {
		p.names.Learn(host, r.Address)
	}
}

// Send asks the member and returns its answer.
func (p *peers) Send(ctx context.Context, to string, r lease.Request) (lease.Answer, error) {
	p.mu.Lock()
	address := p.address[to]
	p.mu.Unlock()
	if address == "" {
		return lease.Answer{}, fmt.Errorf("ask %s: the aim does not hold its address", to)
	}
	var a lease.Answer
	if err := p.client.Post(ctx, engine.Peer{Name: to, Address: address}, lease.Path+string(r.Kind), r, &a); err != nil {
		return lease.Answer{}, err
	}
	if err := a.Validate(); err != nil {
		return lease.Answer{}, err
	}
	return a, nil
}
