package database

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
)

// programs has the agents become those of this operator, under their servers: one at a time, replicas first and the leader last, and only
// while all is well and nothing else is under way. The first that does not come through holds up the others: what is wrong with a program
// shows at one replica.
func (d *draft) programs() bool {
	next, program := d.nextProgram()
	if next == "" {
		return true
	}
	report := d.seen.report(next)
	if d.Working != nil || d.Stalled != nil || d.busy() || d.handover != nil || len(d.restart) > 0 || d.rotating != "" || d.neverLed() {
		return true // first things first
	}
	if under := report.Exchange; under != nil && !under.Failed && under.Digest == program.Digest {
		d.work(v1.ReasonChanging, "exchanging the agent of %s for %s: %s", next, program.Version, under.Message)
		return true
	}
	if other := d.unhealthyBeside(""); other != "" {
		d.work(v1.ReasonChanging, "%s before the agent of %s is exchanged for %s", d.lacking(other), next, program.Version)
		return true
	}
	if other := d.unconvergedBeside(""); other != "" {
		d.work(v1.ReasonChanging, "waiting for %s to take its configuration before the agent of %s is exchanged for %s", other, next, program.Version)
		return true
	}
	if fresh, rest := d.settling(); fresh != "" {
		d.LookAgain = soonest(d.LookAgain, rest+time.Millisecond)
		d.work(v1.ReasonChanging, "watching the new agent of %s for %s before that of %s is exchanged for %s", fresh, settles, next, program.Version)
		return true
	}
	made, tried := d.seen.Attempts[next]
	why := made.Why
	if under := report.Exchange; under != nil && under.Failed && under.Digest == program.Digest {
		why = under.Message
	}
	if tried && made.Digest == program.Digest && d.now.Before(made.Next) {
		d.LookAgain = soonest(d.LookAgain, made.Next.Sub(d.now)+time.Millisecond)
		if why == "" {
			d.work(v1.ReasonChanging, "exchanging the agent of %s for %s", next, program.Version)
			return true
		}
		d.work(v1.ReasonChanging, "%s keeps its agent %s for now, and is asked again to exchange it for %s: %s", next, report.AgentVersion, program.Version, why)
		return true
	}
	for _, to := range targets(d.seen.Database, d.seen.Pods) {
		if to.Instance == next {
			d.Send = &Send{To: to, From: report.AgentVersion, Program: program}
			d.work(v1.ReasonChanging, "exchanging the agent of %s for %s", next, program.Version)
		}
	}
	return true
}

// settling is an instance that has run its new program for moments only, and for how long it is still watched.
func (d *draft) settling() (string, time.Duration) {
	for _, name := range d.Wanted {
		made := d.seen.Attempts[name]
		if rest := settles - d.now.Sub(made.Runs); !made.Runs.IsZero() && rest > 0 {
			return name, rest
		}
	}
	return "", 0
}

// nextProgram is the instance whose agent is exchanged next, and for what.
func (d *draft) nextProgram() (string, client.Program) {
	order := slices.DeleteFunc(slices.Clone(d.Wanted), func(name string) bool { return name == d.Leadership.Leader })
	if d.wants(d.Leadership.Leader) {
		order = append(order, d.Leadership.Leader)
	}
	off := fenced(d.seen.Database)
	for _, name := range order {
		r := d.seen.report(name)
		if r == nil || r.AgentDigest == "" || off[name] || off["*"] {
			continue // a silent one is no healthy one; one that is fenced waits until it is not
		}
		program, held := d.around.Programs[r.Architecture]
		if !held && len(d.around.Programs) > 0 {
			d.Keeps[name] = fmt.Sprintf("it keeps its agent %s: this operator's image holds none for %s", r.AgentVersion, r.Architecture)
		}
		if held && program.Digest != r.AgentDigest {
			return name, program
		}
	}
	return "", client.Program{}
}
