package agent

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// Engine is the database that the agent runs: its driver, and what some drivers can do beyond that. What is nil is not needed.
type Engine struct {
	Driver engine.Driver
	// Discards says whether Prepare for the role would throw away data that this member acknowledged.
	Discards func(ctx context.Context, r engine.Role) (bool, error)
	// Checkpoint makes a stop soon after quick; it may take minutes.
	Checkpoint func(ctx context.Context) error
	// Unfit says whether the report is of a replica that cannot follow with the data that it has.
	Unfit func(r engine.Report) bool
	// Explain reads reason and text for people out of a driver's error.
	Explain func(err error) (reason, text string, ok bool)
	// Starting says of a driver's error that a server, this or the one that it follows, is on its way up: a state and no problem.
	Starting func(err error) bool
	// Greet is answered by a server that takes new sessions, or will: it fails at once where there is none, and waits for one that hangs.
	Greet func(ctx context.Context) error
	// Pump reads the server's output to its end and emits its records.
	Pump func(ctx context.Context, from io.Reader, emit func(Entry)) error
	// Held is what of the engine must outlive the exchange of the agent's program, and Adopt goes on with it; nil without any. Held is
	// false while the engine is at work.
	Held  func() (held *os.File, idle bool)
	Adopt func(held *os.File) error
	// Credential runs the server as another user: for tests, which run as root.
	Credential *syscall.Credential
}

// Entry is one record of the server's log.
type Entry struct {
	Time    time.Time
	Level   string
	Message string
	// Fields in order, name and value; empty values are left out.
	Fields [][2]string
	// Cut is true if something was too long.
	Cut bool
}

// do carries out a long step.
func (e Engine) do(ctx context.Context, s step) result {
	switch s.Do {
	case plan:
		if e.Discards == nil {
			return result{}
		}
		discards, err := e.Discards(ctx, s.Role)
		return result{err: err, discards: discards}
	case prepare:
		return result{err: e.Driver.Prepare(ctx, s.Role)}
	case become:
		return result{err: e.Driver.Become(ctx, s.Role)}
	case checkpoint:
		if e.Checkpoint == nil {
			return result{}
		}
		return result{err: e.Checkpoint(ctx)}
	case quiesce:
		_, err := e.Driver.Quiesce(ctx)
		return result{err: err}
	case rest, hardStop, fastStop, start:
	}
	return result{}
}

func (e Engine) explain(err error) (reason, text string, ok bool) {
	if e.Explain == nil {
		return "", "", false
	}
	return e.Explain(err)
}

func (e Engine) starting(err error) bool { return e.Starting != nil && e.Starting(err) }

func (e Engine) unfit(r engine.Report) bool { return e.Unfit != nil && e.Unfit(r) }
