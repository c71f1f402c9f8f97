package agent

import (
	"context"
	"net/http"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
)

// fresher hands messages to the leadership, with a new look at the server before those whose answer's position decides.
type fresher struct{ a *Agent }

// Ask hands in a peer's request and waits for this member's answer.
func (f fresher) Ask(ctx context.Context, r lease.Request) (lease.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if wantsFresh(r, f.a.cfg.Instance) {
		f.a.sampler.now(ctx)
	}
	answer, err := f.a.runner.Ask(ctx, r)
	if err == nil && answer.OK && r.Kind == lease.KindGrant {
		f.a.peers.hear(r)
	}
	return answer, err
}

// callerOf reads who calls from a request's certificate. The manager may ask for the status, no more.
func callerOf(uid string) lease.Identify {
	return func(r *http.Request) (lease.Caller, error) {
		who, err := client.Identify(r.TLS.PeerCertificates[0], uid)
		if err != nil {
			return lease.Caller{}, err
		}
		if who.Manager {
			return lease.Caller{Name: client.ManagerName}, nil
		}
		return lease.Caller{Name: who.Member, Member: true}, nil
	}
}
