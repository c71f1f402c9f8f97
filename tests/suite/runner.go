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

// step is one piece of the run. It begins when all that it needs have ended well, all that it comes after have ended, and a lane is free;
// of several that may begin, the first of the list does.
type step struct {
	name         string
	needs, after []string
	limit        time.Duration
	// aside says that it takes no lane: it runs on what the others leave.
	aside bool
	// results says that its log is a stream of go test's JSON events.
	results bool
	do      func(ctx context.Context, log io.Writer) error
	// again runs tests of it, by package, alone. Nil for a step whose tests do not look at the clock.
	again func(ctx context.Context, log io.Writer, tests map[string][]string) error
}

// mostAgain tests of a step that failed are run again: more of them are no accident.
const mostAgain = 3

// result is how a step ended. A step that did not run has a reason instead.
type result struct {
	step       step
	log, again string // again: of the tests that were run once more
	err        error
	skipped    string
}

var errNothingToDo = errors.New("nothing to do")

type runner struct {
	say   func(string, ...any)
	logs  string
	lanes int // how many steps at once; zero for any number
}

// run starts every step as soon as it may and returns all results in the order of the steps.
func (r runner) run(ctx context.Context, steps []step) []result {
	results := make([]result, len(steps))
	begun, over := make([]bool, len(steps)), make([]bool, len(steps))
	type end struct {
		i int
		result
	}
	ended := make(chan end)
	busy, open := 0, 0
	for {
		for i, s := range steps {
			if begun[i] || !waited(s, steps, over) {
				continue
			}
			if why := lacks(s, results); why != "" {
				results[i] = result{step: s, skipped: why}
				r.say("%s: not run, %s", s.name, why)
				begun[i], over[i] = true, true
				continue
			}
			if !s.aside {
				if r.lanes > 0 && busy == r.lanes {
					continue
				}
				busy++
			}
			begun[i] = true
			open++
			go func() { ended <- end{i, r.one(ctx, s)} }()
		}
		if open == 0 {
			return results // steps name earlier ones only, so none is left
		}
		e := <-ended
		results[e.i], over[e.i] = e.result, true
		open--
		if !steps[e.i].aside {
			busy--
		}
	}
}

// waited says whether all steps that it needs or comes after are over, those that are not in the run left out.
func waited(s step, steps []step, over []bool) bool {
	for i, other := range steps {
		if !over[i] && (slices.Contains(s.needs, other.name) || slices.Contains(s.after, other.name)) {
			return false
		}
	}
	return true
}

// lacks says why a step cannot run; empty if it can.
func lacks(s step, results []result) string {
	for _, other := range results {
		if slices.Contains(s.needs, other.step.name) && (other.err != nil || other.skipped != "") {
			return "because " + other.step.name + " did not end well"
		}
	}
	return ""
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
	again := ""
	if err != nil && ctx.Err() == nil && s.again != nil {
		again, err = r.again(ctx, s, path, err)
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
	return result{step: s, log: path, again: again, err: err}
}

// again runs the few tests that failed once more, alone: on a small machine one may be late beside others. It returns the log of that, and
// how it ended; nothing and how the step ended if something else failed, too.
func (r runner) again(ctx context.Context, s step, first string, ended error) (string, error) {
	var all summary.Summary
	if err := readResults(s.name, first, all.Read); err != nil {
		return "", errors.Join(ended, err)
	}
	tests, n := all.Tests(), 0
	for _, names := range tests {
		n += len(names)
	}
	if n == 0 || n > mostAgain {
		return "", ended
	}
	path := strings.TrimSuffix(first, ".log") + "-again.log"
	log, err := os.Create(path)
	if err != nil {
		return "", errors.Join(ended, err)
	}
	defer log.Close()
	r.say("%s: %d tests failed, and are run again alone", s.name, n)
	return path, s.again(ctx, log, tests)
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
	before := s.Failed
	err := readResults(r.step.name, r.log, func(name string, log io.Reader) error {
		if r.again == "" {
			return s.Read(name, log)
		}
		return readResults(name, r.again, func(_ string, again io.Reader) error { return s.ReadAgain(name, log, again) })
	})
	if err != nil {
		return err
	}
	// go test failed, and its stream does not say in what.
	if r.err != nil && s.Failed == before {
		s.Check(r.step.name, r.err, readLog(r.log))
	}
	return nil
}

// readResults opens a step's log for who reads it.
func readResults(name, path string, read func(name string, log io.Reader) error) error {
	log, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the results of %s: %w", name, err)
	}
	defer log.Close()
	return read(name, log)
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
