package agent

import (
	"context"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Apply takes the newest decision and returns at once.
func (k *keeper) Apply(d lease.Decision) {
	k.mu.Lock()
	old := k.decision
	k.decision = d
	k.mu.Unlock()
	if d.Role != old.Role || d.Epoch != old.Epoch || d.Upstream != old.Upstream || d.Phase != old.Phase {
		k.log.Info("decision", "role", d.Role, "epoch", d.Epoch, "upstream", d.Upstream, "phase", d.Phase, "reason", d.Reason)
	}
	k.nudge()
}

// want takes the newest aim.
func (k *keeper) want(a engine.Aim) {
	k.mu.Lock()
	k.aim, k.hasAim = a, true
	k.mu.Unlock()
	k.nudge()
}

// observed is what the newest look at the server says.
type observed struct {
	// Unfit says that a replica cannot follow with the data that it has.
	Unfit bool
	// Connected counts the replicas that stream now; negative for unknown.
	Connected int
	// Secrets is the hash of the certificates that are mounted.
	Secrets string
	Stand   stand
	// Rebuilds names another member that is being copied, by the leader's word.
	Rebuilds string
}

// observe takes what the newest report says.
func (k *keeper) observe(o observed) {
	k.mu.Lock()
	differs := k.observed != o
	k.observed = o
	k.mu.Unlock()
	if differs {
		k.nudge()
	}
}

// freeze says that the server process answers nobody.
func (k *keeper) freeze(pid int) {
	k.mu.Lock()
	k.frozen = pid
	k.mu.Unlock()
	k.nudge()
}

func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// HardStop kills everything now, whatever the loop is busy with, and lets no server start until there is a new decision.
func (k *keeper) HardStop(reason string) {
	k.mu.Lock()
	k.barrier = max(k.barrier, k.decision.Serial)
	k.mu.Unlock()
	if err := k.kill(reason); err != nil {
		k.log.Error("hard stop failed", "reason", reason, "error", err.Error())
	}
	k.nudge()
}

func (k *keeper) kill(reason string) error {
	k.killing.Lock()
	defer k.killing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	took, err := k.table.HardStop(ctx)
	k.budget.add(took)
	k.log.Info("hard stop", "reason", reason, "took", took.String())
	return err
}

// told returns the keeper's newest word.
func (k *keeper) told() word {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.word
}

// restartDone is the newest restart token that was carried out.
func (k *keeper) restartDone() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.RestartDone
}

// beat is when the loop last turned.
func (k *keeper) beat() lease.Time { return lease.Time(k.pulse.Load()) }
