package database

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
)

// Attempt is what came of the newest program that an instance was sent.
type Attempt struct {
	Digest, Version string
	Tries           int
	// Next is when another one may be made, and Why what the last one said.
	Next time.Time
	Why  string
	// Runs is since when the instance is heard to run it; zero while it does not.
	Runs time.Time
	// GivenUp is true once the agent has said so of this try.
	GivenUp bool
}

const (
	// settles is how long a program runs at one instance before it is sent to the next: what is wrong with it shows at one replica.
	settles = 10 * time.Second
	// proven is how long it must have run for its attempts to be forgotten. A container that starts again after that has its own reasons.
	proven = 10 * time.Minute
)

// pauseAfter so many attempts: one that the instance did not survive, too, is made again, and more and more seldom.
func pauseAfter(tries int) time.Duration {
	pauses := []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute}
	return pauses[min(tries, len(pauses)-1)]
}

// The results of exchanges, as the metric has them.
const (
	exchangeSent     = "sent"      // the agent took the program
	exchangeRefused  = "refused"   // it did not, or was not reached
	exchangeDone     = "done"      // it runs it
	exchangeGivenUp  = "given_up"  // it found no moment for it, or could not begin it
	exchangeFellBack = "fell_back" // it ran it, and came back with another one
)

// attempts remembers the programs that were sent, by Database and instance, until they have run for a while. A manager that has just
// begun remembers none.
type attempts struct {
	count func(result string)

	mu   sync.Mutex
	made map[types.NamespacedName]map[string]Attempt
}

func newAttempts(count func(result string)) *attempts {
	return &attempts{count: count, made: map[types.NamespacedName]map[string]Attempt{}}
}

// note one. An attempt that was taken counts as well: whether it came to an end, the agent's report tells.
func (a *attempts) note(key types.NamespacedName, instance string, p client.Program, why string, now time.Time) Attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made[key] == nil {
		a.made[key] = map[string]Attempt{}
	}
	last := a.made[key][instance]
	if last.Digest != p.Digest {
		last = Attempt{}
	}
	next := Attempt{Digest: p.Digest, Version: p.Version, Tries: last.Tries + 1, Next: now.Add(pauseAfter(last.Tries)), Why: why}
	a.made[key][instance] = next
	result := exchangeSent
	if why != "" {
		result = exchangeRefused
	}
	a.count(result)
	return next
}

// of the instances that are heard of. One that runs what it was sent is remembered for a while: it may not survive that.
func (a *attempts) of(key types.NamespacedName, heard map[string]Heard, now time.Time) map[string]Attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]Attempt{}
	for instance, attempt := range a.made[key] {
		h, ok := heard[instance]
		if ok && h.Report.AgentDigest != "" {
			attempt = a.follow(instance, attempt, h, now)
		}
		if !attempt.Runs.IsZero() && now.Sub(attempt.Runs) >= proven {
			delete(a.made[key], instance)
			continue
		}
		a.made[key][instance], out[instance] = attempt, attempt
	}
	return out
}

// follow what an instance says of the program that it was sent.
func (a *attempts) follow(instance string, attempt Attempt, h Heard, now time.Time) Attempt {
	runs := h.Report.AgentDigest == attempt.Digest
	under := h.Report.Exchange
	switch {
	case runs && attempt.Runs.IsZero():
		attempt.Runs, attempt.Why = now, ""
		a.count(exchangeDone)
	case runs:
	case !attempt.Runs.IsZero():
		attempt.Why = fmt.Sprintf("%s ran it for %s, and came back with %s", instance, now.Sub(attempt.Runs).Round(time.Second), h.Report.AgentVersion)
		attempt.Runs, attempt.Next = time.Time{}, now.Add(pauseAfter(attempt.Tries))
		a.count(exchangeFellBack)
	case under != nil && under.Failed && under.Digest == attempt.Digest && !attempt.GivenUp:
		attempt.GivenUp = true
		a.count(exchangeGivenUp)
	}
	return attempt
}

func (a *attempts) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.made, key)
}
