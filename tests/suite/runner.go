package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll-operator/tests/summary"
)

// step is one piece of the run. It begins when all that it needs have ended well and all that it comes after have ended.
type step struct {
	name         string
	needs, after []string
	limit        time.Duration
	// results says that its log is a stream of go test's JSON events.
	results bool
	do      func(ctx context.Context, log io.Writer) error
}

// result is how a step ended. A step that did not run has a reason instead.
type result struct {
	step    step
	log     string
	err     error
	skipped string
}

var errNothingToDo = errors.New("nothing to do")

type runner struct {
	say  func(string, ...any)
	logs string
}

// run starts every step as soon as it may and returns all results in the order of the steps.
func (r runner) run(ctx context.Context, steps []step) []result {
	results := make([]result, len(steps))
	done := make([]chan struct{}, len(steps))
	for i := range steps {
		done[i] = make(chan struct{})
	}
	for i, s := range steps {
		go func() {
			defer close(done[i])
			for j, earlier := range steps {
				needed := slices.Contains(s.needs, earlier.name)
				if !needed && !slices.Contains(s.after, earlier.name) {
					continue
				}
				<-done[j]
				if needed && (results[j].err != nil || results[j].skipped != "") {
					results[i] = result{step: s, skipped: "because " + earlier.name + " did not end well"}
					r.say("%s: not run, %s", s.name, results[i].skipped)
					return
				}
			}
			results[i] = r.one(ctx, s)
		}()
	}
	for i := range steps {
		<-done[i]
	}
	return results
}

func (r runner) one(ctx context.Context, s step) result {
	path := filepath.Join(r.logs, strings.ReplaceAll(s.name, " ", "-")+".log")
	log, err := os.Create(path)
	if err != nil {
		return result{step: s, err: err}
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	start := time.Now()
	r.say("%s: begins", s.name)
	err = s.do(ctx, log)
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w (limit %s): %w", ctx.Err(), s.limit, err)
	}
	took := time.Since(start).Round(100 * time.Millisecond)
	switch {
	case errors.Is(err, errNothingToDo):
		r.say("%s: nothing to do", s.name)
		err = nil
	case err != nil:
		r.say("%s: FAILED after %s, log in %s", s.name, took, path)
	default:
		r.say("%s: done in %s", s.name, took)
	}
	return result{step: s, log: path, err: err}
}

// addTo counts a step: a stream of results test by test, anything else as one check.
func (r result) addTo(s *summary.Summary) error {
	if r.skipped != "" {
		s.Skip(r.step.name, r.skipped)
		return nil
	}
	if !r.step.results || r.log == "" {
		s.Check(r.step.name, r.err, readLog(r.log))
		return nil
	}
	log, err := os.Open(r.log)
	if err != nil {
		return fmt.Errorf("read the results of %s: %w", r.step.name, err)
	}
	defer log.Close()
	before := s.Failed
	if err := s.Read(r.step.name, log); err != nil {
		return err
	}
	// go test failed, and its stream does not say in what.
	if r.err != nil && s.Failed == before {
		s.Check(r.step.name, r.err, readLog(r.log))
	}
	return nil
}

func readLog(path string) string {
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const enough = 32 << 10
	return string(text[max(0, len(text)-enough):])
}

// choose keeps the named steps and all that they need.
func choose(steps []step, names []string) ([]step, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no step %q", name)
		}
	}
	var kept []step
	for _, s := range slices.Backward(steps) { // a step needs earlier ones only
		if !wanted[s.name] {
			continue
		}
		kept = append(kept, s)
		for _, name := range s.needs {
			wanted[name] = true
		}
	}
	slices.Reverse(kept)
	return kept, nil
}
