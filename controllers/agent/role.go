package agent

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// roleOf is what the server should be by the decision, with the configuration of the aim. Initialised says that this member
// began the Database already: a primary without data must not begin it again, whatever the aim says.
func roleOf(d lease.Decision, a engine.Aim, initialised bool) engine.Role {
	r := engine.Role{
		Kind: engine.Stopped, Epoch: int64(d.Epoch), Member: a.Member,
		Files: maps.Clone(a.Files), Accounts: slices.Clone(a.Accounts), Database: a.Init,
	}
	for _, p := range a.Members {
		if p.Name != a.Member {
			r.Peers = append(r.Peers, p.Name)
		}
	}
	slices.Sort(r.Peers)
	switch d.Role {
	case lease.RolePrimary:
		r.Kind, r.Timeline = engine.Primary, d.Timeline
		r.Initialise = mayInitialise(d, a) && !initialised
		r.SyncPeers, r.SyncCount = slices.Clone(d.Sync), d.SyncNeed
		if a.Synchronous == synchronousNone {
			r.SyncPeers, r.SyncCount = nil, 0
		}
	case lease.RoleReplica:
		r.Kind, r.Upstream = engine.Replica, addressOf(a, d.Upstream)
		if r.Upstream != "" {
			r.UpstreamIP = d.UpstreamIP
		}
	case lease.RoleStop, lease.RoleNone:
	}
	return r
}

// Modes of Aim.Synchronous.
const (
	synchronousRequired  = "required"
	synchronousNone      = "none"
	synchronousPreferred = "preferred"
)

// mayInitialise says that the Database never had another leader than this member, nor another voter, and that the manager named
// this member to begin it.
func mayInitialise(d lease.Decision, a engine.Aim) bool {
	return a.Bootstrap == a.Member && len(d.Record.Voters) == 1 && d.Record.Voters[0] == a.Member && d.Record.Version == 1
}

// addressOf the member, by the aim; empty for one that the aim does not name.
func addressOf(a engine.Aim, member string) string {
	if member == "" {
		return ""
	}
	for _, p := range a.Members {
		if p.Name == member {
			return p.Address
		}
	}
	return ""
}

// lacksUpstream says that the decision names an upstream whose address the aim does not hold: the manager's next aim will.
func lacksUpstream(d lease.Decision, a engine.Aim) bool {
	return d.Role == lease.RoleReplica && d.Upstream != "" && addressOf(a, d.Upstream) == ""
}
