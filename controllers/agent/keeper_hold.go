package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// keptKeeper is what the keeper of the next program must know of the server. What the server was told last is not in it: it is told
// again, and then all is carried out by the next program's own word.
type keptKeeper struct {
	Life    life            `json:"life"`
	Kind    engine.Kind     `json:"kind"`
	PID     int             `json:"pid"`
	Token   string          `json:"token"`
	Uses    string          `json:"uses"`
	Barrier uint64          `json:"barrier"`
	Obeys   uint64          `json:"obeys"`
	Streams int             `json:"streams"` // replicas that stream now; negative for unknown
	Falls   int             `json:"falls"`
	UpFor   time.Duration   `json:"upFor"`
	Took    []time.Duration `json:"took"`
}

// holdKeeper asks the keeper's loop to stand still.
type holdKeeper struct {
	answer  chan heldKeeper
	release chan struct{}
}

type heldKeeper struct {
	kept keptKeeper
	out  *output
	why  string
}

// hold makes the loop stand still, if no step is under way. Whoever kills the server may do so all the same.
func (k *keeper) hold(ctx context.Context) (heldKeeper, func(), error) {
	h := holdKeeper{answer: make(chan heldKeeper, 1), release: make(chan struct{})}
	select {
	case k.holds <- h:
	case <-ctx.Done():
		return heldKeeper{}, nil, fmt.Errorf("%w: a step of the server", lease.ErrBusy)
	}
	got := <-h.answer // the loop that took the question answers at once
	if got.why != "" {
		close(h.release)
		return heldKeeper{}, nil, fmt.Errorf("%w: %s", lease.ErrBusy, got.why)
	}
	return got, func() { close(h.release) }, nil
}

func (k *keeper) still(ctx context.Context, h holdKeeper) {
	if why := k.unquiet(); why != "" {
		h.answer <- heldKeeper{why: why}
		return
	}
	k.mu.Lock()
	kept := keptKeeper{
		Life: k.server.Life, Kind: k.server.Kind, Token: k.server.Token, Uses: k.server.Uses, Barrier: k.barrier, Obeys: k.word.Obeys,
		Streams: k.observed.Connected, Falls: k.falls,
	}
	k.mu.Unlock()
	kept.Took = k.budget.all()
	var out *output
	if k.server.Life == up {
		kept.PID, kept.UpFor, out = k.proc.PID(), time.Since(k.upSince), k.out
	}
	h.answer <- heldKeeper{kept: kept, out: out}
	select {
	case <-h.release:
	case <-ctx.Done():
	}
}

// unquiet says what is under way, or "". A server that is down stays so for as long as it is to be stopped.
func (k *keeper) unquiet() string {
	told := k.told()
	v := k.server
	switch {
	case k.busy != nil:
		return "it is busy to " + string(k.busy.step.Do)
	case k.decided() != told.Decision.Serial || !told.Settled:
		return "the server has not come to what it should be yet"
	case v.Life == down && told.Decision.Role == lease.RoleStop:
		return ""
	case v.Life != up || k.proc.Exited() || v.Frozen || v.StopSent != 0 || v.Quiesced || v.Checkpointed || v.Restarting:
		return "the server does not simply run"
	}
	return ""
}

func (k *keeper) decided() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.decision.Serial
}

// adopt goes on with the server of an earlier program of this process.
func (k *keeper) adopt(kept keptKeeper, d lease.Decision) error {
	k.decision, k.barrier, k.observed.Connected, k.falls = d, kept.Barrier, kept.Streams, kept.Falls
	k.budget.restore(kept.Took)
	k.server = server{Life: down, Barrier: kept.Barrier}
	k.word = word{Decision: d, Obeys: kept.Obeys}
	k.pulse.Store(int64(k.clock.Now()))
	if kept.Life == up {
		p, err := k.table.Adopt(kept.PID)
		if err != nil {
			return err
		}
		k.proc, k.upSince = p, time.Now().Add(-kept.UpFor)
		k.server = server{Life: up, Kind: kept.Kind, Token: kept.Token, Uses: kept.Uses, Barrier: kept.Barrier}
		k.word.PID, k.lastPID = kept.PID, kept.PID
	}
	k.word.Server = k.server
	return nil
}

// listenTo the output of an adopted server.
func (k *keeper) listenTo(from *os.File, part []byte) {
	k.out = newOutput(from, part)
	go k.forward(k.out)
}
