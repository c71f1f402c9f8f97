package database

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Programs are the agents that this operator's image holds, by architecture as Go names it.
type Programs map[string]client.Program

// ReadPrograms finds the agent's programs: path is that of this architecture, and those of others lie beside it with their names at its
// end. One that is missing is none: instances of that architecture keep the agent that they have.
func ReadPrograms(path, own string, others []string, version string) (Programs, error) {
	all := Programs{}
	for _, architecture := range append([]string{own}, others...) {
		file := path + "-" + architecture
		if architecture == own {
			file = path
		}
		p, err := readProgram(file, version)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the agent's program for %s: %w", architecture, err)
		}
		all[architecture] = p
	}
	return all, nil
}

func readProgram(path, version string) (client.Program, error) {
	f, err := os.Open(path)
	if err != nil {
		return client.Program{}, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return client.Program{}, err
	}
	return client.Program{
		Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Version: version, Size: n,
		Open: func() (io.ReadCloser, error) { return os.Open(path) },
	}, nil
}

// Send is a program to send to one agent.
type Send struct {
	To      Target
	From    string // the version that runs there
	Program client.Program
}

// sendTimeout bounds one; the agent checks the program before it answers.
const sendTimeout = 30 * time.Second

// Exchange sends an agent another program.
func (d *Dialer) Exchange(ctx context.Context, to Target, p client.Program) error {
	return d.client(to).Exchange(ctx, engine.Peer{Name: to.Instance, Address: to.PodIP}, p)
}

// send the plan's program, if there is one.
func (r *Reconciler) send(ctx context.Context, s Seen, p Plan, a *Acted) {
	if p.Send == nil {
		return
	}
	to, next := p.Send.To, p.Send.Program
	sending, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := r.agents.Exchange(sending, to, next)
	why := ""
	if err != nil {
		why = err.Error()
	}
	attempt := r.attempts.note(s.key(), to.Instance, next, why, r.now())
	a.LookAgain = soonest(a.LookAgain, attempt.Next.Sub(r.now())+time.Millisecond)
	if err != nil {
		log.FromContext(ctx).Info("an agent did not take its program", "instance", to.Instance, "version", next.Version, "tries", attempt.Tries, "error", why)
		return
	}
	log.FromContext(ctx).Info("sent an agent its program", "instance", to.Instance, "from", p.Send.From, "version", next.Version, "digest", next.Digest)
	r.tell(ctx, s.Database, []occurrence{{
		corev1.EventTypeNormal, "AgentExchange", "Exchange",
		fmt.Sprintf("%s: its agent goes from %s to %s under the running server", to.Instance, p.Send.From, next.Version),
	}})
}
